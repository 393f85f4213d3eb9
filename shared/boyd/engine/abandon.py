"""Abandons the iteration in flight, from any process (P15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boyd.engine import ending
from boyd.engine.courier import Courier
from boyd.models import Actor
from boyd.store import AgentStore, Retention


@dataclass(frozen=True)
class Abandonment:
    """What became of a wish to abandon.

    `abandoned` with the iteration's number; `over`: the one that was meant has ended, and
    `iteration` is in flight; `idle`: none is.
    """

    outcome: Literal["abandoned", "over", "idle"]
    iteration: int = 0


class Abandoner:
    """Abandons one agent's iterations; needs no plugins and no worker."""

    def __init__(self, store: AgentStore, courier: Courier, retention: Retention) -> None:
        self.store = store
        self.courier = courier
        self.retention = retention

    def abandon(
        self, why: str, actor: Actor, iteration: int | None = None, last: bool = False
    ) -> Abandonment:
        """End the iteration in flight as failed, or only if it is that one.

        Whoever works on it is shut out by a new epoch. An action that has begun is not begun
        again: unless the ledger knows how it ended, its outcome is unknown. With *last* no other
        iteration follows, even if work waits.
        """
        iterations = self.store.iterations
        outcome, number, epoch = iterations.abandon(why, actor, iteration, last)
        if outcome == "abandoned":
            record = iterations.current()
            if record is not None and record.iteration == number:
                now = self.store.clock.now()
                result = ending.ruined(self.store.agent_id, record, now, why)
                result = ending.settled(self.store, record, result)
                ending.end(self, number, epoch, "", result, told=True)
        return Abandonment(outcome, number)
