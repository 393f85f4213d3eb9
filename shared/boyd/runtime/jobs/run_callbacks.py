"""Delivers the callbacks of ended runs."""

from __future__ import annotations

import json
from typing import Any

from boyd.models import Delivery, Fence, from_ms
from boyd.outbound import retry_delay
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, Later
from boyd.store import StuckJob, read_callback

#: Seconds that a callback and its deliveries are kept after the last delivery.
KEEP = 2 * 86400.0
#: Number of deliveries kept.
KEPT = 20
#: HTTP status with which a receiver unsubscribes, according to Standard Webhooks.
GONE = 410


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
