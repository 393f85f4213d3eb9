"""Sends hints: a message says where to look, Redis holds what is to be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boyd.models import Phase


@dataclass(frozen=True)
class BatchHint:
    """Which batch of an iteration's observe phase to look at, and on which queue."""

    batch: int
    attempt: int
    queue: str


class Dispatcher(Protocol):
    """Carries hints to workers; it may lose, double or delay them."""

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Say that *phase* is due, on *queue* or where the phase usually goes."""

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Say that those batches are due."""

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Say that a job is due, on *queue* or where actions usually go."""
