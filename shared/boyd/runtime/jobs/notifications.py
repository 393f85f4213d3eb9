"""Notifications: approvals to an agent's notifiers, and ended runs to callback URLs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from boyd.models import ApprovalItem, Delivery, from_ms
from boyd.outbound import retry_delay
from boyd.phases.phase_context import HOOK_TIMEOUT
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, Later
from boyd.store import Fence, StuckJob, read_callback

#: Seconds that a callback and its deliveries are kept after the last delivery.
KEEP = 2 * 86400.0
#: Number of deliveries kept.
KEPT = 20
#: HTTP status with which a receiver unsubscribes, according to Standard Webhooks.
GONE = 410
_ENDED = Done("succeeded", 0.0)


class RunCallbackHandler:
    """Delivers the callbacks of runs, each at least once, with retries over several hours."""

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
        """Let another worker repeat the attempt."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End it: it took down its workers."""
        return Done("failed", KEEP)

    def _after(self, fields: Fields, delivery: Delivery) -> Done | Later:
        tries = int(fields.get("tries", 0)) + 1
        earlier = read_callback(fields).deliveries
        log = [attempt.to_wire() for attempt in [*earlier, delivery][-KEPT:]]
        stored = {"tries": str(tries), "deliveries": json.dumps(log)}
        if delivery.ok:
            return Done("succeeded", KEEP, stored)
        delay = None if delivery.status == GONE else retry_delay(tries)
        return Done("failed", KEEP, stored) if delay is None else Later(delay, stored)


def _body(run_id: str, fields: Fields) -> bytes:
    result: Any = json.loads(fields["result"]) if "result" in fields else None
    completed = from_ms(float(fields["completedAt"])).isoformat().replace("+00:00", "Z")
    body = {"runId": run_id, "status": fields["status"], "result": result, "completedAt": completed}
    if "reason" in fields:
        body["reason"] = fields["reason"]
    return json.dumps(body).encode()


class NotificationHandler:
    """Notifies of an agent's approvals; a notification that loses its worker is repeated."""

    patient = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds that all notifiers together may take."""
        return HOOK_TIMEOUT * (1 + len(self._engine.agent.host.hooks("on_approval")))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Notify of the stage that the item has reached, and wait for the next one."""
        stage = fields["stage"]
        item = self._engine.store.approvals.get(id)
        if item is None:
            return _ENDED
        now = from_ms(float(fields["executionStartedAt"]))
        if stage == "expired":
            return self._expired(item, now)
        if item.status != "pending":
            return _ENDED
        self._notify(item, stage)
        return _next(item, stage, now)

    def broken(self, id: str, fields: Fields, why: str) -> Done:
        """Skip it."""
        return _ENDED

    def lost(self, id: str, stuck: StuckJob) -> None:
        """Let another worker repeat it."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """Skip it: its notifiers took down their workers."""
        return _ENDED

    def _expired(self, item: ApprovalItem, now: datetime) -> Done | Later:
        if item.status == "pending" and item.expires_at is not None:
            return Later(max(0.1, _between(now, item.expires_at)))
        if item.status == "expired":
            self._notify(item, "expired")
        return _ENDED

    def _notify(self, item: ApprovalItem, stage: str) -> None:
        self._engine.act_context().run_hooks("on_approval", approval=item, stage=stage)


def _next(item: ApprovalItem, stage: str, now: datetime) -> Done | Later:
    """Wait for the next stage; *now* is on the Redis server's clock, as deadlines are."""
    if item.expires_at is None:
        return _ENDED
    if stage == "created":
        half = item.created_at + (item.expires_at - item.created_at) / 2
        return Later(_between(now, half), {"stage": "half-time"})
    return Later(_between(now, item.expires_at), {"stage": "expired"})


def _between(now: datetime, moment: datetime) -> float:
    return max(0.0, (moment - now).total_seconds())
