"""One agent over the recorded iterations: alarms, pages, actions and their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from boyd.models import LoopResult
from boyd.models.tape import Course, ReplayedIteration
from boyd_proof.proof_report import ActionRuns
from boyd_proof.timeline import Track, sightings_of

#: The most reasons that are kept.
_REASONS = 20
#: An execution that nothing has verified.
NOT_VERIFIED = "not verified"

#: The verdict on the action that a recorded iteration executed; None: it executed none.
Verdict = Callable[[LoopResult], str | None]


@dataclass
class AgentRecord:
    """One agent over all iterations, which are added in order.

    Attributes:
        name: `recorded`, `present`, `changed` or a value of a sweep.
        build: the id of its build, if it was replayed.
        track: its symptoms.
        pages: the times at which a person was asked: the first of consecutive iterations in which
            that is for the same action on the same target.
        unknown_decisions: iterations of which it cannot be told what would be done.
        diverged: iterations that rest on what the agent would have left in its state.
        reasons: why it cannot be told.
    """

    name: str
    build: str | None = None
    track: Track = field(default_factory=Track)
    pages: list[float] = field(default_factory=list)
    unknown_decisions: int = 0
    diverged: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _runs: dict[str, ActionRuns] = field(default_factory=dict)
    _asked_for: tuple[str, str] | None = None

    def add_recorded(self, time: float, record: LoopResult, course: Course | None) -> None:
        """Add an iteration as it was recorded, with the course of its decision if it is known."""
        situation = record.situation
        self.track.add(None if situation is None else sightings_of(situation.anomalies))
        self._add_course(time, course)

    def add_replayed(self, time: float, replayed: ReplayedIteration) -> None:
        """Add an iteration as it was replayed."""
        anomalies = replayed.anomalies
        self.track.add(None if anomalies is None else sightings_of(anomalies))
        self.diverged += replayed.diverged is not None
        is_known = "cannot tell" not in replayed.differences
        if replayed.why and not (is_known and anomalies is not None):
            self._note_reason(replayed.why)
        self._add_course(time, replayed.after if is_known else None)

    def _note_reason(self, reason: str) -> None:
        if reason in self.reasons or len(self.reasons) < _REASONS:
            self.reasons[reason] += 1

    def _add_course(self, time: float, course: Course | None) -> None:
        if course is None:
            self.unknown_decisions += 1
            return
        key = (course.action, course.target) if course.fate == "asked" else None
        if key is not None and key != self._asked_for:
            self.pages.append(time)
        self._asked_for = key

    def add_action(self, course: Course | None, before: Course | None, verdict: str | None) -> None:
        """Count an action that would have run or been asked for.

        With the *verdict* on the recorded one, whose course was *before*, if that is the same.
        """
        if course is None or course.fate not in ("automatic", "asked"):
            return
        runs = self._runs.get(course.action) or ActionRuns(action=course.action)
        changes: dict[str, object] = {}
        if course.fate == "automatic":
            changes["alone"] = runs.alone + 1
        else:
            changes["asked"] = runs.asked + 1
        if verdict is not None and before is not None and _is_same(course, before):
            outcomes = dict(runs.outcomes)
            outcomes[verdict] = outcomes.get(verdict, 0) + 1
            changes |= {"same": runs.same + 1, "outcomes": outcomes}
        self._runs[course.action] = runs.model_copy(update=changes)

    @property
    def actions(self) -> Sequence[ActionRuns]:
        """Its actions in order of their ids."""
        return [self._runs[action] for action in sorted(self._runs)]


def _is_same(course: Course, before: Course) -> bool:
    return (course.action, course.params, course.fate) == (
        before.action,
        before.params,
        before.fate,
    )
