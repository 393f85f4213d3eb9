"""`boyd observe` and `boyd intake`: what an observer or a webhook would tell an agent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from boyd.agent import Agent, load_agent
from boyd.errors import ConfigError, PluginError, StoreError
from boyd.models import Observation
from boyd.phases import observe as phase
from boyd.phases.phase_context import PhaseContext
from boyd.plugin import Context, News, Observer, State
from boyd.settings.logs import setup_logging
from boyd.settings.process_settings import Settings
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.api_access import open_store
from boyd_cli.options import lines_option, output_option, settings_options
from boyd_cli.output import label, prose, sentence, whole

if TYPE_CHECKING:
    from boyd.settings.intake_settings import DeclaredIntake


#: Gives the state of a plugin by its id.
_States = Callable[[str], State]


@click.command()
@click.argument("agent")
@click.argument("observer")
@lines_option
@settings_options
def observe(settings: Settings, agent: str, observer: str, form: str) -> None:
    """Run one observer once, in this process.

    AGENT is an agent file or module:agent, OBSERVER an id such as host-metrics:measure. It uses the
    agent's state in Redis, or an empty one without Redis. `-o json` prints one line each.
    """
    setup_logging(settings.log_level, settings.log_format)
    loaded = load_agent(agent)
    chosen = _find(loaded, observer)
    states = _states(settings, loaded)
    here = settings.worker.host

    def context(plugin_id: str, iteration: int | None) -> Context:
        return Context(loaded.info, plugin_id, states(plugin_id), iteration, host=here)

    ctx = PhaseContext(loaded, "observe", context)
    plugin = loaded.host.plugins[chosen.plugin_id]
    try:
        plugin.init(ctx.context(plugin.id))
    except Exception as error:
        raise PluginError(plugin.id, f"init failed: {error}") from error
    results = _run(ctx, settings, chosen)
    observations = [o for result in results for o in phase.load(result.observations or "[]")]
    if form == "table":
        _show(observations)
    for observation in observations:
        output.print_item(form, observation)
    errors = [*(problem.error for problem in ctx.problems), *(result.error for result in results)]
    failed = [error for error in errors if error]
    for text in failed:
        output.note(f"{chosen.id} failed: {output.one_line(text)}")
    output.fail_if(failed)


def _find(agent: Agent, name: str) -> Observer:
    observers = agent.host.observers
    matching = [o for o in observers.values() if name in (o.id, o.name)]
    if len(matching) != 1:
        problem = "several observers are named" if matching else "no observer"
        names = ", ".join(o.id for o in matching) or ", ".join(observers) or "none"
        output.stop(output.NOT_FOUND, f"{problem} {name!r}; known: {names}")
    return matching[0]


def _states(settings: Settings, agent: Agent) -> _States:
    try:
        return open_store(settings).agent(agent.id).state
    except (ConfigError, StoreError):
        output.note("No Redis: the observer starts with an empty state, which is not saved.")
        state = _DictState()
        return lambda _plugin_id: state


def _run(ctx: PhaseContext, settings: Settings, observer: Observer) -> list[phase.ObserverResult]:
    worker = settings.worker
    plan = phase.plan(ctx, [observer], _Here(worker.host), "here", worker.bundle_size)
    tasks = [task for batch in plan.batches for task in batch.tasks]
    if not tasks:
        return []
    batch = phase.Batch(queue="here", tasks=sorted(tasks, key=lambda task: task.index))
    return phase.observe(ctx, batch, None, worker.max_bytes, worker.width)


class _Here:
    """A fleet for planning: this process, which serves every queue."""

    def __init__(self, host: str) -> None:
        self._host = host

    def serving(self, queue: str) -> int:
        return 1

    def hosts(self) -> list[str]:
        return [self._host]

    def host_queue(self, host: str) -> str:
        return "here"


class _DictState:
    """A `State` in memory; values go through JSON, as in Redis."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._lock = threading.RLock()

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self._values[key]) if key in self._values else default

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        return {key: self.get(key) for key in keys if key in self._values}

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        self._values[key] = json.dumps(value, allow_nan=False)

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        with self._lock:
            same = bool(self.get(key) == expected)
            if same:
                self.set(key, value)
            return same

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        with self._lock:
            value = change(self.get(key))
            self.set(key, value)
            return value

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


def _show(observations: Sequence[Observation]) -> None:
    if not observations:
        output.say("No observations.")
        return
    rows = [
        [o.severity or "unrated", o.type, o.source, json.dumps(o.data, ensure_ascii=False)]
        for o in observations
    ]
    output.print_table(["severity", "type", "source", prose("data")], rows)


_AGENT = click.option(
    "--agent", "agent", metavar="AGENT", help="Agent file or module:agent with `[[intakes]]`."
)


@click.group()
def intake() -> None:
    """List intakes, and see what a message becomes."""


@intake.command("list")
@_AGENT
@output_option
@settings_options
def show_list(settings: Settings, agent: str | None, form: str) -> None:
    """List the formats of this installation, and the intakes of an agent."""
    rows = list(_rows(_load_intakes(agent)))
    columns = (whole("name"), whole("from"), whole("auth"), sentence("title"))
    output.print_list(form, rows, columns, [list(row.values()) for row in rows], "no formats")


def _rows(own: Mapping[str, DeclaredIntake]) -> Iterator[dict[str, str]]:
    from boyd.intake import format_names
    from boyd.settings.intake_settings import shipped_intakes

    shipped = shipped_intakes()
    for name in sorted({*format_names(), *own}):
        use = own[name].use if name in own else name
        same = name in shipped and shipped[name].use == use
        preset = shipped.get(name if same else use)
        title = preset.title if preset else f"the format {use!r}"
        origin = "agent" if name in own else "boyd" if name in shipped else "package"
        auth = own[name].auth.method if name in own else "key"
        yield {"name": name, "from": origin, "auth": auth, "title": title}


@intake.command("try")
@click.argument("file", type=click.File("rb"))
@click.option("--format", "name", metavar="NAME", help="Format or intake; default: the folder.")
@_AGENT
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Header of it."
)
@output_option
@settings_options
def try_message(
    settings: Settings,
    file: IO[bytes],
    name: str | None,
    agent: str | None,
    headers: Sequence[str],
    form: str,
) -> None:
    """Show what a message in FILE becomes; - reads standard input. Nothing is sent.

    With an intake of an agent, the sender is checked if headers are given, as the API would; the
    secret is looked up in the folder of the setting `intake.secrets`.
    """
    from boyd.intake import BadIntake, IntakeRequest, UnknownFormat, parse, parse_declared

    most, headers_by_name = settings.intake.max_body, dict(_headers(headers))
    body = file.read(most + 1)
    if len(body) > most:
        raise click.BadParameter(f"it is longer than intake.max_body, {most} bytes")
    if not body:
        raise click.BadParameter(f"{file.name} is empty: save a message of the sender in it")
    chosen = name or Path(file.name).resolve().parent.name
    declared = _load_intakes(agent).get(chosen)
    kind = headers_by_name.get("content-type", "application/json")
    sent = IntakeRequest(kind, headers_by_name, body)
    try:
        if declared is not None and headers_by_name:
            _check(settings, declared, headers_by_name, body)
        observations = parse_declared(declared, sent) if declared else parse(chosen, sent)
    except BadIntake as error:
        output.stop(output.FAILED, f"{chosen}: {error}")
    except UnknownFormat as error:
        advice = "" if name else "the folder of the file names no format, so give --format: "
        output.stop(output.FAILED, f"{advice}{error}")
    if not output.print_data(form, observations):
        _show_intake(observations)


def _show_intake(observations: Sequence[Observation]) -> None:
    from boyd.intake import UNOBSERVED

    output.note(
        counted(len(observations), "observation") + (f": {UNOBSERVED}" if not observations else "")
    )
    for observation in observations:
        output.say()
        fields = {
            "source": observation.source,
            "type": observation.type,
            "severity": observation.severity or "none",
        }
        marks = {
            **fields,
            **(observation.metadata or {}),
            "timestamp": observation.timestamp.isoformat(),
        }
        rows = [[key, output.text_of(value)] for key, value in (marks | observation.data).items()]
        output.print_table((label("field"), prose("value")), rows)


def _check(
    settings: Settings, declared: DeclaredIntake, headers: Mapping[str, str], body: bytes
) -> None:
    """Check the sender as the API would, and say so; stop if it is refused."""
    from boyd.intake.sender_checks import SenderRefused, check_sender, read_secrets
    from boyd.settings.intake_settings import KeyAuth, QueryAuth, SnsAuth

    auth = declared.auth
    if isinstance(auth, KeyAuth | QueryAuth | SnsAuth):
        output.note(f"The sender is not checked: only the API can check {auth.method!r}.")
        return
    secrets = read_secrets(settings.intake.secrets, auth.secret)
    try:
        check_sender(auth, secrets, headers, lambda: body, time.time(), {})
    except SenderRefused as error:
        output.stop(output.FAILED, f"the sender would be refused: {error}")
    output.note(f"The sender would be admitted ({auth.method}).")


def _headers(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in lines:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{text!r} is not 'Name: value'", param_hint="--header")
        yield name.strip().lower(), value.strip()


def _load_intakes(agent: str | None) -> dict[str, DeclaredIntake]:
    return {intake.name: intake for intake in load_agent(agent).settings.intakes} if agent else {}
