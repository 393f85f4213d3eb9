"""The figures of a proof in words, for terminal and console."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from boyd.text.formatting import counted, seconds
from boyd_proof.proof_report import (
    AgentProof,
    DetectionScores,
    LabelDetection,
    ProofReport,
    Sweep,
    SweepPoint,
)
from boyd_proof.timeline import WEEK

#: Makes a moment readable.
Clock = Callable[[datetime], str]


def headline(report: ProofReport, clock: Clock) -> str:
    """The recorded time in one line."""
    gaps = (
        f", {counted(report.gap_count, 'gap')} of {seconds(int(report.gap_time))} together"
        if report.gap_count
        else ", no gaps"
    )
    lasted = f"{report.weeks:.1f} weeks" if report.weeks >= 1 else seconds(report.weeks * WEEK // 1)
    return (
        f"{report.agent_id}: {counted(report.iterations, 'iteration')} from {clock(report.since)}"
        f" to {clock(report.until)}, {lasted}{gaps}"
    )


def label_line(report: ProofReport) -> str:
    """The labels that count, and those that do not, in one line."""
    states = [scored.state for scored in report.labels]
    total = sum(scored.merged for scored in report.labels)
    line = f"{counted(total, 'label')}"
    if total > len(report.labels):
        line += f", {len(report.labels)} after those that overlap are merged"
    notes = [
        (states.count("outside"), "outside the recorded time"),
        (states.count("gap"), "in gaps of the record"),
    ]
    left_out = [f"{number} {where}" for number, where in notes if number]
    return f"{line}; not counted: {', '.join(left_out)}" if left_out else line


def share(part: int, total: int, nothing: str) -> str:
    """A share with its counts; *nothing* if it would divide by zero."""
    return f"{part / total:.2f} ({part} of {total})" if total else nothing


def delay(value: float | None) -> str:
    """A delay in words."""
    return "" if value is None else seconds(round(value, 1) if value < 60 else int(value))


def false_alarms(scores: DetectionScores) -> str:
    """The false alarms in a week."""
    return _rate(scores.weeks, scores.alarms - scores.true_alarms)


def pages(scores: DetectionScores) -> str:
    """The pages in a week."""
    return _rate(scores.weeks, scores.pages)


def _rate(weeks: float, number: int) -> str:
    """A number in a week, or as it is of less than a day."""
    return f"{number} in all" if weeks * 7 < 1 else f"{number / weeks:.1f}"


def precision(scores: DetectionScores) -> str:
    """The share of true alarms."""
    return share(scores.true_alarms, scores.alarms, "no alarms")


def recall(scores: DetectionScores) -> str:
    """The share of detected labels."""
    return share(scores.detected, scores.labels, "no labels")


def f1(scores: DetectionScores) -> str:
    """The harmonic mean of both."""
    return "no labels" if scores.f1 is None else f"{scores.f1:.2f}"


def _alone(agent: AgentProof) -> str:
    return str(sum(action.alone for action in agent.actions))


def _cannot_tell(agent: AgentProof) -> str:
    unknown = max(agent.unknown_detections, agent.unknown_decisions)
    return f"{unknown} of {agent.iterations}"


#: The rows of the table: a name, and the value for an agent.
ROWS: Sequence[tuple[str, Callable[[AgentProof], str]]] = (
    ("precision", lambda agent: precision(agent.scores)),
    ("recall", lambda agent: recall(agent.scores)),
    ("F1", lambda agent: f1(agent.scores)),
    ("time to detect, median", lambda agent: delay(agent.scores.delay_median)),
    ("time to detect, p90", lambda agent: delay(agent.scores.delay_p90)),
    ("false alarms a week", lambda agent: false_alarms(agent.scores)),
    ("pages a week", lambda agent: pages(agent.scores)),
    (
        "time in alarm",
        lambda agent: "" if agent.alarm_share is None else f"{agent.alarm_share:.1%}",
    ),
    ("actions without a person", _alone),
    ("cannot tell", _cannot_tell),
    ("diverged", lambda agent: f"{agent.diverged} of {agent.iterations}" if agent.diverged else ""),
)


def score_rows(report: ProofReport) -> list[list[str]]:
    """The rows of the table of agents; those that have nothing to say are left out."""
    rows = [[name, *map(value, report.agents)] for name, value in ROWS]
    return [row for row in rows if any(row[1:])]


def action_rows(agents: Sequence[AgentProof]) -> list[list[str]]:
    """A row for each action of each agent."""
    return [
        [
            action.action,
            agent.name,
            str(action.alone),
            str(action.asked),
            str(action.same),
            ", ".join(f"{count} {name}" for name, count in sorted(action.outcomes.items())),
        ]
        for agent in agents
        for action in agent.actions
    ]


def detection_text(detection: LabelDetection | None) -> str:
    """The detection of a label in words."""
    if detection is None:
        return "not counted"
    if detection.detection == "unknown":
        return "cannot tell"
    if detection.delay is None:
        return detection.detection
    return f"after {delay(detection.delay)}" if detection.delay else "at once"


def remark(point: SweepPoint, sweep: Sweep) -> str:
    """The place of a value in the recommendation."""
    best = sweep.recommendation
    if best is None:
        return ""
    if point.value == best.value:
        return "recommended"
    if best.low <= point.value <= best.high:
        return "may be as good"
    return "now" if point.value == best.present else ""


def advice(sweep: Sweep, clock: Clock) -> Iterator[str]:
    """The recommendation in words, or the reason why there is none."""
    best = sweep.recommendation
    if best is None:
        yield f"No value is recommended: {sweep.refusal}"
        return
    yield (
        f"Recommended: {best.value:g}. It has the best F1 before {clock(best.split)}, "
        f"{best.chosen_f1:.2f}, which is too good on average."
    )
    yield (
        f"After it, on weeks that had no part in the choice, its F1 is {best.held_out_f1:.2f}; "
        f"90 % interval {best.held_out_low:.2f} to {best.held_out_high:.2f}."
    )
    if best.low < best.high:
        yield f"The data does not tell the values from {best.low:g} to {best.high:g} apart."
    else:
        yield "All other values are worse on the weeks on which it was chosen."
    if best.present is not None:
        present = "" if best.present_f1 is None else f", with F1 {best.present_f1:.2f} there"
        yield f"Now it is {best.present:g}{present}."
