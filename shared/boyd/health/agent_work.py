"""The work of an agent: the iteration in flight, the last one that ended, and what waits.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Seconds past its deadline, or without one, after which an iteration is stuck.
STUCK = 10.0


@dataclass(frozen=True)
class InFlightIteration:
    """The iteration in flight, as a sweeper finds it.

    Attributes:
        since: the start of its phase.
        is_swept: whether it is among the due members that sweepers check.
        deadline: the time when it becomes overdue, if known.
    """

    since: float
    is_swept: bool
    deadline: float | None

    def is_stuck(self, now: float) -> bool:
        """Report whether it has been stuck for longer than any sweeper allows."""
        if not self.is_swept:
            return now - self.since > STUCK
        return self.deadline is not None and now - self.deadline > STUCK


@dataclass(frozen=True)
class WaitingWork:
    """A step that waits for a worker to take it from `queue`."""

    what: str
    queue: str
    since: float


@dataclass(frozen=True)
class LastIteration:
    """The last iteration that ended; `success` is None when its record is gone."""

    iteration: int
    at: float
    success: bool | None


def oldest_by_queue(steps: Iterable[WaitingWork]) -> dict[str, float]:
    """The time since which the oldest step has been waiting, by queue."""
    oldest: dict[str, float] = {}
    for step in steps:
        oldest[step.queue] = min(step.since, oldest.get(step.queue, step.since))
    return oldest
