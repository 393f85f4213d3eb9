"""Causes that became known: by an action that ended the whole episode, or by a person's word."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from boyd.models import ExecutionEntry
from boyd.plugins.likely_causes.calibration import Calibration
from boyd.plugins.likely_causes.episode import FaultEpisode, Pick

#: Seconds after it was last unwell, in which nobody may have seen yet that a thing is well.
_UNSEEN = 120.0
#: Seconds in which everything has to be well after the action that ended an episode.
CURED_WITHIN = 900.0


class Treatment(NamedTuple):
    """An effective action on something: its target, when it started, and its id."""

    target: str
    at: float
    id: str

    @classmethod
    def of(cls, execution: ExecutionEntry) -> Treatment | None:
        """The treatment that an execution was; None if it had no effect, or on nothing known."""
        verdict = execution.verification.verdict if execution.verification else None
        if verdict != "effective" or not execution.target or execution.started_at is None:
            return None
        return cls(execution.target, execution.started_at.timestamp(), execution.id)


class PickOutcome(NamedTuple):
    """The truth about a pick: whether it was the cause, and which thing was, if that is known."""

    pick: Pick
    is_right: bool
    cause: str | None = None

    def add_to(self, calibration: Calibration, episode: FaultEpisode) -> Calibration:
        """The calibration after an episode with this outcome."""
        first_right = None if self.cause is None else self.cause == self.pick.first
        return calibration.judge(episode.since, self.pick, self.is_right, first_right)


def judge_by_treatments(
    episode: FaultEpisode, treatments: Sequence[Treatment]
) -> PickOutcome | None:
    """Judge an episode that has ended by the effective actions during it.

    One thing alone was treated, and all others became well soon after: that thing was the cause. If
    it was the pick, and the others did not become well, then the pick was wrong.
    """
    names = {*episode.things, *(pick.name for pick in episode.picks)}
    began = [t for t in treatments if episode.since <= t.at <= episode.end + _UNSEEN]
    treated = {name for t in began for name in thing_of(t.target, names) or [t.target]}
    if len(treated) != 1 or not treated <= names:
        return None
    (thing,) = treated
    last = max(treatment.at for treatment in began)
    pick = next((p for p in reversed(episode.picks) if p.at <= last), None)
    if pick is None:
        return None
    if episode.end - last <= CURED_WITHIN:
        return PickOutcome(pick, pick.name == thing, thing)
    return PickOutcome(pick, False) if pick.name == thing else None


def judge_by_word(episode: FaultEpisode, cause: str) -> PickOutcome | None:
    """Judge the pick that was made with the most suspects in sight by a person's word."""
    if not episode.picks:
        return None
    pick = max(episode.picks, key=lambda pick: (pick.suspects, pick.at))
    things = thing_of(cause, episode.things) or [cause]
    return PickOutcome(pick, things == [pick.name], things[0] if len(things) == 1 else cause)


def thing_of(target: str, things: Collection[str]) -> list[str]:
    """The things that a target names: itself, or those that have all its parts."""
    if target in things:
        return [target]
    parts = set(target.split("/"))
    return sorted(name for name in things if parts <= set(name.split("/")))
