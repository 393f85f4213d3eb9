"""Shows the tape of an iteration: who ran what, and why it decided as it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from boyd import models
from boyd_cli import output
from boyd_cli.views.tables import label, sentence, whole

PHASES = (
    *(whole("phase"), whole("began"), whole("took"), label("host", drop=2)),
    *(label("worker", drop=1), sentence("note", drop=3)),
)
#: Characters of a value that are shown.
_VALUE = 200


def phase_row(run: models.PhaseRun) -> list[str]:
    """A row of the table of phases."""
    notes = [
        f"batch {run.batch}" if run.batch else "",
        f"attempt {run.attempt}" if run.attempt > 1 else "",
        "lost" if run.lost else "",
        f"build {run.build}" if run.build else "",
    ]
    return [
        run.phase,
        f"+{output.duration(run.offset)}",
        output.duration(run.duration),
        run.host or "",
        run.worker or "",
        ", ".join(filter(None, notes)),
    ]


def build_rows(builds: Iterable[models.AgentBuild]) -> Iterator[tuple[str, str]]:
    """The builds of the agent that took part, with their plugins."""
    for build in builds:
        yield "agent", f"build {build.id}, settings {build.settings}, Boyd {build.boyd}"
        plugins = (f"{one.id} {one.version or one.digest or 'unknown'}" for one in build.plugins)
        yield "plugins", ", ".join(plugins)


def read_rows(reads: Iterable[models.PluginReads]) -> Iterator[tuple[str, str]]:
    """Everything that components and hooks read, equal reads on one line with their number."""
    lines, omitted = Counter[tuple[str, str]](), Counter[str]()
    for one in reads:
        lines.update((one.by, f"clock: {output.date(at)}") for at in one.clock)
        lines.update((one.by, _read_text(read)) for read in one.reads)
        omitted[one.by] += one.omitted
    for (by, text), times in lines.items():
        yield by, f"{text} ({times} times)" if times > 1 else text
    for by, count in omitted.items():
        if count:
            yield by, f"and {count} more, which are not kept"


def _read_text(read: models.Read) -> str:
    what = f"{read.of} {read.key}".rstrip()
    return f"{what}: {_value_text(read)}"


def _value_text(read: models.Read) -> str:
    if read.of == "http":
        return "used; what it answered is not kept"
    if read.note in ("absent", "not JSON"):
        return read.note
    if read.note == "too large":
        return f"too large to keep, digest {read.digest}"
    return output.cut(output.text_of(read.value), _VALUE)


def trace_rows(result: models.LoopResult) -> Iterator[tuple[str, str]]:
    """The strategies with their verdicts, and what hooks did to the decision."""
    trace = result.trace or models.DecisionTrace()
    if not trace.strategies:
        yield "strategies", "none: the agent has no strategy"
    for one in trace.verdicts:
        yield one.verdict, f"{one.strategy}: {one.why}"
    for change in trace.changes:
        yield "changed", change_text(change)
    if trace.proposed:
        params = output.text_of(trace.proposed.params) if trace.proposed.params else ""
        yield "stopped", f"{trace.proposed.action} {params}".rstrip()
    if trace.vetoed:
        yield "vetoed", _refusal_text(trace.vetoed)
    if trace.invalid:
        yield "invalid", _refusal_text(trace.invalid)


def record_rows(result: models.LoopResult) -> Iterator[tuple[str, str]]:
    """The track record of the decided action, as it was then."""
    if result.gate and result.gate.record and result.decision:
        yield "track record", result.gate.record.about(result.decision.confidence)


def gate_rows(gate: models.Gate | None) -> Iterator[tuple[str, str]]:
    """The gate's verdict, and how much of the budget was used."""
    if gate:
        yield "gate", f"{gate.outcome}: {gate.reason}"
        yield "reversibility", gate.reversibility or ""
        if gate.budget and gate.used is not None:
            window = output.seconds(gate.budget.window)
            yield "budget", f"{gate.used} of {gate.budget.limit} were used within {window}"


def change_text(change: models.Change) -> str:
    """The changed fields with their values, as far as these are kept."""
    parts = [
        f"{name} from {output.text_of(change.before.get(name))} to {output.text_of(value)}"
        for name, value in change.after.items()
    ]
    return f"{', '.join(parts or change.fields)} by {change.plugin}"


def _refusal_text(refusal: models.Refusal) -> str:
    return f"{refusal.action or 'the action'} by {refusal.by}: {refusal.reason}"
