"""Calibration: how often the first suspect was the cause, by score, against two base rates.

In every judged episode each first suspect is a forecast and an outcome: it was the cause, or not.
Forecasts are those that would have been stated before the outcome was known.

What was learned holds until the dependencies or the faults change. How often they do is learned,
too, and the probability that they just have lowers every forecast.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
#: The episodes between two changes, as long as none has been seen; counts as as many episodes.
_STEADY = 50.0
#: The odds of a change from which no probability is stated, and all that was learned is forgotten.
_DOUBTFUL, _CHANGED = 0.5, 20.0


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

    def add(self, right: bool, weight: float = 1.0) -> Share:
        """The shares with one more judged episode, or a part of one; those before fade."""
        fading = _FADING**weight
        return Share(fading * self.judged + weight, fading * self.right + weight * right)


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


class PickVerdict(NamedTuple):
    """A first suspect, whether it was the cause, and its weight among those of its episode."""

    pick: Pick
    is_right: bool
    weight: float = 1.0


class Calibration(BaseModel):
    """The lessons of judged episodes.

    Attributes:
        episodes: how many were judged.
        bins: by score.
        first: of the suspects that deteriorated first.
        against: squared errors of the forecasts less those of two base rates: one in so many
            suspects, and the share of the first to deteriorate.
        latest: the episode that was judged last, by its beginning.
        odds: that first suspects are no better than chance by now, because something has changed.
        changes: of judged episodes, those with which such a change was noticed.
    """

    episodes: int = 0
    bins: list[Share] = [Share()] * (len(BOUNDS) + 1)
    first: Share = Share()
    against: tuple[Loss, Loss] = (Loss(), Loss())
    latest: float = 0.0
    odds: float = 0.0
    changes: Share = Share()

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
        if self._odds > _DOUBTFUL:
            return "its last forecasts were wrong, as if dependencies or faults had changed"
        return ""

    def judge(
        self, episode: float, verdicts: Sequence[PickVerdict], first_right: bool | None
    ) -> Calibration:
        """The calibration after an *episode* of which became known which picks were the cause.

        *first_right* is the same for the first to deteriorate; None if that is not known. To judge
        the latest episode again changes nothing: its worker may have been lost. When outcomes are
        no longer as forecast, because the graph or the faults have changed, it begins anew.
        """
        if episode == self.latest:
            return self
        total = sum(verdict.weight for verdict in verdicts)
        verdicts = [verdict._replace(weight=verdict.weight / total) for verdict in verdicts]
        odds = self._odds * math.exp(sum(map(self._evidence_of_change, verdicts)))
        changes = self.changes.add(odds > _CHANGED)
        if odds > _CHANGED:
            return Calibration(latest=episode, changes=changes)
        differences = [0.0, 0.0]
        bins = [*self.bins]
        for pick, is_right, weight in verdicts:
            error = (self._forecast(pick) - is_right) ** 2
            for number, base in enumerate(self._base_rates(pick)):
                differences[number] += weight * (error - (base - is_right) ** 2)
            place = bisect_right(BOUNDS, pick.score)
            bins[place] = bins[place].add(is_right, weight)
        one_in, first = self.against
        return Calibration(
            episodes=self.episodes + 1,
            bins=bins,
            first=self.first if first_right is None else self.first.add(first_right),
            against=(one_in.add(differences[0]), first.add(differences[1])),
            latest=episode,
            odds=odds,
            changes=changes,
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

    @property
    def _odds(self) -> float:
        """The odds of a change before the next episode, with which there may be another one."""
        hazard = self.changes.rate(1 / _STEADY, _STEADY)
        return (self.odds + hazard) / (1 - hazard)

    def _forecast(self, pick: Pick) -> float:
        share, odds = self._share(pick), self._odds
        return (share + odds * _chance(pick, share)) / (1 + odds)

    def _share(self, pick: Pick) -> float:
        overall = self._overall.rate()
        return self.bins[bisect_right(BOUNDS, pick.score)].rate(overall, _POOLED)

    def _evidence_of_change(self, verdict: PickVerdict) -> float:
        """The logarithm of how much likelier a verdict is after a change, by its weight."""
        share = self._share(verdict.pick)
        chance = _chance(verdict.pick, share)
        ratio = chance / share if verdict.is_right else (1 - chance) / (1 - share)
        return verdict.weight * math.log(ratio)

    def _base_rates(self, pick: Pick) -> Iterator[float]:
        yield 1 / pick.suspects
        first = self.first.rate()
        yield first if pick.name == pick.first else (1 - first) / max(1, pick.suspects - 1)


def _chance(pick: Pick, share: float) -> float:
    """Estimate the share of such picks that are right after a change, from the *share* before."""
    return min(share / 2, 1 / pick.suspects)
