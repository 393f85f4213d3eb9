"""Tells an agent's notifiers of approvals: when they come, at half-time, when they expire (A13)."""

from __future__ import annotations

from datetime import datetime

from boyd.engine.engine import Engine
from boyd.engine.orders import Done, Fields, Later
from boyd.loop.context import HOOK_TIMEOUT, PhaseContext
from boyd.models import ApprovalItem, from_ms
from boyd.store import Fence, StuckOrder

_OVER = Done("succeeded", 0.0)


class Notices:
    """The notices of one agent's approvals; a notice that loses its worker is given again."""

    patient = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds the notifiers may take together."""
        return HOOK_TIMEOUT * (1 + len(self._engine.agent.host.hooks("on_approval")))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Tell of the stage that the item has reached, if it has, and wait for the next one."""
        stage = fields["stage"]
        if stage == "expired":
            self._engine.purge_approvals()
        item = self._engine.store.approvals.get(id)
        if item is None:
            return _OVER
        now = from_ms(float(fields["executionStartedAt"]))
        if stage == "expired":
            return self._expired(item, now)
        if item.status != "pending":
            return _OVER
        self._tell(item, stage)
        return _next(item, stage, now)

    def broken(self, id: str, fields: Fields, why: str) -> Done:
        """Go without it."""
        return _OVER

    def lost(self, id: str, stuck: StuckOrder) -> None:
        """Let another worker tell of it again."""

    def given_up(self, id: str, stuck: StuckOrder) -> Done:
        """Go without it: its notifiers took their workers down."""
        return _OVER

    def _expired(self, item: ApprovalItem, now: datetime) -> Done | Later:
        if item.status == "pending" and item.expires_at is not None:
            return Later(max(0.1, _between(now, item.expires_at)))
        if item.status == "expired":
            self._tell(item, "expired")
        return _OVER

    def _tell(self, item: ApprovalItem, stage: str) -> None:
        ctx = PhaseContext(self._engine.agent, "act", self._engine.context)
        ctx.run_hooks("on_approval", approval=item, stage=stage)


def _next(item: ApprovalItem, stage: str, now: datetime) -> Done | Later:
    """When the next stage is due; *now* is on the clock of the Redis server, as deadlines are."""
    if item.expires_at is None:
        return _OVER
    if stage == "created":
        half = item.created_at + (item.expires_at - item.created_at) / 2
        return Later(_between(now, half), {"stage": "half-time"})
    return Later(_between(now, item.expires_at), {"stage": "expired"})


def _between(now: datetime, moment: datetime) -> float:
    return max(0.0, (moment - now).total_seconds())
