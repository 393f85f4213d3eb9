"""Strategies to choose who goes on in a world."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from greenlet import greenlet


class Strategy:
    """Chooses any task with the same probability, and how long a command takes."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, ready: Sequence[greenlet], steps: int) -> greenlet:
        """One of the tasks that can go on."""
        return ready[self._random.randrange(len(ready))]

    def latency(self) -> float:
        """Up to a few milliseconds, often none."""
        return max(0.0, self._random.uniform(-0.002, 0.004))


class PriorityStrategy(Strategy):
    """Chooses the task of the highest priority, which falls at a few random steps.

    Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): an ordering bug of depth
    *changes* + 1 is found with a known probability, however many steps there are.
    """

    def __init__(self, random: Random, steps: int, changes: int) -> None:
        super().__init__(random)
        self._priorities: dict[greenlet, float] = {}
        self._changes = {random.randrange(steps) for _ in range(changes)}
        self._lowest = 0.0

    def choose(self, ready: Sequence[greenlet], steps: int) -> greenlet:
        """The task with the highest priority."""
        for task in ready:
            if task not in self._priorities:
                self._priorities[task] = self._random.random()
        chosen = max(ready, key=self._priorities.__getitem__)
        if steps in self._changes:
            self._lowest -= 1.0
            self._priorities[chosen] = self._lowest
            chosen = max(ready, key=self._priorities.__getitem__)
        return chosen

    def latency(self) -> float:
        """None: who goes on is a matter of priorities only."""
        return 0.0
