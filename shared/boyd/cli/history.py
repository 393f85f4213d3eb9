"""`boyd history`: what past iterations came to, or everything of one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import get_args

import click

from boyd.cli import output
from boyd.cli.columns import folded, label, sentence, whole
from boyd.cli.connection import Api
from boyd.cli.options import api_options
from boyd.errors import ApiProblem
from boyd.models import (
    NO_OP,
    SEVERITIES,
    Decision,
    DecisionTrace,
    LoopResult,
    LoopStatus,
    Phase,
    Problem,
    Refusal,
    Situation,
)
from boyd.models.answers import IterationList, IterationSummary

#: The columns of the list.
COLUMNS = (
    *(whole("#"), whole("ended"), whole("outcome")),
    *(whole("took", drop=2), whole("seen", drop=4), label("trigger", drop=3)),
    *(sentence("situation", drop=1), sentence("action")),
)
#: The most that one request may ask for.
_MOST = 500


@click.command()
@click.argument("iteration", required=False, type=click.IntRange(1))
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True)
@output.output_option
@api_options
def history(api: Api, iteration: int | None, limit: int, form: str) -> None:
    """Show past iterations, newest first.

    With ITERATION, show everything of that one.
    """
    if iteration is None:
        _list(api, limit, form)
    else:
        _one(api, iteration, form)


def _list(api: Api, limit: int, form: str) -> None:
    # The newest may be in flight, and is left out then.
    found = api.agent.get("/loop/history", IterationList, limit=min(limit + 1, _MOST))
    shown = found.patched({"iterations": found.iterations[:limit], "next_cursor": None})
    if output.print_data(form, shown):
        return
    if not shown.iterations:
        output.say("There are no past iterations.")
        return
    output.print_table(COLUMNS, map(_row, shown.iterations))


def _row(result: IterationSummary) -> list[str]:
    return [
        str(result.iteration),
        output.short_date(result.ended_at),
        "ok" if result.success else "failed",
        output.duration(result.duration),
        str(result.observations),
        result.trigger,
        result.situation or "",
        _action(result),
    ]


def _action(result: IterationSummary) -> str:
    """What it came to; of an iteration that an earlier release has kept, what was decided."""
    if not result.success:
        return result.error or "no reason given"
    done = "; ".join(map(output.action_outcome, result.results))
    return done or result.decision or NO_OP


def _one(api: Api, iteration: int, form: str) -> None:
    try:
        result = api.agent.get(f"/loop/history/{iteration}", LoopResult)
    except ApiProblem as problem:
        if problem.name != "not-found":
            raise
        running = api.agent.get("/loop/status", LoopStatus)
        if running.iteration == iteration and running.phase != "idle":
            output.stop(output.NOT_FOUND, f"iteration {iteration} is not over: {running.phase}")
        output.stop(output.NOT_FOUND, f"no iteration {iteration} of {running.agent_id} is kept")
    if not output.print_data(form, result):
        _show(result)


def _show(result: LoopResult) -> None:
    ended = "ok" if result.success else f"failed: {result.error or 'no reason given'}"
    output.say(output.one_line(f"{result.agent_id} #{result.iteration}: {ended}"))
    output.print_pairs(
        [
            ("trigger", result.trigger),
            ("started", output.date(result.started_at)),
            ("ended", output.date(result.ended_at)),
            ("took", output.duration(result.duration)),
            ("phases", _phases(result)),
            ("repeated", output.count(result.retries, "time") if result.retries else ""),
            ("runs", ", ".join(result.runs)),
        ]
    )
    _show_observations(result)
    _show_problems("Observers that failed", result.observer_errors)
    _show_problems("Problems", _others(result))
    if result.situation:
        _show_situation(result.situation)
    if result.decision:
        _show_decision(result.decision, result.trace or DecisionTrace())
    _show_results(result)


def _phases(result: LoopResult) -> str:
    order: tuple[str, ...] = get_args(Phase)
    phases = sorted(result.phases.items(), key=lambda phase: order.index(phase[0]))
    return ", ".join(f"{name} {output.duration(ms)}" for name, ms in phases)


def _others(result: LoopResult) -> list[Problem]:
    return [problem for problem in result.problems if problem not in result.observer_errors]


def _show_observations(result: LoopResult) -> None:
    _heading("Observations")
    if result.not_due:
        waits = (
            f"{one.id} (in {output.seconds(_whole_seconds(one.due_at - result.started_at))})"
            for one in result.not_due
        )
        output.say(f"  not due: {', '.join(waits)}")
    elif not result.observations:
        output.say("  none")
    if not result.observations:
        return
    counts: Counter[tuple[str, str]] = Counter(
        (o.source, o.severity or "") for o in result.observations
    )
    sources = dict.fromkeys(source for source, _ in counts)
    shown = [level for level in (*SEVERITIES, "") if any(counts[s, level] for s in sources)]
    rows = [[source, *(str(counts[source, s] or "-") for s in shown)] for source in sources]
    output.print_table(["source", *(s or "unrated" for s in shown)], rows, indent=2)


def _whole_seconds(time: timedelta) -> int:
    return max(1, round(time.total_seconds()))


def _show_problems(title: str, problems: list[Problem]) -> None:
    if problems:
        _heading(title)
        rows = [[p.id, p.phase, output.duration(p.duration), p.error] for p in problems]
        output.print_table(["id", "phase", "took", folded("error")], rows, indent=2)


def _show_situation(situation: Situation) -> None:
    _heading("Situation")
    output.print_pairs(
        [
            ("summary", situation.summary),
            ("priority", situation.priority),
            ("confidence", f"{situation.confidence:.2f}"),
            *(
                (f"from {item.source}", "; ".join(item.findings) or "nothing")
                for item in situation.assessments
            ),
            *(("anomaly", f"{item.severity}: {item.description}") for item in situation.anomalies),
            *(("correlation", item.description) for item in situation.correlations),
        ]
    )


def _show_decision(decision: Decision, trace: DecisionTrace) -> None:
    _heading("Decision")
    alternatives = ", ".join(item.action for item in decision.alternatives or [])
    output.print_pairs(
        [
            ("action", decision.action),
            *((f"  {name}", str(value)) for name, value in decision.params.items()),
            ("rationale", decision.rationale),
            ("confidence", f"{decision.confidence:.2f}"),
            ("risk", decision.risk),
            ("approval", "required" if decision.requires_approval else ""),
            ("impact", decision.estimated_impact or ""),
            ("alternatives", alternatives),
            *_traced(trace),
        ]
    )


def _traced(trace: DecisionTrace) -> Iterator[tuple[str, str]]:
    yield "strategies", ", ".join(trace.strategies)
    yield "applicable", ", ".join(trace.applicable) or "none"
    yield "chosen", trace.chosen or "none"
    for change in trace.changes:
        yield "changed", f"{', '.join(change.fields)} by {change.plugin}"
    if trace.vetoed:
        yield "vetoed", _refused(trace.vetoed)
    if trace.invalid:
        yield "not valid", _refused(trace.invalid)


def _refused(refusal: Refusal) -> str:
    return f"{refusal.action or 'the action'} by {refusal.by}: {refusal.reason}"


def _show_results(result: LoopResult) -> None:
    if result.action_results:
        _heading("Results")
        for item in result.action_results:
            output.print_pairs(
                [
                    ("action", output.action_outcome(item)),
                    ("took", output.duration(item.duration)),
                    ("output", "" if item.output is None else str(item.output)),
                    ("effects", ", ".join(item.side_effects or [])),
                    *((name, str(value)) for name, value in (item.metrics or {}).items()),
                ]
            )


def _heading(text: str) -> None:
    output.say()
    output.say(text)
