"""`boyd check` and `boyd doctor`: problems of settings and agents, and of a deployment."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from boyd.agent import Agent, load_agent
from boyd.embedded.state_folder import with_redis
from boyd.errors import BoydError, ConfigError, StoreError
from boyd.health.checks import examine
from boyd.health.finding import Finding, error, ok
from boyd.health.reader import brokers_of, read_health
from boyd.models import NO_OP, from_ms, utc_now
from boyd.plugin import Action, Component, Endpoint, Observer, Plugin, Procedure, Strategy
from boyd.plugin.discovery import naming_plugin
from boyd.plugin.hooks import SPECIFICATIONS
from boyd.sandbox import host_means
from boyd.settings.permissions import PolicyRule, Window
from boyd.settings.process_settings import Settings
from boyd.settings.validation import nearest, saying
from boyd.store import connect, mask_url
from boyd.text.formatting import counted
from boyd.text.redaction import mask_passwords
from boyd_cli import output
from boyd_cli.options import agents_option, output_option, settings_options, with_agents
from boyd_cli.output import prose


def actions_in(strategy: Strategy) -> Iterator[str]:
    """Yield the ids of actions that the function names as `Decision(action="...")`.

    Computed ids are skipped; `f"{self.id}:name"` is read with the id of the plugin.
    """
    for call in ast.walk(_source(strategy)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "Decision":
            for keyword in call.keywords:
                name = _text(keyword.value, strategy.plugin_id) if keyword.arg == "action" else None
                if name and name != NO_OP:
                    yield name


def _source(strategy: Strategy) -> ast.AST:
    try:
        function = inspect.unwrap(strategy.decide)  # type: ignore[attr-defined]
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])  # made by other code, or in a session


def _text(value: ast.expr, plugin_id: str) -> str | None:
    """The text of a literal; None if it is computed."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.FormattedValue):
        return plugin_id if ast.unparse(value.value) == "self.id" else None
    if not isinstance(value, ast.JoinedStr):
        return None
    parts = [_text(part, plugin_id) for part in value.values]
    return "".join(part for part in parts if part) if all(parts) else None


#: The replacement for secrets, and the names of options that hold them.
MASK = "***"
_SECRET = re.compile(r"secret|token|password|passwd|key|headers", re.IGNORECASE)


@click.command()
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@click.option("--print", "show_all", is_flag=True, help="Also print every effective setting.")
@settings_options
def check(settings: Settings, agents: tuple[str, ...], show_all: bool) -> None:
    """Check settings and agents.

    AGENT is an agent file or module:agent; default: the setting `agents`, or agent.toml here.
    """
    if show_all:
        output.say("settings")
        _show_values(hide(settings.model_dump(mode="json")))
        output.say()
    here = ("agent.toml",) if Path("agent.toml").exists() else ()
    references = agents or settings.agents or here
    if not references:
        output.say("The settings are valid. No agent was given.")
        return
    references_by_id: dict[str, str] = {}
    fine = [_check(reference, references_by_id, show_all) for reference in references]
    output.fail_if(not all(fine))


def _check(reference: str, references_by_id: dict[str, str], show_all: bool) -> bool:
    try:
        agent = load_agent(reference)
        if agent.id in references_by_id:
            raise ConfigError(f"{references_by_id[agent.id]} has the same id {agent.id!r}")
        for plugin in agent.host.plugins.values():
            with naming_plugin(plugin.id, "its misfits cannot be told"):
                for misfit in plugin.misfits(agent.host.catalog):
                    raise ConfigError(f"{reference}: plugin {plugin.id}: {misfit}")
    except BoydError as error:
        text = str(error) if reference in str(error) else f"{reference}: {error}"
        output.note(f"failed: {output.one_line(text)}")
        return False
    except Exception as error:  # noqa: BLE001 - whatever an agent's code raises is a finding
        text = f"{reference}: {type(error).__name__}: {saying(error)}"
        output.note(f"failed: {output.one_line(text)}")
        return False
    references_by_id[agent.id] = reference
    _show(agent, reference, show_all)
    for doubt in (
        *_find_idle_plugins(agent),
        *_find_unknown_actions(agent),
        *_find_unknown_formats(agent),
        *agent.rules.problems(),
        *agent.secrets.problems(),
    ):
        output.note(f"warning: {output.one_line(f'{reference}: {doubt}')}")
    return True


def _find_idle_plugins(agent: Agent) -> Iterator[str]:
    """Yield plugins of which nothing is ever called."""
    for plugin in agent.host.plugins.values():
        kind = type(plugin)
        is_plain = kind.init is Plugin.init and kind.playbooks is Plugin.playbooks
        if is_plain and not [*_components_and_hooks(agent, plugin.id)]:
            yield f"plugin {plugin.id}: has no component and no hook: is a decorator missing?"


def _find_unknown_formats(agent: Agent) -> Iterator[str]:
    """Yield intakes whose format the API may not have either."""
    from boyd.intake import format_names

    formats = format_names()
    for intake in agent.settings.intakes:
        if intake.mapping is None and intake.use not in formats:
            close = nearest(intake.use, formats)
            yield f"intakes: no format {intake.use!r} is installed here{close}"


def _find_unknown_actions(agent: Agent) -> Iterator[str]:
    """Yield references to actions that no plugin has."""
    actions = agent.host.actions
    settings = agent.settings
    places: list[tuple[str, PolicyRule | Window]] = [
        (f"approvals.policies.{n}", rule) for n, rule in enumerate(settings.approvals.policies)
    ]
    places += [(f"windows.{n}", window) for n, window in enumerate(settings.windows)]
    for place, rule in places:
        for pattern in rule.actions:
            if pattern != "*" and not any(fnmatchcase(id, pattern) for id in actions):
                problem = f"no action matches {pattern!r}, so it has no effect"
                yield f"{place}.actions: {problem}{nearest(pattern, actions)}"
    for strategy in agent.host.strategies.values():
        for id in actions_in(strategy):
            if id not in actions:
                yield f"strategy {strategy.id}: there is no action {id!r}{nearest(id, actions)}"
    for table, ids in (("budgets", agent.settings.budgets), ("autonomy", agent.settings.autonomy)):
        for id in ids:
            if id not in actions:
                problem = f"no action has the id {id!r}, so it has no effect"
                yield f"{table}: {problem}{nearest(id, actions)}"
    yield from _find_unused_verifications(agent)
    yield from _find_sandbox_problems(agent)
    yield from _find_records_without_anomalies(agent)


def _find_records_without_anomalies(agent: Agent) -> Iterator[str]:
    """Yield actions that earn autonomy without anomalies to tell their situations apart."""
    host = agent.host
    orienters = [each.orient for each in host.orienters.values()]  # type: ignore[attr-defined]
    if any(map(_mentions_anomalies, [*orienters, *map(type, host.plugins.values())])):
        return
    for id in host.actions:
        if agent.rules.earning_rule(id):
            problem = "no plugin reports an anomaly, so all situations are one class"
            yield f"autonomy.{id}: {problem}: what the action earns in one, it may do in all"


def _mentions_anomalies(code: object) -> bool:
    """Check whether the module of *code* speaks of anomalies; True if nobody can tell."""
    try:
        module = inspect.getmodule(inspect.unwrap(code))  # type: ignore[arg-type]
        return module is None or "anomal" in inspect.getsource(module).lower()
    except (OSError, TypeError):
        return True


def _find_unused_verifications(agent: Agent) -> Iterator[str]:
    """Yield settings of verifications that have no effect."""
    actions = agent.host.actions
    for id in agent.settings.verification:
        if id not in actions:
            yield f"verification: no action has the id {id!r}{nearest(id, actions)}"
        elif agent.verification(id) is None:
            yield f"verification: action {id!r} has no `verify`, so it cannot be verified"


def _find_sandbox_problems(agent: Agent) -> Iterator[str]:
    """Yield settings of sandboxes without effect, and limits that this host cannot enforce."""
    actions = agent.host.actions
    for id in agent.settings.sandbox:
        if id not in actions:
            yield f"sandbox: no action has the id {id!r}{nearest(id, actions)}"
    for id in actions:
        sandbox = agent.sandbox(id)
        if sandbox is not None and (reason := host_means.find_limit_problem(sandbox)):
            problem = f"its sandbox cannot be enforced: {reason}"
            yield f"action {id} would not run on this host: {problem}"


def _show(agent: Agent, reference: str, show_all: bool) -> None:
    info = agent.info
    title = f" ({info.name})" if info.name != info.id else ""
    every = f" every {output.seconds(agent.settings.loop_interval)}"
    mode = info.mode + (every if info.mode == "continuous" else "")
    if agent.schedule:
        mode += f", at {', '.join(agent.schedule.expressions)} ({agent.schedule.timezone})"
    output.say(f"ok: {reference}: agent {agent.id}{title}, {mode}")
    llm = agent.settings.llm
    if llm is not None:
        output.say(f"  model {llm.model} at {llm.base_url}")
    if show_all:
        _show_values(agent.settings.model_dump(mode="json"))
    for plugin in agent.host.plugins.values():
        output.say(f"  plugin {plugin.id}")
        if show_all:
            options = hide(json.loads(plugin.options.model_dump_json(fallback=repr)))
            _show_values({"option": options} if options else {}, indent=4)
        output.print_pairs(*_components_and_hooks(agent, plugin.id), indent=4)
    output.say()


def _components_and_hooks(agent: Agent, plugin_id: str) -> Iterator[tuple[str, str]]:
    host = agent.host
    kinds: dict[str, Mapping[str, Component]] = {
        "observer": host.observers,
        "orienter": host.orienters,
        "strategy": host.strategies,
        "action": host.actions,
        "tool": host.tools,
        "endpoint": host.endpoints,
    }
    for kind, components in kinds.items():
        for component in components.values():
            if component.plugin_id == plugin_id:
                yield kind, f"{component.name}: {', '.join(_traits(agent, component))}"
    for name in SPECIFICATIONS:
        for hook in host.hooks(name):
            if hook.plugin_id == plugin_id:
                yield "hook", f"{name} (guard)" if hook.fail_closed else name


def _traits(agent: Agent, component: Component) -> Iterator[str]:
    if isinstance(component, Observer):
        yield from _observer_traits(component)
    if isinstance(component, Action):
        yield from _action_traits(agent, component)
    if isinstance(component, Endpoint):
        yield f"{component.method} {component.path}"
    if component.has("applicable_when"):
        yield "conditional"
    if not isinstance(component, Procedure):
        yield f"at most {output.seconds(component.timeout)}"


def _observer_traits(observer: Observer) -> Iterator[str]:
    yield f"every {output.seconds(observer.interval)}" if observer.interval else "every iteration"
    if observer.scope == "every_host":
        yield "on every host"
    if observer.queue:
        yield f"queue {observer.queue}"
    if observer.has("partition"):
        yield "in shards"
    if observer.isolated:
        yield "in its own process"


def _names_of(params: type[BaseModel] | None) -> str:
    if params is None:
        return "any"
    return ", ".join(params.model_json_schema(by_alias=True).get("properties", {}))


def _action_traits(agent: Agent, action: Action) -> Iterator[str]:
    yield f"params ({_names_of(action.params)})"
    yield f"risk {action.risk}"
    if action.reversibility != "unknown":
        yield action.reversibility
    if action.tool:
        yield "a tool for models"
    yield action.autonomy.mode
    if action.autonomy.min_confidence is not None:
        yield f"confidence at least {action.autonomy.min_confidence:g}"
    if action.queue:
        yield f"queue {action.queue}"
    budget = agent.budget(action.id)
    if budget:
        per = f" per {action.target}" if action.target else ""
        when = f" when {budget.when}" if budget.when else ""
        yield f"at most {budget.limit} in {output.seconds(budget.window)}{per}{when}"
    yield from _autonomy_traits(agent, action.id)
    yield from (f"window {name}" for name in agent.rules.windows_of(action.id))
    yield from (name.replace("_", " ") for name in ("dry_run", "rollback") if action.has(name))
    if isinstance(action, Procedure):
        yield f"steps {', '.join(step.id for step in action.steps)}"
        yield f"approved {'as a whole' if action.approve == 'whole' else 'step by step'}"
        yield f"within {output.seconds(action.within)}"
    plan = agent.verification(action.id)
    if plan:
        yield f"verified within {output.seconds(plan.within)}"
        yield from ["checked before"] if plan.before else []
        yield f"at most {plan.in_flight} in flight"
    if action.idempotent:
        yield "idempotent"
    sandbox = agent.sandbox(action.id)
    if sandbox:
        yield f"sandbox ({', '.join(f'{name} {text}' for name, text in sandbox.rows)})"


def _autonomy_traits(agent: Agent, action: str) -> Iterator[str]:
    rule = agent.settings.autonomy.get(action)
    if rule is not None and rule.when is not None:
        yield f"alone when {rule.when}"
    if rule is not None and rule.earning_rule:
        yield f"alone when earned: {rule.at_least:g} effective, after {rule.after} outcomes"
    if agent.rules.calibrates(action):
        yield "by calibrated confidence"


def hide(options: Any) -> Any:
    """Mask every option whose name suggests a secret."""
    if isinstance(options, dict):
        return {
            name: MASK if value and _SECRET.search(str(name)) else hide(value)
            for name, value in options.items()
        }
    if isinstance(options, list):
        return [hide(item) for item in options]
    return options


def _show_values(values: Mapping[str, Any], indent: int = 2) -> None:
    for path, value in _paths(values):
        text = mask_passwords(json.dumps(value, ensure_ascii=False))
        output.say(f"{'':{indent}}{path} = {output.one_line(text)}")


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


#: Seconds to wait for an answer of Redis or of the broker.
PATIENCE = 3.0


@click.command()
@agents_option
@output_option
@settings_options
def doctor(settings: Settings, agents: tuple[str, ...], form: str) -> None:
    """Find problems, and suggest remedies.

    Checks Redis, workers, beats, queues and agents. Agents given here or in the settings are also
    checked for the queues that their plugins need. Exit status 1 if there is an error.
    """
    findings, now = _findings(with_redis(with_agents(settings, agents)))
    if not output.print_data(form, {"findings": findings}):
        show_checks(findings, now)
    output.fail_if(any(finding.level == "error" for finding in findings))


def show_checks(findings: list[Finding], now: datetime) -> None:
    """Print findings as a table."""
    if len(findings) == 1:  # without Redis there is nothing else to look at
        output.say(f"{findings[0].level}: {_check_text(findings[0], now)}")
        return
    rows = [[finding.level, finding.subject, _check_text(finding, now)] for finding in findings]
    output.print_table(["", "check", prose("found")], rows)
    bad = sum(finding.level != "ok" for finding in findings)
    output.say()
    output.say(f"{counted(bad, 'problem')} found." if bad else "No problems found.")


def _check_text(finding: Finding, now: datetime) -> str:
    text = finding.text(now)
    return f"{text.rstrip('.')}: {finding.what_to_do}" if finding.what_to_do else text


def _findings(settings: Settings) -> tuple[list[Finding], datetime]:
    """The findings, and the time by the clock of Redis."""
    assert settings.redis_url is not None
    where = mask_url(settings.redis_url)
    needs, wrong = _needs(settings)
    client = connect(settings.redis_url, timeout=PATIENCE)
    brokers = brokers_of(settings, PATIENCE)
    try:
        health = read_health(client, brokers, needs)
    except StoreError as refusal:
        return [error("redis", f"{where}: {refusal}", refusal.advice)], utc_now()
    findings = [ok("redis", f"{where} answers in {health.latency * 1000:.1f} ms")]
    if brokers and health.broker_error is None:
        urls = " and ".join(map(mask_url, settings.broker_urls))
        findings.append(ok("broker", f"{urls} {'answer' if len(brokers) > 1 else 'answers'}"))
    now = from_ms(health.roster.now * 1000)
    return [*findings, *examine(health, needs), *wrong], now


def _needs(settings: Settings) -> tuple[dict[str, dict[str, list[str]]], list[Finding]]:
    """The queues that plugins name in the agent files."""
    needs: dict[str, dict[str, list[str]]] = {}
    wrong = []
    for reference in settings.agents:
        try:
            agent = load_agent(reference)
        except BoydError as mistake:
            wrong.append(error("agent file", str(mistake), f"see `boyd check {reference}`"))
        else:
            parts_by_queue = needs.setdefault(agent.id, {})
            parts: list[Observer | Action] = [*agent.host.observers.values()]
            for part in (*parts, *agent.host.actions.values()):
                if part.queue:
                    parts_by_queue.setdefault(part.queue, []).append(part.id)
    return needs, wrong
