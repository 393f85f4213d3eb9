"""Everything of one iteration, as `boyd history N` shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from boyd.cli import output
from boyd.cli.columns import folded, label
from boyd.cli.observation_view import observation_lines
from boyd.counting import counted
from boyd.models import DecisionTrace, LoopResult, Phase, Problem, Refusal, Situation


def show(result: LoopResult) -> None:
    """Print everything of one iteration."""
    ended = "ok" if result.success else f"failed: {result.error or 'no reason given'}"
    output.say(output.one_line(f"{result.agent_id} #{result.iteration}: {ended}"))
    output.print_pairs(
        [
            ("trigger", result.trigger),
            ("started", output.date(result.started_at)),
            ("ended", output.date(result.ended_at)),
            ("took", output.duration(result.duration)),
            ("phases", _phases(result)),
            ("repeated", counted(result.retries, "time") if result.retries else ""),
            ("runs", ", ".join(result.runs)),
        ]
    )
    _heading("Observations")
    for line in observation_lines(result, output.width() - 2):
        output.say(f"  {line}")
    _show_problems("Observers that failed", result.observer_errors)
    _show_problems("Problems", _others(result))
    if result.situation:
        _show_situation(result.situation)
    _show_decision(result)
    _show_results(result)


def _phases(result: LoopResult) -> str:
    order: tuple[str, ...] = get_args(Phase)
    phases = sorted(result.phases.items(), key=lambda phase: order.index(phase[0]))
    return ", ".join(f"{name} {output.duration(ms)}" for name, ms in phases)


def _others(result: LoopResult) -> list[Problem]:
    return [problem for problem in result.problems if problem not in result.observer_errors]


def _show_problems(title: str, problems: list[Problem]) -> None:
    if problems:
        _heading(title)
        rows = [
            [p.id, p.phase, p.host or "", output.duration(p.duration), p.error] for p in problems
        ]
        where = [label("host", drop=1)] if any(p.host for p in problems) else []
        if not where:
            rows = [[id, phase, took, error] for id, phase, _, took, error in rows]
        output.print_table(["id", "phase", *where, "took", folded("error")], rows, indent=2)


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


def _show_decision(result: LoopResult) -> None:
    decision = result.decision
    if decision is None:
        return
    _heading("Decision")
    alternatives = ", ".join(item.action for item in decision.alternatives or [])
    output.print_pairs(
        [
            ("action", decision.action),
            *((f"  {name}", output.text_of(value)) for name, value in decision.params.items()),
            ("rationale", decision.rationale),
            ("confidence", f"{decision.confidence:.2f}"),
            ("risk", decision.risk),
            ("approval", "required" if decision.requires_approval else ""),
            ("impact", decision.estimated_impact or ""),
            ("alternatives", alternatives),
            *_traced(result),
        ]
    )


def _traced(result: LoopResult) -> Iterator[tuple[str, str]]:
    trace = result.trace or DecisionTrace()
    yield "strategies", ", ".join(trace.strategies) or "none: the agent has no strategy"
    yield "applicable", ", ".join(trace.applicable) or "none"
    if trace.chosen is None:
        yield from _no_say(result, trace)
    yield "chosen", trace.chosen or "none"
    for change in trace.changes:
        yield "changed", f"{', '.join(change.fields)} by {change.plugin}"
    if trace.vetoed:
        yield "vetoed", _refused(trace.vetoed)
    if trace.invalid:
        yield "not valid", _refused(trace.invalid)


def _no_say(result: LoopResult, trace: DecisionTrace) -> Iterator[tuple[str, str]]:
    """Why no strategy chose: each was asked whether it applies, and did not."""
    failed = {p.id: p.error for p in result.problems if p.phase == "decide"}
    for name in trace.strategies:
        if name in failed:
            yield "not applicable", f"{name}: its predicate failed: {failed[name]}"
        else:
            yield "not applicable", f"{name}: its predicate is false in this situation"


def _refused(refusal: Refusal) -> str:
    return f"{refusal.action or 'the action'} by {refusal.by}: {refusal.reason}"


def _show_results(result: LoopResult) -> None:
    if result.action_results:
        _heading("Results")
        for item in result.action_results:
            output.print_pairs(
                [
                    ("action", output.action_outcome(item)),
                    ("took", output.took(item)),
                    ("host", item.host or ""),
                    ("worker", item.worker or ""),
                    ("output", output.text_of(item.output)),
                    ("effects", ", ".join(item.side_effects or [])),
                    *(
                        (name, output.text_of(value))
                        for name, value in (item.metrics or {}).items()
                    ),
                ]
            )


def _heading(text: str) -> None:
    output.say()
    output.say(text)
