"""`boyd history`: what past iterations came to, or everything of one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import click

from boyd.cli import output
from boyd.cli.options import choose_agent, open_store, settings_options
from boyd.models import (
    SEVERITIES,
    Decision,
    DecisionTrace,
    LoopResult,
    Phase,
    Problem,
    Refusal,
    Situation,
)
from boyd.settings import Settings
from boyd.store import AgentStore


@click.command()
@click.argument("agent", required=False)
@click.argument("iteration", required=False, type=click.IntRange(1))
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@output.output_option
@settings_options
def history(
    settings: Settings, agent: str | None, iteration: int | None, limit: int, form: str
) -> None:
    """Show past iterations, newest first.

    With ITERATION, show everything of that one. With only one agent its name can be left out:
    `boyd history 12`.
    """
    if iteration is None and agent is not None and agent.isdecimal():
        agent, iteration = _told_apart(settings, agent)
    _, store = choose_agent(open_store(settings), settings, agent)
    if iteration is None:
        _list(store, limit, form)
    else:
        _one(store, iteration, form)


def _told_apart(settings: Settings, word: str) -> tuple[str | None, int | None]:
    """A number alone is an iteration, unless an agent has that name."""
    is_agent = word in open_store(settings).fleet.agents()
    return (word, None) if is_agent else (None, int(word))


def _list(store: AgentStore, limit: int, form: str) -> None:
    results = store.iterations.history(limit + 1)[:limit]  # the newest may be in flight
    if form == "json":
        output.print_json(results)
    elif not results:
        output.say(f"{store.agent_id} has no past iterations.")
    else:
        header = ["#", "ended", "outcome", "took", "seen", "trigger", "situation", "action"]
        output.print_table(header, map(_row, results))


def _row(result: LoopResult) -> list[str]:
    return [
        str(result.iteration),
        output.date(result.ended_at),
        "ok" if result.success else "failed",
        output.duration(result.duration),
        str(len(result.observations)),
        result.trigger,
        output.cut(result.situation.summary, 60) if result.situation else "",
        output.outcome(result),
    ]


def _one(store: AgentStore, iteration: int, form: str) -> None:
    result = store.iterations.past(iteration)
    if result is None:
        running = store.iterations.status()
        if running.iteration == iteration and running.phase != "idle":
            output.stop(output.NOT_FOUND, f"iteration {iteration} is not over: {running.phase}")
        output.stop(output.NOT_FOUND, f"no iteration {iteration} of {store.agent_id} is kept")
    if form == "json":
        output.print_json(result)
    else:
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
    if not result.observations:
        output.say("  none")
        return
    counts: Counter[tuple[str, str]] = Counter(
        (o.source, o.severity or "") for o in result.observations
    )
    sources = dict.fromkeys(source for source, _ in counts)
    shown = [level for level in (*SEVERITIES, "") if any(counts[s, level] for s in sources)]
    rows = [[source, *(str(counts[source, s] or "-") for s in shown)] for source in sources]
    output.print_table(["source", *(s or "unrated" for s in shown)], rows, indent=2)


def _show_problems(title: str, problems: list[Problem]) -> None:
    if problems:
        _heading(title)
        rows = [[p.id, p.phase, output.duration(p.duration), p.error] for p in problems]
        output.print_table(["id", "phase", "took", "error"], rows, indent=2)


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
