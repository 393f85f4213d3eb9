"""`boyd history`: past iterations, as a list or in full."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, get_args

import click

from boyd import models, naming
from boyd.errors import ApiProblem
from boyd.export.tracing.spans import trace_link
from boyd.models.responses import Execution, IterationList, IterationSummary
from boyd.text.formatting import counted
from boyd_cli import completion, output
from boyd_cli.api_access import Api
from boyd_cli.options import Whole, check_shape, data_options, not_empty, period_options
from boyd_cli.output import label, prose, sentence, whole
from boyd_cli.views import iteration_view

#: Observations per observer that are shown with data, the worst first.
_SHOWN = 5
#: Values shown of an observation's data, and characters of each.
_VALUES = 8
_VALUE = 60
#: Hosts named in one line.
_HOSTS = 5
_WORST_FIRST = tuple(reversed(models.SEVERITIES))


def observation_lines(result: models.LoopResult, width: int) -> Iterator[str]:
    """Observations by observer, then those from runs, intake and hooks."""
    rest = list(result.observations)
    for observer, group in groupby(result.observer_runs, key=lambda run: run.id):
        runs = list(group)
        count = sum(run.observations for run in runs)
        observations, rest = rest[:count], rest[count:]
        yield from _block(_title(observer, runs, observations), observations, width)
    if rest:
        by = "from runs, intake and hooks" if result.observer_runs else "all"
        yield from _block(f"{by}: {_count_by_severity(rest)}", rest, width)
    if result.not_due:
        texts = [_due_text(observer, result.started_at) for observer in result.not_due]
        yield f"not due: {', '.join(texts)}"
    elif not result.observer_runs and not result.observations:
        yield "none"


def _due_text(observer: models.NotDue, started_at: datetime) -> str:
    seconds = max(1, round((observer.due_at - started_at).total_seconds()))
    return f"{observer.id} (in {output.seconds(seconds)})"


def _block(title: str, observations: Sequence[models.Observation], width: int) -> Iterator[str]:
    yield output.cut(output.one_line(title), width)
    for line in _lines(observations):
        yield f"  {output.cut(output.one_line(line), width - 2)}"


def _title(
    name: str, runs: Sequence[models.ObserverRun], observations: Sequence[models.Observation]
) -> str:
    times = f"{len(runs)} runs " if len(runs) > 1 else ""
    names = sorted({run.host for run in runs})
    more = f" and {len(names) - _HOSTS} more" if len(names) > _HOSTS else ""
    least, most = (output.duration(f(run.duration for run in runs)) for f in (min, max))
    took = most if least == most else f"{least} to {most}"
    hosts = ", ".join(names[:_HOSTS])
    return f"{name}: {_count_by_severity(observations)}; {times}on {hosts}{more}, {took}"


def _count_by_severity(observations: Sequence[models.Observation]) -> str:
    counts: Counter[str] = Counter(
        observation.severity or "unrated" for observation in observations
    )
    parts = [f"{counts[level]} {level}" for level in (*_WORST_FIRST, "unrated") if counts[level]]
    text = counted(len(observations), "observation")
    return f"{text} ({', '.join(parts)})" if parts else text


def _lines(observations: Sequence[models.Observation]) -> Iterator[str]:
    """The worst observations with their data, and the others in one line."""
    ordered = sorted(
        observations, key=lambda observation: [*_WORST_FIRST, None].index(observation.severity)
    )
    # If all are alike, a summary says more than a few examples.
    alike = (
        len(observations) > _SHOWN
        and len({observation.severity for observation in observations}) == 1
    )
    first = [] if alike else ordered[:_SHOWN]
    for observation in first:
        data, severity = _data(observation.data), observation.severity or "unrated"
        yield f"{severity} {observation.source}{f': {data}' if data else ''}"
    others = ordered[len(first) :]
    if others:
        ranges = ", ".join(_ranges(others))
        count = f"{len(others)} more" if first else f"all {len(others)}"
        names = list(dict.fromkeys(observation.source for observation in others))
        sources = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        yield f"{count}: {sources}{f'; {ranges}' if ranges else ''}"


def _ranges(observations: Sequence[models.Observation]) -> Iterator[str]:
    """The ranges of the numbers that all of them have."""
    for name in list(observations[0].data)[:_VALUES]:
        values = [observation.data.get(name) for observation in observations]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == len(values):
            least, most = min(numbers), max(numbers)
            yield f"{name} {least:g}" if least == most else f"{name} {least:g} to {most:g}"


def _data(data: Mapping[str, Any]) -> str:
    parts = []
    for name, value in list(data.items())[:_VALUES]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name}={output.cut(output.one_line(text), _VALUE)}")
    if len(data) > _VALUES:
        parts.append(f"and {len(data) - _VALUES} more")
    return " ".join(parts)


def show(result: models.LoopResult, trace: str | None, execution: Execution | None) -> None:
    """Print everything about an iteration.

    Args:
        result: the iteration.
        trace: the address of its trace, if it has one.
        execution: what became of its action, if that is known.
    """
    outcome = "ok" if result.success else f"failed: {result.error or 'no reason given'}"
    order: tuple[str, ...] = get_args(models.Phase)
    phases = sorted(result.phases.items(), key=lambda phase: order.index(phase[0]))
    output.say(output.one_line(f"{result.agent_id} #{result.iteration}: {outcome}"))
    output.print_pairs(
        ("trigger", result.trigger),
        ("started", output.date(result.started_at)),
        ("ended", output.date(result.ended_at)),
        ("took", output.duration(result.duration)),
        ("phases", ", ".join(f"{name} {output.duration(ms)}" for name, ms in phases)),
        ("repeated", counted(result.retries, "time") if result.retries else ""),
        ("runs", ", ".join(result.runs)),
        ("trace", trace or ""),
        *iteration_view.build_rows(result.builds),
    )
    if result.phase_runs:
        _heading("Phases")
        output.print_table(
            iteration_view.PHASES, map(iteration_view.phase_row, result.phase_runs), indent=2
        )
    _heading("Observations")
    for line in observation_lines(result, output.width() - 2):
        output.say(f"  {line}")
    _show_problems("Failed observers", result.observer_errors)
    _show_problems("Problems", [p for p in result.problems if p not in result.observer_errors])
    if result.reads:
        _heading("Read in orient and decide")
        output.print_pairs(*iteration_view.read_rows(result.reads))
    if result.situation:
        _show_situation(result.situation, result.situation_changes)
    if result.decision is not None:
        _show_decision(result, result.decision)
    if result.action_results:
        _heading("Results")
        for item in result.action_results:
            output.print_pairs(*_action_rows(item), *_outcome_rows(item, execution))


def _show_problems(title: str, problems: list[models.Problem]) -> None:
    if problems:
        _heading(title)
        where = [label("host", drop=1)] if any(p.host for p in problems) else []
        rows = [
            [p.id, p.phase, *[p.host or "" for _ in where], output.duration(p.duration), p.error]
            for p in problems
        ]
        output.print_table(["id", "phase", *where, "took", prose("error")], rows, indent=2)


def _show_situation(situation: models.Situation, changes: Sequence[models.Change]) -> None:
    _heading("Situation")
    stated = [item.confidence for item in situation.assessments if item.confidence is not None]
    has_confidence = bool(stated or situation.confidence)
    output.print_pairs(
        ("summary", situation.summary),
        ("priority", situation.priority),
        ("confidence", f"{situation.confidence:.2f}" if has_confidence else ""),
        *(
            (f"from {item.source}", "; ".join(item.findings) or "nothing")
            for item in situation.assessments
        ),
        *(("anomaly", f"{item.severity}: {item.description}") for item in situation.anomalies),
        *(("correlation", item.description) for item in situation.correlations),
        *(("changed", iteration_view.change_text(change)) for change in changes),
    )


def _show_decision(result: models.LoopResult, decision: models.Decision) -> None:
    _heading("Decision")
    alternatives = ", ".join(item.action for item in decision.alternatives or [])
    output.print_pairs(
        ("action", decision.action),
        *((f"  {name}", output.text_of(value)) for name, value in decision.params.items()),
        ("rationale", decision.rationale),
        ("confidence", f"{decision.confidence:.2f}"),
        *iteration_view.record_rows(result),
        # A strategy that says nothing of the risk leaves it low, whatever that of the action is.
        ("risk", "" if decision.risk == "low" else decision.risk),
        ("approval", "required" if decision.requires_approval else ""),
        ("impact", decision.estimated_impact or ""),
        ("alternatives", alternatives),
        *iteration_view.trace_rows(result),
        *iteration_view.gate_rows(result.gate),
    )


def _action_rows(item: models.ActionResult) -> Iterator[tuple[str, str]]:
    yield "action", iteration_view.action_outcome(item)
    yield "took", iteration_view.action_duration(item)
    yield "host", item.host or ""
    yield "worker", item.worker or ""
    yield "output", output.text_of(item.output)
    yield "effects", ", ".join(item.side_effects or [])
    yield "approvalId", item.waits_for or ""
    yield from ((name, output.text_of(value)) for name, value in (item.metrics or {}).items())


def _outcome_rows(
    item: models.ActionResult, execution: Execution | None
) -> Iterator[tuple[str, str]]:
    if execution is None:
        return
    if item.waits_for or item.procedure:
        yield "procedure" if item.procedure else "executed", iteration_view.state_text(execution)
    if execution.verification is not None:
        evidence = execution.verification.evidence
        verdict = iteration_view.effect(execution.verification)
        yield "effect", f"{verdict}: {evidence}" if evidence else verdict


def _heading(text: str) -> None:
    output.say()
    output.say(text)


COLUMNS = (
    *(whole("#"), whole("ended"), whole("outcome")),
    *(whole("took", drop=2), whole("seen", drop=4), label("trigger", drop=3)),
    *(sentence("situation", drop=1), label("action", least=44)),
)
#: The largest page, and the largest number to read.
_PAGE = 500
_TOGETHER = 100_000


#: Numbers, and what tells apart iterations of the same number.
check_iteration = check_shape(
    re.compile(r"[1-9][0-9]{0,15}(\.[0-9a-f]{1,16})?"),
    "the number of an iteration, such as 12",
)
_check_cursor = check_shape(
    re.compile(r"[1-9][0-9]{0,15}|[0-9]{1,16}-[0-9]{1,15}"),
    "the number of an iteration",
)


@click.command()
@click.argument(
    "iteration",
    required=False,
    callback=check_iteration,
    shell_complete=completion.completer(completion.iterations),
)
@click.option("--limit", type=Whole(1, _TOGETHER), default=20, show_default=True)
@click.option(
    "--before", callback=_check_cursor, metavar="N", help="Only iterations before this one."
)
@click.option("--host", callback=not_empty, help="A host where an observer or action ran.")
@click.option("--worker", callback=not_empty, help="A process that ran an observer or action.")
@click.option(
    "--action",
    callback=not_empty,
    shell_complete=completion.completer(completion.actions),
    help="The action decided or executed; with --host or --worker, the one that ran there.",
)
@click.option("--target", callback=not_empty, help="What an anomaly or alert is about.")
@click.option("--source", callback=not_empty, help="An observer, or a source of observations.")
@click.option("--trigger", callback=not_empty, help="What began it, such as beat.")
@click.option("--status", type=click.Choice(["ok", "failed"]), help="How it ended.")
@click.option(
    "-q", "--search", "q", callback=not_empty, help="Words in situation, decision, error."
)
@data_options
@period_options
def history(
    api: Api,
    iteration: str | None,
    limit: int,
    before: str | None,
    form: str,
    **filters: Any,
) -> None:
    """Show past iterations, newest first, from Redis and the archive.

    With ITERATION, show everything about it.
    """
    if iteration is not None:
        _show_one(api, iteration, form)
        return
    query = {name: value for name, value in filters.items() if value is not None}
    listing = _read(api, limit, before, query)
    empty = "No past iterations match." if query else "No past iterations."
    output.print_list(form, listing.iterations, COLUMNS, map(_row, listing.iterations), empty)
    if listing.next_cursor:
        output.note(f"For older iterations: --before {listing.next_cursor}")
    if listing.missing:
        output.note(f"Older iterations are missing: {listing.missing}")


def _read(api: Api, limit: int, before: str | None, filters: Mapping[str, Any]) -> IterationList:
    """Read past iterations page by page; a page may be shorter than requested."""
    summaries: list[IterationSummary] = []
    cursor = before
    while True:
        count = min(limit - len(summaries), _PAGE)
        page = api.agent.get("/loop/history", IterationList, limit=count, cursor=cursor, **filters)
        summaries += page.iterations
        cursor = page.next_cursor
        if cursor is None or len(summaries) >= limit:
            return page.patched({"iterations": summaries})


def _row(result: IterationSummary) -> list[str]:
    return [
        str(result.iteration),
        output.short_date(result.ended_at),
        "ok" if result.success else "failed",
        output.duration(result.duration),
        str(result.observations),
        result.trigger,
        result.situation or "",
        iteration_view.outcome(result),
    ]


def _show_one(api: Api, iteration: str, form: str) -> None:
    try:
        result = api.agent.get(f"/loop/history/{iteration}", models.LoopResult)
    except ApiProblem as problem:
        if problem.name != "not-found":
            raise
        running = api.agent.get("/loop/status", models.LoopStatus)
        if str(running.iteration) == iteration and running.phase != "idle":
            output.stop(
                output.NOT_FOUND, f"iteration {iteration} is still running: {running.phase}"
            )
        output.stop(output.NOT_FOUND, f"iteration {iteration} of {running.agent_id} not found")
    if not output.print_data(form, result):
        show(result, trace_link(api.traces, result), _execution_of(api, result))


def _execution_of(api: Api, result: models.LoopResult) -> Execution | None:
    """The execution of an iteration's action, also after its approval, while the ledger has it."""
    if not result.action_results:
        return None
    approval = result.action_results[0].waits_for
    name = (
        naming.approval(approval)
        if approval
        else naming.iteration_execution(result.id.partition(":")[2])
    )
    try:
        return api.agent.get(f"/executions/{name}", Execution)
    except ApiProblem as problem:
        if problem.name != "not-found":
            raise
        return None
