"""Tells whoever asked for it how a run ended (R5)."""

from __future__ import annotations

import json
from typing import Any

from boyd.engine.engine import Engine
from boyd.engine.orders import Done, Fields, Later
from boyd.models import Delivery, from_ms
from boyd.outbound import retry_delay
from boyd.store import Fence, StuckOrder, read_callback

#: Seconds that a callback and its deliveries can be looked up after the last one.
KEEP = 2 * 86400.0
#: How many deliveries are kept.
KEPT = 20


#: The status with which a receiver ends the attempts.
GONE = 410


class Callbacks:
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

    def lost(self, id: str, stuck: StuckOrder) -> None:
        """Let another worker make the attempt again."""

    def given_up(self, id: str, stuck: StuckOrder) -> Done:
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
