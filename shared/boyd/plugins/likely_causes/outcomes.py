"""Causes that became known: by an action that ended the whole episode, or by a person's word."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from boyd.models import ExecutionEntry
from boyd.plugins.likely_causes.calibration import Calibration, PickVerdict
from boyd.plugins.likely_causes.episode import FaultEpisode

#: Seconds after it was last unwell, in which nobody may have seen yet that a thing is well.
_UNSEEN = 120.0
#: Seconds from the beginning of an episode until people read what is suspected, at the earliest.
_READ_AFTER = 30.0
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
    """The truth about the picks of an episode, and which thing was the cause, if that is known."""

    verdicts: list[PickVerdict]
    cause: str | None = None

    @property
    def main_suspect(self) -> str:
        """The first suspect with the greatest weight over the episode."""
        return max(self.verdicts, key=lambda verdict: verdict.weight).pick.name

    def add_to(self, calibration: Calibration, episode: FaultEpisode) -> Calibration:
        """The calibration after an episode with this outcome."""
        first = self.verdicts[-1].pick.first
        first_right = None if self.cause is None else self.cause == first
        return calibration.judge(episode.since, self.verdicts, first_right)


def judge_by_treatments(
    episode: FaultEpisode, treatments: Sequence[Treatment]
) -> PickOutcome | None:
    """Judge an episode that has ended by the effective actions during it.

    One thing alone was treated, and all others became well soon after: that thing was the cause. If
    it was the pick, and the others did not become well, then that pick was wrong.
    """
    names = {*episode.things, *(pick.name for pick in episode.picks)}
    began = [t for t in treatments if episode.since <= t.at <= episode.end + _UNSEEN]
    treated = {name for t in began for name in thing_of(t.target, names) or [t.target]}
    if len(treated) != 1 or not treated <= names:
        return None
    (thing,) = treated
    last = max(treatment.at for treatment in began)
    verdicts = _verdicts(episode, thing, last)
    if not verdicts:
        return None
    if episode.end - last <= CURED_WITHIN:
        return PickOutcome(verdicts, thing)
    wrong = [verdict._replace(is_right=False) for verdict in verdicts if verdict.is_right]
    return PickOutcome(wrong) if verdicts[-1].is_right else None


def judge_by_word(episode: FaultEpisode, cause: str) -> PickOutcome | None:
    """Judge the picks of an episode by a person's word."""
    if not episode.picks:
        return None
    things = thing_of(cause, episode.things)
    name = things[0] if len(things) == 1 else cause
    return PickOutcome(_verdicts(episode, name, max(episode.end, episode.picks[0].at)), name)


def _verdicts(episode: FaultEpisode, cause: str, until: float) -> list[PickVerdict]:
    """The verdicts on the picks until then, weighted, as nobody knows which one people have read.

    From half a minute to one counts as much as the minute after it, the two after that, and so on.
    """
    picks = [pick for pick in episode.picks if pick.at <= until]
    times = [*(pick.at for pick in picks), until]
    ages = [max(_READ_AFTER, at - episode.since) for at in times]
    ages[-1] *= 2
    weights = [math.log(later / sooner) for sooner, later in pairwise(ages)]
    return [
        PickVerdict(pick, pick.name == cause, weight)
        for pick, weight in zip(picks, weights, strict=True)
    ]


def thing_of(target: str, things: Collection[str]) -> list[str]:
    """The things that a target names: itself, or those that have all its parts."""
    if target in things:
        return [target]
    parts = set(target.split("/"))
    return sorted(name for name in things if parts <= set(name.split("/")))
