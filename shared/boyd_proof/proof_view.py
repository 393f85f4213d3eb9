"""Prints a proof: the agents side by side, what they missed, and the values of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from boyd_cli import output
from boyd_cli.output import label, prose, whole
from boyd_proof import proof_words
from boyd_proof.proof_report import (
    AgentProof,
    ProofReport,
    ScoredLabel,
    Sweep,
    SweepPoint,
)

#: Labels, and reasons, that are shown.
_SHOWN = 15


def show_proof(report: ProofReport) -> None:
    """Print a report."""
    output.say(proof_words.headline(report, _time))
    output.say(proof_words.label_line(report))
    output.say()
    names = [agent.name for agent in report.agents]
    rows = proof_words.score_rows(report)
    output.print_table([label("", least=16), *map(whole, names)], rows)
    _show_actions(report.agents)
    _show_labels(report, names)
    _show_reasons(report.agents)
    if report.sweep:
        _show_sweep(report.sweep)


def _show_actions(agents: Sequence[AgentProof]) -> None:
    rows = sorted(proof_words.action_rows(agents), key=lambda row: row[0])
    if not rows:
        return
    output.say()
    output.say("actions, by iterations; outcomes of those that were executed then")
    columns = [label("action"), whole("agent"), whole("alone"), whole("asked"), whole("same")]
    output.print_table([*columns, prose("outcomes")], rows, indent=2)


def _show_labels(report: ProofReport, names: Sequence[str]) -> None:
    """Print the labels that not every agent detected."""
    missed = [scored for scored in report.labels if _is_missed(scored)]
    if not missed:
        return
    output.say()
    output.say("labels that an agent did not detect, or that do not count")
    columns = [whole("start"), label("target"), label("type"), *map(whole, names)]
    rows = [_label_row(scored, names) for scored in missed[:_SHOWN]]
    output.print_table(columns, rows, indent=2)
    if len(missed) > _SHOWN:
        output.note(f"  and {len(missed) - _SHOWN} more; `-o json` has them all")


def _is_missed(scored: ScoredLabel) -> bool:
    return scored.state != "counted" or any(
        detection.detection != "detected" for detection in scored.agents.values()
    )


def _label_row(scored: ScoredLabel, names: Sequence[str]) -> list[str]:
    where = {"outside": "outside", "gap": "in a gap", "counted": ""}[scored.state]
    return [
        _time(scored.label.start),
        scored.label.target or "any",
        scored.label.type or "any",
        *(where or proof_words.detection_text(scored.agents.get(name)) for name in names),
    ]


def _show_reasons(agents: Sequence[AgentProof]) -> None:
    rows = [
        [str(times), agent.name, reason]
        for agent in agents
        for reason, times in agent.reasons.items()
    ]
    if not rows:
        return
    output.say()
    output.say("cannot tell")
    columns = [whole("iterations"), whole("agent"), prose("why")]
    output.print_table(columns, rows[:_SHOWN], indent=2)
    if len(rows) > _SHOWN:
        output.note(f"  and {len(rows) - _SHOWN} more reasons; `-o json` has them all")


def _show_sweep(sweep: Sweep) -> None:
    output.say()
    output.say(f"{sweep.option}, scored on all weeks")
    columns = [
        *(whole("value"), whole("precision"), whole("recall"), whole("F1")),
        *(whole("median delay", drop=2), whole("false a week", drop=1)),
        *(whole("pages a week", drop=3), whole("")),
    ]
    output.print_table(columns, [_sweep_row(point, sweep) for point in sweep.points], indent=2)
    output.say()
    for line in proof_words.advice(sweep, _time):
        output.say(line)


def _sweep_row(point: SweepPoint, sweep: Sweep) -> list[str]:
    scores = point.whole
    return [
        f"{point.value:g}",
        proof_words.precision(scores),
        proof_words.recall(scores),
        proof_words.f1(scores),
        proof_words.delay(scores.delay_median),
        proof_words.false_alarms(scores),
        proof_words.pages(scores),
        proof_words.remark(point, sweep),
    ]


def _time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
