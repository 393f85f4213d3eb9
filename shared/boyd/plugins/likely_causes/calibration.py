"""Calibration: how often the first suspect was the cause, by score, against two base rates.

Every judged episode is a forecast and an outcome: the first suspect was the cause, or it was not.
Forecasts are those that would have been stated before the outcome was known.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from pydantic import BaseModel

from boyd.models import JsonObject
from boyd.plugins.likely_causes.episode import Pick

#: The scores at which bins begin, besides 0.
BOUNDS = (0.5, 0.7, 0.85, 0.95)
#: Judged episodes until a probability can be stated.
LEAST_JUDGED = 20
#: Of how many judged episodes the share of all bins counts in that of each.
_POOLED = 4.0
#: What each judged episode makes of the weight of those before it: they stand for 100.
_FADING = 0.99
#: How many standard errors the forecasts have to be better by.
_MARGIN = 2.0
#: How much likelier the last outcomes have to be if first suspects are right half as often as
#: stated, until all that was learned is forgotten: the logarithm.
_SURPRISE = math.log(1000)


def percent(share: float) -> str:
    """A share for people; what was learned from examples is never certain."""
    return f"{min(99, round(100 * share))} %"


class Share(NamedTuple):
    """The judged episodes, and those in which the first suspect was the cause; weighted."""

    judged: float = 0.0
    right: float = 0.0

    def rate(self, prior: float = 0.5, weight: float = 2.0) -> float:
        """The mean of a beta distribution whose *prior* mean counts as *weight* episodes."""
        return (self.right + weight * prior) / (self.judged + weight)

    def add(self, right: bool) -> Share:
        """The shares with one more judged episode; those before fade."""
        return Share(_FADING * self.judged + 1, _FADING * self.right + right)


class Loss(NamedTuple):
    """Differences of squared errors from those of a base rate: number, sum, sum of squares."""

    number: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, difference: float) -> Loss:
        """The losses with one more difference; those before fade."""
        return Loss(
            _FADING * self.number + 1,
            _FADING * self.total + difference,
            _FADING * self.squares + difference**2,
        )

    @property
    def upper(self) -> float:
        """The mean difference and its margin; negative: better than the base rate."""
        if self.number <= 1:
            return math.inf
        mean = self.total / self.number
        variance = max(0.0, self.squares / self.number - mean**2)
        return mean + _MARGIN * math.sqrt(variance / self.number)


class Calibration(BaseModel):
    """The lessons of judged episodes.

    Attributes:
        episodes: how many were judged.
        bins: by score.
        first: of the suspects that deteriorated first.
        against: squared errors of the forecasts less those of two base rates: one in so many
            suspects, and the share of the first to deteriorate.
        latest: the episode that was judged last, by its beginning.
        surprise: how much likelier the last outcomes are if first suspects are right half as often
            as stated: the logarithm, at least 0.
    """

    episodes: int = 0
    bins: list[Share] = [Share()] * (len(BOUNDS) + 1)
    first: Share = Share()
    against: tuple[Loss, Loss] = (Loss(), Loss())
    latest: float = 0.0
    surprise: float = 0.0

    @classmethod
    def read(cls, stored: Any) -> Self:
        """The calibration as it was stored."""
        return cls.model_validate(stored or {})

    def probability(self, pick: Pick) -> float | None:
        """The probability that the first suspect is the cause; None unless it has proved right."""
        if self.reason_to_abstain():
            return None
        return self._forecast(pick)

    def doubt(self, pick: Pick) -> str:
        """A reason not to name the first suspect as the cause; empty without one."""
        share = self._forecast(pick)
        if self.episodes < LEAST_JUDGED or share > 1 / pick.suspects:
            return ""
        return f"first suspects like {pick.name} were the cause in {percent(share)} of episodes"

    def reason_to_abstain(self) -> str:
        """The obstacle to stating a probability; empty if there is none."""
        if self.episodes < LEAST_JUDGED:
            return f"{self.episodes} of {LEAST_JUDGED} episodes have been judged"
        if any(loss.upper >= 0 for loss in self.against):
            return "its forecasts were no better than a base rate"
        return ""

    def judge(
        self, episode: float, pick: Pick, right: bool, first_right: bool | None
    ) -> Calibration:
        """The calibration after an *episode* of which became known whether the pick was the cause.

        *first_right* is the same for the first to deteriorate; None if that is not known. To judge
        the latest episode again changes nothing: its worker may have been lost. When outcomes are
        no longer as forecast, because the graph or the faults have changed, it begins anew.
        """
        if episode == self.latest:
            return self
        forecast = self._forecast(pick)
        surprise = self.surprise + math.log(0.5 if right else (1 - forecast / 2) / (1 - forecast))
        if surprise > _SURPRISE:
            return Calibration(latest=episode)
        error = (forecast - right) ** 2
        differences = [error - (base - right) ** 2 for base in self._base_rates(pick)]
        place = bisect_right(BOUNDS, pick.score)
        bins = [*self.bins[:place], self.bins[place].add(right), *self.bins[place + 1 :]]
        one_in, first = self.against
        return Calibration(
            episodes=self.episodes + 1,
            bins=bins,
            first=self.first if first_right is None else self.first.add(first_right),
            against=(one_in.add(differences[0]), first.add(differences[1])),
            latest=episode,
            surprise=max(0.0, surprise),
        )

    def summary(self) -> JsonObject:
        """The share that was right, and the mean errors less those of the base rates.

        Below zero is better than the base rate.
        """
        judged, right = self._overall
        mean_errors = [round(loss.total / (loss.number or 1.0), 3) for loss in self.against]
        return {
            "episodes": self.episodes,
            "right": round(right / judged, 3) if judged else None,
            "againstOneInSuspects": mean_errors[0],
            "againstFirstToDeteriorate": mean_errors[1],
            "abstains": self.reason_to_abstain() or None,
        }

    @property
    def _overall(self) -> Share:
        return Share(*(sum(column) for column in zip(*self.bins, strict=True)))

    def _forecast(self, pick: Pick) -> float:
        overall = self._overall.rate()
        return self.bins[bisect_right(BOUNDS, pick.score)].rate(overall, _POOLED)

    def _base_rates(self, pick: Pick) -> Iterator[float]:
        yield 1 / pick.suspects
        first = self.first.rate()
        yield first if pick.name == pick.first else (1 - first) / max(1, pick.suspects - 1)
