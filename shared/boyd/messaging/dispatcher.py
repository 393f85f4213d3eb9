"""Publishes hints: a message only names the work, Redis holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boyd.models import Phase
from boyd.text import queues

#: The phase that follows in the same chain; all others are sent in a message of their own.
FOLLOWS: dict[Phase, Phase] = {"orient": "decide", "act": "complete"}


@dataclass(frozen=True)
class BatchHint:
    """A batch of an iteration's observe phase and its queue."""

    batch: int
    attempt: int
    queue: str


class Dispatcher(Protocol):
    """Publishes hints to workers; it may lose, duplicate or delay them."""

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Announce *phase*, on *queue* or the phase's usual queue."""

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Say that those batches are due."""

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Say that a job is due, on *queue* or where actions usually go."""


class SpreadDispatcher:
    """Publishes the hints of each agent on the broker that has its queues."""

    def __init__(self, dispatchers: Sequence[Dispatcher]) -> None:
        """Take a dispatcher for each broker, in the order of the setting `broker_url`."""
        self._dispatchers = dispatchers

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Announce *phase*, on *queue* or the phase's usual queue."""
        self._of(agent_id).send(agent_id, iteration, epoch, phase, queue)

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Say that those batches are due."""
        self._of(agent_id).fan_out(agent_id, iteration, batches)

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Say that a job is due, on *queue* or where actions usually go."""
        self._of(agent_id).job(agent_id, name, attempt, queue)

    def _of(self, agent_id: str) -> Dispatcher:
        return self._dispatchers[queues.broker_of(agent_id, len(self._dispatchers))]
