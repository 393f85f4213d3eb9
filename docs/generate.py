"""Generate the reference pages from the code; the site builder runs this as a hook."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from boyd import Agent
from boyd.errors import StoreUnavailable
from boyd.health.reader import read_health
from boyd.health.server_health import ServerHealth
from boyd.models import utc_now
from boyd.models.loop import ArchiveStatus, TraceStatus
from boyd.plugin import hooks
from boyd.plugin.installed_plugins import attributes
from boyd.plugins.example import Example
from boyd.settings.process_settings import Settings, settings_model
from boyd.store import Store
from boyd.testing import Lab
from boyd_api.app import ALL
from boyd_api.http.documentation import document
from boyd_api.http.metrics import Metrics, deployment_metrics
from boyd_api.http.problems import PROBLEM_TYPES
from boyd_cli.group import boyd as command_line

#: Every event of an agent's stream: the fields of its data, and when it happens.
EVENTS = {
    "iteration.started": ("iteration, trigger", "An iteration started."),
    "phase": ("iteration, phase", "The iteration entered a phase."),
    "iteration.completed": ("iteration, decision", "An iteration succeeded."),
    "iteration.failed": ("iteration, decision", "An iteration failed."),
    "iteration.abandoned": ("iteration, why", "Somebody ended the iteration with `boyd abandon`."),
    "run.pending": ("run", "A client submitted a run."),
    "run.investigating": ("run, iteration", "An iteration or the model works on the run."),
    "run.waiting": ("run, approval", "The run waits for an approval."),
    "run.completed": ("run", "The run succeeded."),
    "run.failed": ("run", "The run failed."),
    "run.cancelled": ("run", "Somebody cancelled the run."),
    "plugin.news": ("plugin, name, about, text", "A plugin announces what it has changed."),
    "approval.pending": ("approval, title", "An action waits for approval."),
    "approval.seen": ("approval, title", "The same action was proposed again."),
    "approval.preview": ("approval, title", "A new dry run gave another preview."),
    "approval.vote": (
        "approval, title, by",
        "One of several approvals was given, or dropped.",
    ),
    "approval.acknowledged": ("approval, title, by", "Somebody takes care of the approval."),
    "approval.released": ("approval, title, by", "The approval was acknowledged, and is released."),
    "anomaly.acknowledged": ("plugin, anomaly, by", "Somebody takes care of an open anomaly."),
    "anomaly.released": ("plugin, anomaly, by", "The anomaly was acknowledged, and is released."),
    "approval.approved": ("approval, title", "The policy is met; a worker executes the action."),
    "approval.denied": ("approval, title", "Somebody denied the action."),
    "approval.withdrawn": ("approval, title", "The action is not wanted any more."),
    "approval.expired": ("approval, title", "Nobody answered in time."),
    "approval.notified": (
        "approval, stage, state",
        "A notification of the approval was sent, given up or skipped, as `state` says.",
    ),
    "approval.executed": ("approval, state, title", "The approved action ended, as `state` says."),
    "execution.verified": (
        "execution, action, target, verdict",
        "An execution has a verdict, or harm was compensated.",
    ),
    "action.suspended": (
        "execution, action",
        "An action went beyond its sandbox too often, and is suspended.",
    ),
    "procedure.started": ("procedure, action", "A procedure began."),
    "procedure.changed": ("procedure, progress", "A procedure got on, was cancelled or resumed."),
    "procedure.executed": ("procedure, state", "A procedure ended."),
    "hold.lifted": ("action, target", "Somebody lifted the hold of an action."),
    "wait.started": (
        "execution, action, target",
        "A case waits before the action, to learn whether it ends by itself.",
    ),
    "wait.ended": (
        "execution, action, target, verdict",
        "The wait is over: `well`, `not well` or `unclear`.",
    ),
    "autonomy.granted": (
        "action, situation, approval",
        "A person lets an action run alone in such situations.",
    ),
    "autonomy.withdrawn": (
        "action, situation, why",
        "An action has failed too often to run alone in such situations.",
    ),
    "autonomy.revoked": (
        "action, situation, why",
        "A person has revoked the right of an action to run alone.",
    ),
    "call.executed": ("call, state", "A client's call ended."),
    "callback.executed": ("callback, state", "A callback was delivered or given up."),
    "investigation.started": ("investigation", "A question was asked."),
    "investigation.waiting": ("investigation", "A tool waits for an approval."),
    "investigation.resumed": ("investigation", "The approval was answered; the model continues."),
    "investigation.cancelled": ("investigation", "Somebody cancelled the investigation."),
    "investigation.ended": ("investigation", "The investigation ended."),
    "agent.paused": ("why", "No iteration starts any more."),
    "agent.resumed": ("", "Iterations start again."),
    "agent.frozen": ("why", "No action starts any more."),
    "agent.unfrozen": ("", "Actions start again."),
    "agent.revoked": ("why", "The agent's right to act was revoked."),
    "agent.restored": ("", "The agent may act again."),
}
#: Defaults that differ between machines.
_DEFAULTS = {"state_dir": "the user's state folder", "worker.host": "the host name"}
#: Options that many commands share; they are described once.
_COMMON = {"--config", "--redis-url", "--log-level", "--url", "--key", "--profile", "--redis"}
#: An answer to INFO with everything that a metric shows.
_REDIS = {
    "redis_version": "8.0.0",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "maxclients": 1,
}
_GENERATED = "*This page is generated from the code.*"


def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Add the generated pages to those of `docs/`."""
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    """Return the text of each reference page by its name."""
    return {
        "settings": "\n".join(settings()),
        "cli": "\n".join(commands()),
        "http": "\n".join(http()),
        "events": "\n".join(events()),
        "metrics": "\n".join(metrics()),
        "hooks": "\n".join(plugin_hooks()),
    }


# Settings


def settings() -> Iterator[str]:
    """Describe every setting of a process."""
    yield "# Settings\n"
    yield f"{_GENERATED}\n"
    yield "[Configuration](../configuration.md) explains where settings come from."
    yield "Times are in seconds.\n"
    groups: list[tuple[str, str, type[BaseModel]]] = [("General", "", Settings)]
    for name, field in settings_model().model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            groups.append((name, f"{name}.", field.annotation))
    for title, prefix, model in groups:
        yield from _setting_table(title, prefix, model)


def _setting_table(title: str, prefix: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"\n## {title}\n"
    if prefix:
        yield f"{_summary(model)}\n"
    meanings = attributes(model)
    yield "| setting | environment variable | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            continue
        path = prefix + name
        variable = f"BOYD_{path.replace('.', '__').upper()}"
        shown = _DEFAULTS.get(path) or default_of(field)
        yield f"| `{path}` | `{variable}` | {shown} | {_cell(meanings[name])} |"


def default_of(field: FieldInfo) -> str:
    """Return the default of a field as a table shows it."""
    default = field.get_default(call_default_factory=True)
    if default is None or default is PydanticUndefined:
        return "none"
    if isinstance(default, tuple | list):
        default = list(default)
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


# The command line


def commands() -> Iterator[str]:
    """Describe every command with its arguments and options."""
    yield "# Command reference\n"
    yield f"{_GENERATED}\n"
    yield "[Use the command line](../cli.md) explains the common options,"
    yield "output formats and exit codes."
    yield "Every command also has `-h`, `--help`.\n"
    for name, command in leaves(command_line, "boyd"):
        usage = command.collect_usage_pieces(click.Context(command))[1:]
        yield f"\n## {name}\n"
        yield f"`{' '.join([name, *usage])}`\n"
        yield f"{_paragraphs(command.help or '')}\n"
        yield from _option_table(command)


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, with its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for sub in command.list_commands(context):
        found = command.get_command(context, sub)
        assert found is not None
        yield from leaves(found, f"{name} {sub}")


def _option_table(command: click.Command) -> Iterator[str]:
    options = [
        param
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden and not _COMMON & set(param.opts)
    ]
    if not options:
        return
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        meaning = option.help or ("How many." if option.name == "limit" else "")
        yield f"| {names} | {_option_default(option)} | {_cell(_choices(option) + meaning)} |"


def _choices(option: click.Option) -> str:
    if not isinstance(option.type, click.Choice):
        return ""
    return ", ".join(f"`{choice}`" for choice in option.type.choices) + ". "


def _option_default(option: click.Option) -> str:
    default = option.default
    if isinstance(default, bool):
        return ""
    return f"`{default}`" if isinstance(default, str | int | float) else ""


# HTTP


def http() -> Iterator[str]:
    """Describe every route and every problem of the HTTP API."""
    yield "# HTTP routes and problems\n"
    yield f"{_GENERATED}\n"
    yield "[Use the HTTP API](../api.md) shows them in use;"
    yield "`/docs` of a running API has every field.\n"
    yield "Routes marked ● also exist below `/api/v0/agents/{agentId}`."
    yield "Every route with a scope may also answer 401, 403, 429, 500 and 503.\n"
    paths = document(ALL)["paths"]
    by_noun: dict[str, list[str]] = {}
    for path, operations in paths.items():
        for method, operation in operations.items():
            if "/agents/{agentId}" not in path:
                row = _route(path, method, operation, paths)
                by_noun.setdefault(operation["tags"][0], []).append(row)
    for noun, rows in by_noun.items():
        yield f"\n## {noun}\n"
        yield "| route | scope | meaning |"
        yield "|---|---|---|"
        yield from rows
    yield from _problems()


def _route(path: str, method: str, operation: dict[str, Any], paths: dict[str, Any]) -> str:
    scope = re.search(r"scope `(\w+)`", operation.get("description", ""))
    twin = path.replace("/api/v0", "/api/v0/agents/{agentId}", 1)
    mark = " ●" if twin != path and twin in paths else ""
    return (
        f"| `{method.upper()} {path}`{mark} | {scope[1] if scope else 'none'} "
        f"| {_cell(operation['summary'])} |"
    )


def _problems() -> Iterator[str]:
    yield "\n## Problems\n"
    yield "| problem | status | title | meaning |"
    yield "|---|---|---|---|"
    for kind in sorted(PROBLEM_TYPES.values(), key=lambda kind: (kind.status, kind.name)):
        yield f"| `{kind.name}` | {kind.status} | {kind.title} | {_cell(kind.explanation)} |"


# Events and metrics


def events() -> Iterator[str]:
    """Describe every event that the scripts write."""
    emitted = set(emitted_events())
    if emitted != set(EVENTS):
        raise ValueError(f"EVENTS differs from the Lua scripts: {sorted(emitted ^ set(EVENTS))}")
    yield "# Events\n"
    yield f"{_GENERATED}\n"
    yield "`GET /events` and `boyd events` show an agent's event stream;"
    yield "[the guide](../api.md#events) tells how to read it."
    yield "Events say that something changed; ask for the item to learn its state.\n"
    yield "| event | data | meaning |"
    yield "|---|---|---|"
    for kind, (fields, meaning) in EVENTS.items():
        names = ", ".join(f"`{name}`" for name in fields.split(", ") if name)
        yield f"| `{kind}` | {names} | {meaning} |"


def emitted_events() -> Iterator[str]:
    """Yield the events that the headers of the scripts declare."""
    folder = Path(inspect.getfile(Store)).parent / "lua"
    for path in folder.rglob("*.lua"):
        for line in re.findall(r"^-- Events +(.+)$", path.read_text("utf-8"), re.MULTILINE):
            yield from line.split(", ")


def metrics() -> Iterator[str]:
    """Describe every metric of `GET /metrics`."""
    yield "# Metrics\n"
    yield f"{_GENERATED}\n"
    yield "`GET /metrics` needs a key with the scope `read`."
    yield "[Operate Boyd](../operations.md#metrics) explains how to use them.\n"
    yield "| metric | labels | meaning |"
    yield "|---|---|---|"
    for name, (labels, text) in families().items():
        yield f"| `{name}` | {labels} | {_cell(text)} |"


def families() -> dict[str, tuple[str, str]]:
    """Return the labels and the meaning of each metric, from an example deployment."""
    lab = Lab(Agent("example", plugins=[Example()]))
    lab.run()
    vitals = replace(
        read_health(lab.client),
        server=ServerHealth.of(_REDIS, {"save": "900 1"}),
        archive=ArchiveStatus(name="example", at=utc_now(), copied_at=utc_now()),
        traces=TraceStatus(name="example", at=utc_now(), copied_at=utc_now()),
    )
    deployment = {
        _sample(family): (", ".join(getattr(family, "_labelnames", ())), family.documentation)
        for family in deployment_metrics(vitals)
    }
    return deployment | dict(_process_metrics())


def _process_metrics() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the metrics that each API process counts for itself."""
    metrics = Metrics(_no_store)
    metrics.count_request("GET", "/", 200, 0.1)
    metrics.count_observations("json", 1)
    metrics.count_refusal("json", "overloaded")
    for family in text_string_to_metric_families(metrics.expose()[0].decode()):
        if family.name.startswith(("boyd_http", "boyd_intake")) and family.type != "gauge":
            names = [name for name in family.samples[0].labels if name != "le"]
            yield _sample(family), (", ".join(names), family.documentation)


def _no_store() -> Store:
    raise StoreUnavailable("only the metrics of the process are wanted")


def _sample(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


# Hooks


def plugin_hooks() -> Iterator[str]:
    """Describe every hook with its signature."""
    yield "# Hooks\n"
    yield f"{_GENERATED}\n"
    yield "[Write a plugin](../plugins.md#hooks) explains how hooks run.\n"
    for name, arguments in hooks.SPECIFICATIONS.items():
        function = getattr(hooks, name)
        returns = str(inspect.signature(function).return_annotation)
        yield f"\n## `{name}({', '.join(arguments)})`\n"
        yield f"{_paragraphs(inspect.getdoc(function) or '')}\n"
        yield f"Returns `{returns}`.\n"


# Text


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0]


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph of a docstring."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
