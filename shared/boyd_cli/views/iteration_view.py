"""Iterations as text: in one line, part by part, and as a replay reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from boyd import models, naming
from boyd.models import responses
from boyd.models.responses import IterationSummary
from boyd.models.tape import Course, Difference, ReplayedIteration, ReplayReport
from boyd.sandbox.kernel import MEANS
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.output import label, prose, sentence, whole

#: The least width of a summary in the line of an iteration.
_LEAST = 24
PHASES = (
    *(whole("phase"), whole("began"), whole("took"), label("host", drop=2)),
    *(label("worker", drop=1), sentence("note", drop=3)),
)
#: Characters of a value that are shown.
_VALUE = 200


def iteration_line(result: models.LoopResult, width: int = output.LINE) -> str:
    """One iteration as one line; the summary is cut to fit *width*.

    Without room for the outcome, that it is ok and took so long is omitted, and before that the
    number of observations and the summary.
    """
    start = f"{output.clock(result.ended_at)}  {result.agent_id} #{result.iteration}"
    head = f"{start}  {'ok' if result.success else 'failed'}  {output.duration(result.duration)}"
    came_to = outcome(result)
    tail = f"→ {came_to}" if came_to else ""
    summary = output.one_line(result.situation.summary) if result.situation else ""
    for middle in (f"  {_observation_count(result)}", ""):
        room = width - len(head) - len(middle) - len(tail) - 3
        if room >= min(_LEAST, len(summary)):
            text = f"{output.cut(summary, room)} " if summary else ""
            return f"{head}{middle}  {text}{tail}".rstrip()
    if result.success and len(head) + 2 + len(tail) > width:
        head = start
    return output.cut(f"{head}  {tail}".rstrip(), width)


def paint_iteration(result: models.LoopResult) -> str:
    """The same as wide as the terminal, in colour."""
    colour = None if result.success else "red"
    if result.success and any(action.success for action in result.action_results):
        colour = "green"
    if result.success and any(action.waits_for for action in result.action_results):
        colour = "yellow"
    width = output.width() if output.is_terminal() else output.LINE
    return output.paint(iteration_line(result, width), colour)


def _observation_count(result: models.LoopResult) -> str:
    text = counted(len(result.observations), "observation")
    lost = len({problem.id for problem in result.observer_errors})
    left_out = [f"{counted(lost, 'observer')} failed"] if lost else []
    if result.not_due:
        left_out.append(f"{counted(len(result.not_due), 'observer')} not due")
    return f"{text} ({', '.join(left_out)})" if left_out else text


def outcome(result: models.LoopResult | IterationSummary) -> str:
    """The outcome of an iteration: its action, or why it failed."""
    return responses.outcome(result, _reason)


def action_outcome(result: models.ActionResult, title: str = "") -> str:
    """The outcome of an action; *title* replaces the action's name."""
    return responses.action_outcome(result, title, _reason)


def _reason(error: str) -> str:
    return output.brief(error, output.LINE // 2)


def action_duration(result: models.ActionResult) -> str:
    """The duration of an action; empty if it was refused before it began."""
    return "" if not result.success and result.duration < 1 else output.duration(result.duration)


def error_row(result: models.ActionResult) -> tuple[str, str]:
    """The full error of an action, if `action_outcome` has cut it."""
    text = output.one_line(responses.error_of(result) or "")
    return "error", "" if text in action_outcome(result) else text


def effect(verification: models.EffectVerification | None) -> str:
    """The effect of an execution, in one or two words."""
    if verification is None:
        return "not verified"
    return verification.verdict or "open"


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
        plugins = (
            f"{plugin.id} {plugin.version or plugin.digest or 'unknown'}"
            for plugin in build.plugins
        )
        yield "plugins", ", ".join(plugins)


def read_rows(reads: Iterable[models.PluginReads]) -> Iterator[tuple[str, str]]:
    """Everything that components and hooks read, equal reads on one line with their number."""
    lines, omitted = Counter[tuple[str, str]](), Counter[str]()
    for component in reads:
        lines.update((component.by, f"clock: {output.date(at)}") for at in component.clock)
        lines.update((component.by, _read_text(read)) for read in component.reads)
        omitted[component.by] += component.omitted
    for (by, text), times in lines.items():
        yield by, f"{text} ({times} times)" if times > 1 else text
    for by, count in omitted.items():
        if count:
            yield by, f"and {count} more, which are not kept"


def _read_text(read: models.Read) -> str:
    subject = f"{read.of} {read.key}".rstrip()
    return f"{subject}: {_value_text(read)}"


def _value_text(read: models.Read) -> str:
    if read.of == "http":
        return "used; what it answered is not kept"
    if read.note in ("absent", "not JSON"):
        return read.note
    if read.note == "too large":
        return f"too large to keep, digest {read.digest}"
    return output.cut(output.text_of(read.value), _VALUE)


def state_text(execution: models.ExecutionEntry | responses.Execution) -> str:
    """The state of an execution; of a procedure that runs, where it stands."""
    runs_on = execution.progress if execution.state == "running" else None
    return runs_on or execution.state


def trace_rows(result: models.LoopResult) -> Iterator[tuple[str, str]]:
    """The strategies with their verdicts, and what hooks did to the decision."""
    trace = result.trace or models.DecisionTrace()
    if not trace.strategies:
        yield "strategies", "none: the agent has no strategy"
    for verdict in trace.verdicts:
        yield verdict.verdict, f"{verdict.strategy}: {verdict.why}"
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


#: Findings of one kind, and reasons, that are shown; `-o json` has them all.
_SHOWN = 10
_KINDS: Sequence[Difference] = get_args(Difference)
#: A finding is shown once, with the first of these that it has.
_WORST_FIRST: Sequence[Difference] = (
    "newly automatic",
    "newly refused",
    "newly asked",
    "other approval",
    "other params",
    "acts less",
    "flipped",
)
#: Of these the reasons are shown with their numbers.
_WITH_REASONS: Sequence[Difference] = ("error", "cannot tell")
_FINDINGS = (
    *(whole("iteration"), label("then", least=20), label("now", least=20)),
    *(sentence("why", drop=1), label("ended", drop=2)),
)


def show_report(report: ReplayReport) -> None:
    """Print what a changed agent would have decided otherwise."""
    output.say(
        f"{report.agent_id}: {counted(report.iterations, 'iteration')} replayed,"
        f" {report.unchanged} as recorded, {report.changes} not"
        + (f"; {report.diverged} go on from state of their own" if report.diverged else "")
    )
    if report.actions:
        output.say()
        kinds = [kind for kind in _KINDS if report.count(kind)]
        output.print_table([label("action", least=20), *map(whole, kinds)], _rows(report, kinds))
    iterations_by_id = {iteration.iteration: iteration for iteration in report.findings}
    for kind in _WORST_FIRST:
        _show_kind(
            kind,
            [
                iterations_by_id.pop(key)
                for key in list(iterations_by_id)
                if kind in iterations_by_id[key].differences
            ],
        )
    for kind in _WITH_REASONS:
        _show_reasons(kind, [item for item in report.findings if kind in item.differences])
    lacking = [name for name in MEANS if name not in report.confined_by]
    if lacking:
        means = " and ".join(lacking)
        output.note(f"warning: no {means} here: Python alone kept plugins from what these refuse")


def _rows(report: ReplayReport, kinds: Sequence[Difference]) -> list[list[str]]:
    return [
        [action.action or "unknown", *(str(action.counts.get(kind, "")) for kind in kinds)]
        for action in report.actions
    ]


def _show_kind(kind: Difference, findings: Sequence[ReplayedIteration]) -> None:
    if not findings:
        return
    output.say()
    output.say(f"{kind}: {counted(len(findings), 'iteration')}")
    output.print_table(_FINDINGS, map(_row, findings[:_SHOWN]), indent=2)
    if len(findings) > _SHOWN:
        output.note(f"  and {len(findings) - _SHOWN} more; `-o json` has them all")


def _show_reasons(kind: Difference, findings: Iterable[ReplayedIteration]) -> None:
    reasons = Counter(iteration.why or "" for iteration in findings)
    if not reasons:
        return
    output.say()
    output.say(kind)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    rows = [[str(times), reason] for reason, times in ordered[:_SHOWN]]
    output.print_table([whole("iterations"), prose("why")], rows, indent=2)
    if len(ordered) > _SHOWN:
        output.note(f"  and {len(ordered) - _SHOWN} more reasons; `-o json` has them all")


def _row(replayed: ReplayedIteration) -> list[str]:
    reason = replayed.after.reason if replayed.after else ""
    name = replayed.iteration.partition(":")[2] or replayed.iteration
    before, after = course_text(replayed.before), course_text(replayed.after)
    return [name, before, after, reason, naming.short(replayed.ended)]


def course_text(course: Course | None) -> str:
    """A course in short: what becomes of which action."""
    if course is None:
        return "unknown"
    if course.fate == "none":
        return "no-op"
    about = f" {course.target}" if course.target else ""
    return f"{course.fate} {course.action}{about}"
