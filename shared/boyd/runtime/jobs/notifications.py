"""Tells an agent's notifiers of approvals: when they come, at half-time, when they expire (A13)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from boyd.models import ApprovalItem, Delivery, from_ms
from boyd.outbound import retry_delay
from boyd.phases.phase_context import HOOK_TIMEOUT, PhaseContext
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.runner import Done, Fields, Later
from boyd.store import Fence, StuckJob, read_callback

#: Seconds that a callback and its deliveries can be looked up after the last one.
KEEP = 2 * 86400.0
#: How many deliveries are kept.
KEPT = 20


#: The status with which a receiver ends the attempts.
GONE = 410


class RunCallbackHandler:
    """The callbacks of one agent's runs: at least once each, over the hours of the plan."""

    patient = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds one attempt may take."""
        return self._engine.settings.phase_limit

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make one attempt."""
        at = self._engine.store.clock.now()
        delivery = self._engine.settings.post(fields["url"], _body(id, fields), f"run_{id}", at)
        return self._after(fields, delivery)

    def broken(self, id: str, fields: Fields, why: str) -> Done | Later:
        """Count it as a failed attempt."""
        at = from_ms(float(fields["executionStartedAt"]))
        return self._after(fields, Delivery(at=at, ok=False, error=why, duration=0.0))

    def lost(self, id: str, stuck: StuckJob) -> None:
        """Let another worker make the attempt again."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End it: it took its workers down with it."""
        return Done("failed", KEEP)

    def _after(self, fields: Fields, delivery: Delivery) -> Done | Later:
        tries = int(fields.get("tries", 0)) + 1
        told = read_callback(fields).deliveries
        log = [one.to_wire() for one in [*told, delivery][-KEPT:]]
        stored = {"tries": str(tries), "deliveries": json.dumps(log)}
        if delivery.ok:
            return Done("succeeded", KEEP, stored)
        # 410 Gone says, as Standard Webhooks has it, that nobody wants to hear of it any more.
        delay = None if delivery.status == GONE else retry_delay(tries)
        return Done("failed", KEEP, stored) if delay is None else Later(delay, stored)


def _body(run_id: str, fields: Fields) -> bytes:
    result: Any = json.loads(fields["result"]) if "result" in fields else None
    completed = from_ms(float(fields["completedAt"])).isoformat().replace("+00:00", "Z")
    body = {"runId": run_id, "status": fields["status"], "result": result, "completedAt": completed}
    if "reason" in fields:
        body["reason"] = fields["reason"]
    return json.dumps(body).encode()


_OVER = Done("succeeded", 0.0)


class NotificationHandler:
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

    def lost(self, id: str, stuck: StuckJob) -> None:
        """Let another worker tell of it again."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
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
