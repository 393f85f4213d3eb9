"""Notifies people of an agent's approvals, and clients of the end of their runs.

One job for each approval follows its stages. Each notification, of one stage to one recipient, is a
job of its own: a slow or dead recipient delays no other. Its record on the approval shows what
became of it.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from boyd import naming
from boyd.errors import Overrun
from boyd.models import (
    ASKING,
    FOLLOWING,
    ApprovalItem,
    Delivery,
    Fence,
    NotificationRecipient,
    NotificationRecord,
    NotificationStage,
    Occasion,
    awaits_outcome,
    current_stages,
    from_ms,
    next_stage_at,
)
from boyd.outbound import retry_delay
from boyd.phases import time_limit
from boyd.phases.phase_context import HOOK_TIMEOUT, describe
from boyd.plugin import Hook
from boyd.plugin.plugin_boundary import read_all
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, JobFailure, JobHandler, Later
from boyd.store import StuckJob, read_callback
from boyd.text.queues import CALLBACK

log = logging.getLogger("boyd.runtime")

#: Seconds after which a stage is checked that has no deadline; an answer comes at once.
_RECHECK = 86400.0
#: The same for an outcome, which also comes at once unless its message is lost.
_RECHECK_OUTCOME = 30.0
#: Most recipients of one plugin for a stage: one script plans them all, and Redis waits for it.
MAX_RECIPIENTS = 1000
#: Characters of an error in a record.
_MAX_ERROR = 300
_ENDED = Done("succeeded", 0.0)
_FAILED = Done("failed", 0.0)


class NotificationHandler(JobHandler):
    """Follows the stages of an approval and plans their notifications."""

    patient = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds that naming all recipients may take."""
        return self._engine.settings.phase_limit

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Plan the notifications of the stage that the item has reached, and wait for the next."""
        item = self._engine.store.find_approval(id)
        if item is None:
            return _ENDED
        now = self._engine.store.clock.now()
        for occasion in current_stages(item, now):
            self._plan(item, occasion)
        if item.status != "pending":
            return Later(_RECHECK_OUTCOME) if awaits_outcome(item, now) else _ENDED
        moment = next_stage_at(item, now)
        return Later(_RECHECK if moment is None else _seconds(now, moment))

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Try it again later."""
        return _again(failure)

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """Fail the job: every worker that ran it died."""
        return _FAILED

    def _plan(self, item: ApprovalItem, occasion: Occasion) -> None:
        engine, now, stage = self._engine, self._engine.store.clock.now(), occasion.stage
        records: dict[str, NotificationRecord] = {}
        waits: dict[str, float] = {}
        failures: list[Exception] = []
        for hook in engine.agent.host.hooks("on_approval"):
            try:
                recipients = _recipients(engine, hook.plugin_id, item, stage)
            except Exception as error:  # noqa: BLE001 - raised when the others are planned
                failures.append(error)
                continue
            for recipient in recipients:
                record = _record(hook.plugin_id, recipient, occasion)
                if _is_news(item, record):
                    records[record.name] = record
                    if recipient.not_before is not None and recipient.not_before > now:
                        waits[record.name] = _seconds(now, recipient.not_before)
        obsolete = [
            earlier.name
            for earlier in item.notifications
            if not earlier.has_ended and earlier.stage != stage
        ]
        jobs = engine.store.notification_records.plan(item.id, records, waits, obsolete)
        for name in jobs:
            engine.dispatcher.job(engine.agent.id, name, 1, CALLBACK)
        if failures:
            raise failures[0]


class DeliveryHandler(JobHandler):
    """Sends one notification to one recipient, at least once, with retries over several hours."""

    patient = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds one attempt may take."""
        return self._engine.settings.phase_limit

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make one attempt, unless the notification is obsolete or has to wait."""
        item, record = self._find(id)
        if item is None or record is None or record.has_ended:
            return _ENDED
        if obstacle := _reason_to_skip(item, record):
            return self._end(item, record, "skipped", fence, obstacle)
        recipients = _recipients(self._engine, record.plugin, item, record.stage)
        recipient = next(
            (candidate for candidate in recipients if candidate.id == record.recipient), None
        )
        if recipient is None:
            return self._end(item, record, "skipped", fence, "it is no longer configured")
        now = self._engine.store.clock.now()
        if self._is_overtaken(item, record, now):
            return self._end(item, record, "skipped", fence, "more has become of it already")
        if recipient.not_before is not None and recipient.not_before > now:
            return self._put_off(item, record, fence, recipient.not_before)
        keeper = item.keeper(now) if record.stage == "escalated" else None
        if keeper is not None:
            until = keeper.until or item.expires_at or now + timedelta(seconds=_RECHECK)
            return self._put_off(item, record, fence, until)
        return self._attempt(item, record, fence, now)

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Try it again later."""
        return _again(failure)

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """Fail the job: every worker that ran it died."""
        item, record = self._find(id)
        if item is None or record is None or record.has_ended:
            return _FAILED
        fence = Fence(naming.delivery(item.id, record.name), stuck.attempt, stuck.worker)
        return self._end(item, record, "failed", fence, "it took down its workers")

    def _find(self, id: str) -> tuple[ApprovalItem | None, NotificationRecord | None]:
        approval_id, _, name = id.partition(":")
        item = self._engine.store.find_approval(approval_id)
        records = item.notifications if item else []
        return item, next((record for record in records if record.name == name), None)

    def _is_overtaken(self, item: ApprovalItem, record: NotificationRecord, now: datetime) -> bool:
        """Check whether the recipient is about to get a later stage, which says the same or more.

        A message says what has become of the item when it is sent.
        """
        if item.status == "pending":
            return False
        [latest] = (occasion.stage for occasion in current_stages(item, now))
        if record.stage == latest:
            return False
        later = _recipients(self._engine, record.plugin, item, latest)
        return any(recipient.id == record.recipient for recipient in later)

    def _attempt(
        self, item: ApprovalItem, record: NotificationRecord, fence: Fence, now: datetime
    ) -> Done | Later:
        attempts = record.attempts + 1
        # Recorded first: if the worker dies now, nobody knows whether the message was sent.
        started = record.patched(
            {"state": "running", "attempts": attempts, "at": now, "next_at": None}
        )
        if not self._store(item, started, fence):
            return _ENDED
        error = self._send(item, started)
        if error is None:
            return self._end(item, started, "succeeded", fence)
        delay = retry_delay(attempts)
        if delay is None:
            return self._end(item, started, "failed", fence, error)
        again = self._engine.store.clock.now() + timedelta(seconds=delay)
        return self._put_off(item, started, fence, again, error)

    def _send(self, item: ApprovalItem, record: NotificationRecord) -> str | None:
        """Call the plugin once, and return the error, if any."""
        engine = self._engine
        hook = _hook(engine, record.plugin)
        ctx = engine.context(record.plugin)
        try:
            time_limit.call(
                lambda: hook(
                    approval=item, stage=record.stage, recipient=record.recipient, ctx=ctx
                ),
                HOOK_TIMEOUT,
            )
        except (Exception, Overrun) as error:  # noqa: BLE001 - it is recorded and tried again
            text = describe(error)[:_MAX_ERROR]
            log.warning("%s: notification %s failed: %s", engine.agent.id, record.name, text)
            return text
        return None

    def _put_off(
        self,
        item: ApprovalItem,
        record: NotificationRecord,
        fence: Fence,
        until: datetime,
        error: str | None = None,
    ) -> Done | Later:
        changes = {"state": "queued", "next_at": until, "error": error}
        if not self._store(item, record.patched(changes), fence):
            return _ENDED
        return Later(_seconds(self._engine.store.clock.now(), until))

    def _end(
        self,
        item: ApprovalItem,
        record: NotificationRecord,
        state: str,
        fence: Fence,
        error: str | None = None,
    ) -> Done:
        self._store(item, record.patched({"state": state, "next_at": None, "error": error}), fence)
        return _FAILED if state == "failed" else _ENDED

    def _store(self, item: ApprovalItem, record: NotificationRecord, fence: Fence) -> bool:
        return self._engine.store.notification_records.store(item.id, record, fence)


def _recipients(
    engine: Engine, plugin_id: str, item: ApprovalItem, stage: NotificationStage
) -> list[NotificationRecipient]:
    plugin = engine.agent.host.plugins.get(plugin_id)
    if plugin is None:
        return []
    ctx = engine.context(plugin_id)

    if stage == "escalated":
        name_recipients = partial(plugin.escalation_recipients, item, ctx)
    else:
        name_recipients = partial(plugin.notification_recipients, item, stage, ctx)
    read = partial(read_all, most=MAX_RECIPIENTS)
    return list(time_limit.call(lambda: read(name_recipients()), HOOK_TIMEOUT))


def _hook(engine: Engine, plugin_id: str) -> Hook:
    hooks = engine.agent.host.hooks("on_approval")
    return next(hook for hook in hooks if hook.plugin_id == plugin_id)


def _record(
    plugin_id: str, recipient: NotificationRecipient, occasion: Occasion
) -> NotificationRecord:
    return NotificationRecord(
        stage=occasion.stage,
        occasion=occasion.number,
        plugin=plugin_id,
        recipient=recipient.id,
        group=recipient.group,
        kind=recipient.kind,
        next_at=recipient.not_before,
    )


def _is_news(item: ApprovalItem, record: NotificationRecord) -> bool:
    """Report whether it is news to its recipient: what follows is not, without the question."""
    earlier = [
        notification
        for notification in item.notifications
        if notification.is_obsolete_after(record)
    ]
    return (
        record.stage not in FOLLOWING
        or not earlier
        or any(notification.attempts for notification in earlier)
    )


def _reason_to_skip(item: ApprovalItem, record: NotificationRecord) -> str | None:
    """Return why a notification is no longer sent, if so."""
    if record.stage in (*ASKING, "acknowledged") and item.status != "pending":
        return f"the approval is {item.status}"
    later = next(
        (
            notification.stage
            for notification in item.notifications
            if record.is_obsolete_after(notification)
        ),
        None,
    )
    return f"the notification {later} replaces it" if later else None


def _again(failure: JobFailure) -> Done | Later:
    delay = retry_delay(failure.errors)
    return _FAILED if delay is None else Later(delay)


def _seconds(now: datetime, moment: datetime) -> float:
    """Seconds until *moment*; a little when it has come, as 0 would continue at once."""
    return max(0.1, (moment - now).total_seconds())


#: Seconds that a callback and its deliveries are kept after the last delivery.
KEEP = 2 * 86400.0
#: Number of deliveries kept.
KEPT = 20
#: HTTP status with which a receiver unsubscribes, according to Standard Webhooks.
GONE = 410


class RunCallbackHandler(JobHandler):
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

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Count it as a failed attempt."""
        at = from_ms(float(fields["executionStartedAt"]))
        return self._after(fields, Delivery(at=at, ok=False, error=failure.reason, duration=0.0))

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """Fail the job: every worker that ran it died."""
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
