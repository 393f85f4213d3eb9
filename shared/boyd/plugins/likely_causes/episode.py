"""An episode: the things that became unwell together, and when each of them began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

from pydantic import BaseModel

from boyd.models import LEVELS, Anomaly

#: The most things of which an episode is made; further ones are left out.
MAX_THINGS = 40
#: Seconds without a new thing, after which the next one begins another episode.
GAP = 900.0
#: The most picks that are kept.
_MOST_PICKS = 12


class Ailment(NamedTuple):
    """A thing that is or was unwell: when that began and was last seen, and its worst deviation."""

    onset: float
    last: float
    deviation: float


class Pick(NamedTuple):
    """A first suspect: since when, its score, what began first, and of how many suspects."""

    at: float
    name: str
    score: float
    first: str
    suspects: int


class FaultEpisode(BaseModel):
    """The things that are unwell, and those that became so together; times in seconds.

    Attributes:
        since: the first onset of the episode; what began earlier is older trouble.
        at: the latest iteration.
        things: by name.
        picks: the first suspects so far, each when it became that.
    """

    since: float
    at: float
    things: dict[str, Ailment]
    picks: list[Pick] = []

    @classmethod
    def after(
        cls, before: Self | None, deviations: Mapping[str, float], at: float, memory: float
    ) -> Self | None:
        """The episode after an iteration; None if nothing has been unwell for *memory* seconds.

        A thing that was well for less keeps its onset: it flaps, or was not looked at. An episode
        without members has only older trouble.
        """
        things = {
            name: thing
            for name, thing in (before.things if before else {}).items()
            if at - thing.last <= memory
        }
        new = sorted(deviations.keys() - things.keys(), key=lambda name: (-deviations[name], name))
        new = new[: MAX_THINGS - len(things)]
        since = before.since if before else at
        latest = max((thing.onset for thing in things.values()), default=at)
        if new and at - latest > GAP:
            since = at
        for name in (deviations.keys() & things.keys()).union(new):
            old = things.get(name, Ailment(at, at, 0.0))
            things[name] = Ailment(old.onset, at, max(old.deviation, deviations[name]))
        if not things:
            return None
        if all(thing.onset < since for thing in things.values()):
            since = at
        picks = before.picks if before and before.since == since else []
        return cls(since=since, at=at, things=things, picks=picks)

    @classmethod
    def read(cls, stored: Any) -> Self | None:
        """The episode as it was stored."""
        return cls.model_validate(stored) if stored else None

    @property
    def members(self) -> list[str]:
        """The things that became unwell since the episode began, in order of onsets."""
        names = [name for name, thing in self.things.items() if thing.onset >= self.since]
        return sorted(names, key=lambda name: (self.things[name].onset, name))

    @property
    def end(self) -> float:
        """When the last of the members was unwell."""
        return max(self.things[name].last for name in self.members)

    def with_pick(self, pick: Pick) -> Self:
        """The episode after a ranking, which is noted unless the one before was the same."""
        if self.picks and self.picks[-1][1:] == pick[1:]:
            return self
        return self.model_copy(update={"picks": [*self.picks, pick][-_MOST_PICKS:]})

    def is_well(self, name: str) -> bool:
        """True if it was not unwell in the latest iteration."""
        return self.things[name].last < self.at


def deviations(anomalies: Iterable[Anomaly], thing_of: Callable[[str], str]) -> dict[str, float]:
    """By affected thing, how far it deviates, from 0 to 1: its worst severity."""
    worst: dict[str, float] = {}
    for anomaly in anomalies:
        level = (LEVELS.index(anomaly.severity) + 1) / len(LEVELS)
        for name in map(thing_of, anomaly.affected_resources or ()):
            worst[name] = max(worst.get(name, 0.0), level)
    return worst
