"""Bounds and tests for a share of successes that hold however often one looks at them.

An interval for a fixed number of trials, such as that of Clopper and Pearson, is wrong far more
often than it says if somebody looks after each trial and acts as soon as it suits. These are bets
against a hypothesis: if it is true, the stake multiplies by 20 at any time with a probability of at
most 1/20, whatever came before and even if the true share changes meanwhile (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

#: Alternatives that are bet on: how far above the hypothesis, and the part of the stake.
_BETS = ((1.0, 0.5), (0.75, 0.125), (0.5, 0.125), (0.25, 0.125), (0.125, 0.125))
#: Failures are this many times as frequent after a drop as the hypothesis allows, at most.
_WORSE = 4.0
#: The stake at which a drop is believed.
_BELIEVED = 20.0


def stake(counts: Mapping[float, int], share: float) -> float:
    """The stake after trials, or groups of them, betting that the true share is above *share*.

    There are *counts* of them, by their share of successes; only groups have to be independent.
    """
    return sum(part * math.exp(_log_ratio(counts, share, above)) for above, part in _BETS)


def _log_ratio(counts: Mapping[float, int], share: float, above: float) -> float:
    gained = 0.0
    for mean, number in counts.items():
        if number:
            gain = (mean - share) / share * above
            if gain <= -1:
                return -math.inf
            gained += number * math.log1p(gain)
    # Only its size matters beyond any stake that could be asked for.
    return min(700.0, gained)


@lru_cache(4096)
def lower_bound(successes: int, failures: int, error: float) -> float:
    """The lower bound of the true share, which is ever wrong with a probability of *error*."""
    low, high, counts = 1e-9, 1.0, {1.0: successes, 0.0: failures}
    if stake(counts, low) < 1 / error:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if stake(counts, middle) >= 1 / error else (low, middle)
    return low


def uplift_bound(first: tuple[int, int], second: tuple[int, int], error: float) -> float:
    """The lower bound of the difference of two true shares, ever wrong with a chance of *error*.

    Each pair has the successes and the failures of one arm. Half of the error goes to the lower
    bound of the first share, and half to the upper bound of the second one; both hold at all times,
    so it does not matter how the trials of the two arms follow each other.
    """
    successes, failures = second
    return lower_bound(*first, error / 2) - (1 - lower_bound(failures, successes, error / 2))


@dataclass(frozen=True)
class DropTest:
    """A test for a drop of the true share below *share*, whenever it happens (CUSUM).

    It starts from 0 and adds `failure` or `success` for each trial, but never falls below 0; a drop
    is believed at `limit`. At exactly *share* it takes at least 20 trials on average to a false
    alarm, and above it far more.
    """

    share: float

    @property
    def failure(self) -> float:
        """The logarithm by which a failure multiplies the stake."""
        return math.log((1 - self._share_after_drop) / (1 - self.share))

    @property
    def success(self) -> float:
        """The logarithm by which a success multiplies the stake; it is negative."""
        return math.log(self._share_after_drop / self.share)

    @property
    def limit(self) -> float:
        """The logarithm of the stake at which a drop is believed."""
        return math.log(_BELIEVED)

    @property
    def _share_after_drop(self) -> float:
        return 1 - min(_WORSE * (1 - self.share), 1 - self.share / 2)
