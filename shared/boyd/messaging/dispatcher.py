"""Publishes hints: a message only names the work, Redis holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boyd.models import Phase


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
