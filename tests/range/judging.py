"""Compares what happened in a case, as seen from outside, with what Boyd says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from boyd.models import EffectName, ExecutionEntry
from range.cases import is_undoable
from range.lines import Line
from range.runner import Course

#: The fate of a rollback whose worker was killed.
_CUT_OFF = "was lost while executing it"


@dataclass(frozen=True)
class Taken:
    """An action that was executed, by its lines, and whether it was the one with the mistake."""

    execution: str
    action: str
    began: float
    ended: float
    until: float
    wrong: bool


@dataclass
class Figures:
    """Counts of one case, or of many."""

    cases: int = 0
    faults: int = 0
    detected: int = 0
    decided: int = 0
    verdicts: int = 0
    right_verdicts: int = 0
    #: Wrong actions that reported success, and those of them whose verdict was not *effective*.
    wrong: int = 0
    wrong_detected: int = 0
    #: Actions without a mistake, and those of them that were judged otherwise.
    right: int = 0
    alarms: int = 0
    unprovoked: int = 0
    #: Actions that did harm: all, those that had to be undone, and those that were, exactly once.
    harmful: int = 0
    undoable: int = 0
    undone: int = 0
    #: The others: cut off by a killed worker or without a rollback; and those people were told of.
    left: int = 0
    told: int = 0
    harm_seconds: float = 0.0
    recoveries: list[float] = field(default_factory=list)
    helped: int = 0
    untrue: list[str] = field(default_factory=list)
    #: More about what was missed.
    details: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Add those of another case."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def misses(self) -> list[str]:
        """Deviations from the required figures."""
        counts = {
            "faults were not detected": self.faults - self.detected,
            "faults did not end": self.faults - len(self.recoveries),
            "first decisions were wrong": self.detected - self.decided,
            "harmful actions were not undone exactly once": self.undoable - self.undone,
            "times people were not told of harm that stays": self.left - self.told,
            "right actions were judged otherwise": self.alarms,
            "actions were taken without a fault": self.unprovoked,
            "records were untrue": len(self.untrue),
        }
        missed = [f"{number} {label}" for label, number in counts.items() if number]
        if self.wrong_detected < 0.95 * self.wrong:
            missed.append("fewer than 95 % of the wrong actions were detected")
        return missed


def judge(course: Course) -> Figures:
    """The figures of one case."""
    case, faulty = course.case, bool(course.case.fault)
    figures = Figures(cases=1, faults=int(faulty), detected=int(faulty and course.detected))
    actions_taken = _actions(course)
    entries = {entry.id: entry for entry in course.entries}
    figures.decided = int(bool(actions_taken) and faulty and actions_taken[0].action == case.action)
    figures.harm_seconds, figures.helped = course.looks.harm.bad_for(), course.helped
    if faulty and course.recovered is not None:
        figures.recoveries.append(course.recovered - course.began)
    figures.untrue += [
        f"{case.name}: {text}" for text in (*course.misfits, *_losses(course, actions_taken))
    ]
    for act in actions_taken:
        entry = entries.get(act.execution)
        if entry is None:
            figures.untrue.append(f"{case.name}: {act.action} was done and is not in the ledger")
            continue
        figures.unprovoked += not course.looks.faults.may_be_bad(act.began)
        _compare(figures, course, act, entry)
    if figures.misses:
        figures.details.append(f"{case.name}: {_timeline(course)}")
    return figures


def _timeline(course: Course) -> str:
    """The events of a case, with seconds since its begin."""
    looks = (("fault", course.looks.faults), ("harm", course.looks.harm))
    changes = [
        (at, f"{name}: {bad}")
        for name, observer_look in looks
        for at, bad in observer_look.changes()
    ]
    lines = [(o.at, f"{o.step} {o.action} {o.execution} ({o.pid})") for o in course.lines]
    judged = [
        (verification.ended_at.timestamp(), f"{entry.id}: {entry.state}, {verification.verdict}")
        for entry in course.entries
        if (verification := entry.verification) and verification.ended_at
    ]
    timeline = sorted([*changes, *lines, *judged])
    return "; ".join(f"{at - course.began:.2f} {event}" for at, event in timeline)


def _actions(course: Course) -> list[Taken]:
    """The executed actions, each with the time until which it alone may have had an effect."""
    acts = [line for line in course.lines if line.step == "act"]
    undos = [line for line in course.lines if line.step == "undo"]
    ends = {line.execution: line.at for line in course.lines if line.step == "acted"}
    mistaken = next((a.execution for a in acts if a.action == course.case.action), "")
    return [
        Taken(
            execution=act.execution,
            action=act.action,
            began=act.at,
            ended=ends.get(act.execution, act.at),
            until=min((o.at for o in (*acts, *undos) if o.at > act.at), default=course.ended),
            wrong=bool(course.case.mistake) and act.execution == mistaken,
        )
        for act in acts
    ]


def _losses(course: Course, actions_taken: list[Taken]) -> Iterator[str]:
    """Whatever was done more than once, or is said to have been done and was not."""
    for (step, execution), times in Counter((o.step, o.execution) for o in course.lines).items():
        if step in ("act", "undo") and times > 1:
            yield f"{step} of {execution} happened {times} times"
    executions = {act.execution for act in actions_taken}
    for entry in course.entries:
        if entry.state == "succeeded" and entry.id not in executions:
            yield f"{entry.id} is said to have succeeded, and did nothing"
        if entry.state == "failed" and entry.id in executions:
            reason = entry.result.error if entry.result else ""
            yield f"{entry.id} ({entry.action}) was done and is said to have failed: {reason}"


def _compare(figures: Figures, course: Course, act: Taken, entry: ExecutionEntry) -> None:
    """Compare an execution with its record."""
    harmed = course.looks.harm.any_bad(act.began, act.until)
    truth: EffectName = "effective"
    if harmed:
        truth = "worse"
    elif course.looks.faults.is_bad(act.until):
        truth = "no effect"
    verdict = entry.verification.verdict if entry.verification else None
    figures.verdicts += 1
    figures.right_verdicts += verdict == truth
    if verdict != truth:
        figures.untrue.append(
            f"{course.case.name}: {act.action} was {truth}, the verdict: {verdict}"
        )
    if act.wrong and entry.state == "succeeded":
        figures.wrong += 1
        figures.wrong_detected += verdict != "effective"
    if not act.wrong and truth == "effective":
        figures.right += 1
        figures.alarms += verdict != truth
    if harmed:
        _compare_undoing(figures, course, act, entry)
    elif any(line.step == "undo" and line.execution == act.execution for line in course.lines):
        figures.untrue.append(f"{course.case.name}: {act.action} did no harm and was undone")


def _compare_undoing(figures: Figures, course: Course, act: Taken, entry: ExecutionEntry) -> None:
    """Compare what became of harm with its record."""
    steps = Counter(_steps(course.lines, act.execution))
    done = entry.verification.compensation if entry.verification else None
    state = done.state if done else None
    cut_off = entry.state != "succeeded" or (done is not None and _CUT_OFF in done.detail)
    figures.harmful += 1
    if is_undoable(course.case.lane, act.action) and not cut_off:
        undone = steps["undone"] == 1 and state == "rolled back"
        figures.undoable += 1
        figures.undone += undone
        if not undone:
            detail = done.detail if done else None
            text = f"was undone {steps['undone']} times, and is said to be {state} ({detail})"
            figures.details.append(f"{course.case.name}: {act.action} {text}")
        return
    figures.left += 1
    figures.told += steps["told"] > 0
    if state == "rolled back":
        figures.untrue.append(f"{course.case.name}: {act.action} is said to be rolled back")


def _steps(lines: list[Line], execution: str) -> list[str]:
    return [line.step for line in lines if line.execution == execution]
