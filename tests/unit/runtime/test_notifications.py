"""People are notified of an approval when it waits, at half of its time, and when answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any

import pytest

from boyd import Agent, Context, Plugin
from boyd.models import (
    ApprovalItem,
    Autonomy,
    Fence,
    NotificationRecipient,
    NotificationRecord,
    to_ms,
    utc_now,
)
from boyd.outbound import DELAYS, callback
from boyd.runtime.jobs.notifications import MAX_RECIPIENTS
from boyd.store import Verdict
from boyd.testing import Lab
from boyd_cli.views import approval_view
from kit import Recorder, choice, chooses, overdue, person, plugin

GATED = Autonomy(mode="approval-required")
DUE = "boyd:{test}:due"


class Notifier:
    """Remembers what it was told."""

    def __init__(self, tell: Callable[[str], None] = lambda stage: None) -> None:
        self.told: list[tuple[str, str]] = []
        self._tell = tell

    @property
    def stages(self) -> list[str]:
        """The stages it was told of."""
        return [stage for stage, _ in self.told]

    def lab(self, **approvals: Any) -> Lab:
        """A lab with this notifier, whose agent has proposed its action."""

        def on_approval(approval: ApprovalItem, stage: str) -> None:
            self.told.append((stage, approval.status))
            self._tell(stage)

        parts = (chooses(choice()), Recorder().action(autonomy=GATED))
        own = plugin(*parts, on_approval=on_approval)
        lab = Lab(Agent("test", plugins=[own], approvals=approvals))
        lab.run()
        return lab


class Pager(Plugin):
    """Two recipients, of which one may be quiet, gone or broken."""

    id = "pager"

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self.quiet_until: datetime | None = None
        self.names = ["desk", "phone"]
        self.broken: set[str] = set()
        self.unable = False

    def notification_recipients(
        self, approval: ApprovalItem, stage: str, ctx: Context
    ) -> Iterable[NotificationRecipient]:
        if self.unable:
            raise OSError("no list of recipients")
        quiet = {"phone": self.quiet_until}
        for name in self.names:
            yield NotificationRecipient(
                id=name, group="ops", kind="test", not_before=quiet.get(name)
            )

    def on_approval(self, approval: ApprovalItem, stage: str, recipient: str) -> None:
        if recipient in self.broken:
            raise OSError(f"{recipient} is down")
        self.sent.append((stage, recipient))

    def lab(self, **approvals: Any) -> Lab:
        """A lab with this plugin, whose agent has proposed its action."""
        first = plugin(chooses(choice()), Recorder().action(autonomy=GATED))
        lab = Lab(Agent("test", plugins=[first, self], approvals=approvals))
        lab.run()
        return lab


def pending(lab: Lab) -> ApprovalItem:
    """The only item that waits."""
    [item] = lab.store.approvals.page(50).pending
    return item


def name(item: ApprovalItem) -> str:
    """The job that follows the item's stages."""
    return f"notice:{item.id}"


def delivery(item: ApprovalItem, stage: str, recipient: str) -> str:
    """The job of one notification."""
    return f"delivery:{item.id}:{stage}:pager:{recipient}"


def record(lab: Lab, item: ApprovalItem, stage: str, recipient: str) -> NotificationRecord:
    """The record of one notification."""
    approval = lab.store.approvals.get(item.id)
    assert approval is not None
    [record_] = [r for r in approval.notifications if (r.stage, r.recipient) == (stage, recipient)]
    return record_


def expire(lab: Lab, item: ApprovalItem) -> None:
    """Let the item's deadline pass; nobody has purged it."""
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})


def pass_half(lab: Lab, item: ApprovalItem) -> None:
    """Let half of the item's time pass."""
    assert item.expires_at is not None
    half = (item.expires_at - item.created_at) / 2
    times = {"createdAt": item.created_at - half, "expiresAt": item.expires_at - half}
    fields = {name: to_ms(time) for name, time in times.items()}
    lab.client.hset(f"boyd:{{test}}:approval:{item.id}", mapping=fields)
    overdue(lab, name(item))


def overdue_notice(lab: Lab, item: ApprovalItem) -> None:
    """Let the notifications of the item's stage be planned."""
    overdue(lab, name(item))


def wait_of(lab: Lab, item: ApprovalItem) -> float:
    """Seconds from the proposal to the next stage."""
    at = lab.client.hget(f"boyd:{{test}}:{name(item)}", "executionNotBefore")
    return float(at) / 1000 - item.created_at.timestamp()


def jobs_of(lab: Lab) -> list[str]:
    """The jobs that are left of notifications."""
    keys = [key.removeprefix("boyd:{test}:") for key in lab.client.scan_iter("boyd:{test}:*")]
    return [key for key in keys if key.startswith(("notice:", "delivery:"))]


def test_people_are_notified_once_of_each_stage() -> None:
    notifier = Notifier()
    lab = notifier.lab(ttl=3600)
    item = pending(lab)
    overdue(lab, name(item))
    waits = [wait_of(lab, item)]
    pass_half(lab, item)
    waits.append(wait_of(lab, item))
    expire(lab, item)
    overdue(lab, name(item))
    overdue(lab, name(item))

    assert notifier.told == [
        ("waiting", "pending"),
        ("half-time", "pending"),
        ("answered", "expired"),
    ]
    assert waits == [pytest.approx(1800, abs=2), pytest.approx(1800, abs=2)]
    assert lab.client.zcard(DUE) == 0
    assert jobs_of(lab) == []


def test_the_half_time_notification_of_a_long_wait_is_not_sent_early() -> None:
    """A wait of more than ten minutes must not look like a clock gone wrong."""
    notifier = Notifier()
    lab = notifier.lab(ttl=86400)
    item = pending(lab)
    overdue(lab, name(item))
    for _ in range(3):
        lab.sweeper.sweep()
        lab.deliver()
    lab.client.zadd(DUE, {name(item): 1})
    lab.sweeper.sweep()
    lab.dispatcher.hints.append(("job", name(item), 1))
    lab.deliver()

    assert notifier.stages == ["waiting"]
    assert wait_of(lab, item) == pytest.approx(43200, abs=2)


def test_a_message_that_comes_twice_notifies_once() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.dispatcher.hints.extend([("job", name(item), 1)] * 3)
    lab.deliver()
    sent = f"delivery:{item.id}:waiting:p:"
    lab.dispatcher.hints.extend([("job", sent, 1)] * 3)
    lab.deliver()

    assert notifier.stages == ["waiting"]


def test_the_same_proposal_again_notifies_nobody_again() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    overdue(lab, name(pending(lab)))
    for _ in range(3):
        lab.run()
    lab.sweeper.sweep()
    lab.deliver()

    assert pending(lab).seen == 4
    assert notifier.stages == ["waiting"]


@pytest.mark.parametrize("verdict", ["approved", "denied", "withdrawn"])
@pytest.mark.parametrize("stages", [0, 1, 2])
def test_an_answer_is_notified_at_once_and_ends_the_notifications(
    verdict: Verdict, stages: int
) -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    for step in (overdue_notice, pass_half)[:stages]:
        step(lab, item)
    lab.resolver.answer(item.id, verdict, person("ann"))
    # The job is due by itself now: nobody has moved the time.
    lab.sweeper.sweep()
    lab.deliver()

    assert notifier.told == [
        *[("waiting", "pending"), ("half-time", "pending")][:stages],
        # What was executed by then has an outcome, which replaces the answer.
        ("executed" if verdict == "approved" else "answered", verdict),
    ]
    assert jobs_of(lab) == []
    assert lab.client.zcard(DUE) == 0


def test_an_outcome_is_not_notified_twice_when_it_overtakes_the_message_about_the_answer() -> None:
    pager = Pager()
    lab = pager.lab()
    item = pending(lab)
    overdue(lab, name(item))
    pager.broken = {"phone"}
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.dispatcher.hints.clear()
    overdue(lab, name(item))
    assert record(lab, item, "answered", "phone").state == "queued"
    overdue(lab, f"approval:{item.id}")
    pager.broken = set()
    # The next attempt comes before the message about the outcome is planned.
    lab.client.zrem(DUE, name(item))
    overdue(lab, delivery(item, "answered", "phone"))
    overdue(lab, name(item))

    assert [stage for stage, to in pager.sent if to == "phone"] == ["waiting", "executed"]


def test_expiry_is_notified_as_an_answer() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    overdue(lab, name(item))
    pass_half(lab, item)
    expire(lab, item)
    lab.store.approvals.expire(lab.engine.retention)
    lab.sweeper.sweep()
    lab.deliver()

    assert notifier.told[2:] == [("answered", "expired")]


def test_a_job_whose_worker_was_lost_goes_on() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(name(item), 1, "lost/1")
    overdue(lab, name(item))
    pass_half(lab, item)

    assert notifier.stages == ["waiting", "half-time"]


def test_a_job_that_takes_down_its_workers_ends() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.dispatcher.hints.clear()
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(name(item), attempt, f"lost/{attempt}")
        lab.client.zadd(DUE, {name(item): 1})
        lab.sweeper.sweep()
        lab.dispatcher.hints.clear()

    assert lab.client.zcard(DUE) == 0
    assert jobs_of(lab) == []


def test_without_a_worker_a_job_waits() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.client.hset(f"boyd:{{test}}:{name(item)}", "queuedAt", 1)
    overdue(lab, name(item))

    assert notifier.stages == ["waiting"]


def test_without_notifiers_there_are_no_jobs() -> None:
    own = plugin(chooses(choice()), Recorder().action(autonomy=GATED))
    lab = Lab(Agent("test", plugins=[own]))
    lab.run()

    assert jobs_of(lab) == []
    assert lab.client.zcard(DUE) == 0


@pytest.mark.parametrize("approvals", [{"auto_expire": False}, {"ttl": 0}])
def test_an_item_that_never_expires_has_no_half_time_notification(
    approvals: dict[str, Any],
) -> None:
    notifier = Notifier()
    lab = notifier.lab(**approvals)
    item = pending(lab)
    for _ in range(3):
        overdue(lab, name(item))
    assert notifier.stages == ["waiting"]

    lab.resolver.answer(item.id, "denied", person("ann"))
    lab.sweeper.sweep()
    lab.deliver()
    assert notifier.told == [("waiting", "pending"), ("answered", "denied")]


# Each recipient by itself


def test_a_target_that_is_down_delays_no_other_and_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pager = Pager()
    pager.broken = {"phone"}
    lab = pager.lab()
    item = pending(lab)
    overdue(lab, name(item))
    assert pager.sent == [("waiting", "desk")]
    down = record(lab, item, "waiting", "phone")
    assert (down.state, down.attempts, down.error) == ("queued", 1, "OSError: phone is down")
    assert down.next_at is not None
    assert timedelta(seconds=3) < down.next_at - utc_now() < timedelta(seconds=6)
    approval_view.show(pending(lab), down.next_at - timedelta(seconds=2.5))
    assert "next in 3 s; OSError: phone is down" in capsys.readouterr().out

    overdue(lab, delivery(item, "waiting", "phone"))
    assert record(lab, item, "waiting", "phone").attempts == 2
    pager.broken = set()
    overdue(lab, delivery(item, "waiting", "phone"))
    up = record(lab, item, "waiting", "phone")
    assert (up.state, up.attempts, up.error, up.next_at) == ("succeeded", 3, None, None)
    assert pager.sent == [("waiting", "desk"), ("waiting", "phone")]


def test_a_target_that_stays_down_is_given_up_and_the_record_says_so() -> None:
    pager = Pager()
    pager.broken = {"phone"}
    lab = pager.lab(ttl=0)
    item = pending(lab)
    overdue(lab, name(item))
    for _ in range(8):
        overdue(lab, delivery(item, "waiting", "phone"))

    notification = record(lab, item, "waiting", "phone")
    assert (notification.state, notification.attempts) == ("failed", 9)
    assert jobs_of(lab) == [name(item)]
    totals = lab.client.hmget("boyd:{test}:loop", "notified:succeeded", "notified:failed")
    assert totals == ["1", "1"]


def test_a_notification_whose_worker_was_killed_is_sent_again_and_both_attempts_count() -> None:
    pager = Pager()
    lab = pager.lab()
    item = pending(lab)
    pager.names = ["desk"]
    overdue_without_delivery(lab, item)
    job = delivery(item, "waiting", "desk")
    fields = lab.store.jobs.enter(job, 1, "killed/1")
    assert fields
    notification = record(lab, item, "waiting", "desk")
    started = notification.patched({"state": "running", "attempts": 1, "at": utc_now()})
    assert lab.store.notification_records.store(item.id, started, Fence(job, 1, "killed/1"))
    lab.dispatcher.hints.clear()
    overdue(lab, job)

    final = record(lab, item, "waiting", "desk")
    assert (final.state, final.attempts) == ("succeeded", 2)
    assert not lab.store.notification_records.store(item.id, started, Fence(job, 1, "killed/1")), (
        "fenced"
    )


def overdue_without_delivery(lab: Lab, item: ApprovalItem) -> None:
    """Plan the notifications of the item; their messages stay."""
    lab.client.zadd(DUE, {name(item): 1})
    lab.sweeper.sweep()
    lab.step()


def test_a_notification_that_takes_down_its_workers_is_recorded_as_failed() -> None:
    pager = Pager()
    lab = pager.lab()
    item = pending(lab)
    pager.names = ["desk"]
    overdue_without_delivery(lab, item)
    lab.dispatcher.hints.clear()
    job = delivery(item, "waiting", "desk")
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(job, attempt, f"lost/{attempt}")
        lab.client.zadd(DUE, {job: 1})
        lab.sweeper.sweep()
        lab.dispatcher.hints.clear()

    notification = record(lab, item, "waiting", "desk")
    assert (notification.state, notification.error) == ("failed", "it took down its workers")


def test_a_plugin_that_cannot_name_its_targets_delays_no_other_and_is_asked_again() -> None:
    stages: list[str] = []
    pager = Pager()
    pager.unable = True
    first = plugin(
        chooses(choice()),
        Recorder().action(autonomy=GATED),
        on_approval=lambda stage: stages.append(stage),
    )
    lab = Lab(Agent("test", plugins=[pager, first]))
    lab.run()
    item = pending(lab)
    overdue(lab, name(item))
    assert stages == ["waiting"]
    pager.unable = False
    overdue(lab, name(item))
    assert (stages, len(pager.sent)) == (["waiting"], 2)


@pytest.mark.parametrize("method", ["notification_recipients", "escalation_recipients"])
def test_a_list_of_targets_without_an_end_is_refused(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = count()

    def endless(*_: Any) -> Iterator[NotificationRecipient]:
        return (
            NotificationRecipient(id=f"t{n}", group="ops", kind="test")
            for n in takewhile(lambda n: n < 20 * MAX_RECIPIENTS, numbers)
        )

    monkeypatch.setattr(Pager, method, endless)
    lab = Pager().lab()
    overdue(lab, name(pending(lab)))

    assert f"gave more than {MAX_RECIPIENTS} values" in caplog.text
    assert next(numbers) % (MAX_RECIPIENTS + 1) == 0


def test_an_error_long_after_the_last_one_is_tried_again_as_soon_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callback, "JITTER", 0.0)
    pager = Pager()
    lab = pager.lab()
    item = pending(lab)
    job = f"boyd:{{test}}:{name(item)}"
    for _ in range(len(DELAYS) + 1):
        pager.unable = True
        overdue(lab, name(item))
        assert lab.client.hget(job, "executionWait") == str(int(DELAYS[0] * 1000))
        pager.unable = False
        overdue(lab, name(item))

    pager.unable = True
    for delay in DELAYS:
        overdue(lab, name(item))
        assert lab.client.hget(job, "executionWait") == str(int(delay * 1000))
    overdue(lab, name(item))
    assert not lab.client.exists(job)


# Quiet hours


def test_a_held_message_is_sent_when_quiet_hours_end() -> None:
    pager = Pager()
    pager.quiet_until = utc_now() + timedelta(hours=3)
    lab = pager.lab(ttl=86400)
    item = pending(lab)
    overdue(lab, name(item))
    held = record(lab, item, "waiting", "phone")
    assert pager.sent == [("waiting", "desk")]
    assert (held.state, held.attempts, held.next_at) == ("queued", 0, pager.quiet_until)

    overdue(lab, delivery(item, "waiting", "phone"))
    assert pager.sent == [("waiting", "desk")], "quiet hours last on"
    pager.quiet_until = None
    overdue(lab, delivery(item, "waiting", "phone"))
    assert pager.sent == [("waiting", "desk"), ("waiting", "phone")]


def test_a_held_message_is_not_sent_once_the_item_was_answered() -> None:
    pager = Pager()
    pager.quiet_until = utc_now() + timedelta(hours=3)
    lab = pager.lab(ttl=86400)
    item = pending(lab)
    overdue(lab, name(item))
    lab.resolver.answer(item.id, "denied", person("ann"))
    for _ in range(3):
        lab.sweeper.sweep()
        lab.deliver()

    skipped = record(lab, item, "waiting", "phone")
    assert (skipped.state, skipped.error) == ("skipped", "the approval is denied")
    assert pager.sent == [("waiting", "desk"), ("answered", "desk")], "phone was never asked"
    assert jobs_of(lab) == []


def test_of_two_held_messages_only_the_later_one_is_sent() -> None:
    pager = Pager()
    pager.quiet_until = utc_now() + timedelta(hours=30)
    lab = pager.lab(ttl=86400)
    item = pending(lab)
    overdue(lab, name(item))
    pass_half(lab, item)
    lab.sweeper.sweep()
    lab.deliver()
    assert record(lab, item, "waiting", "phone").error == "the notification half-time replaces it"
    pager.quiet_until = None
    overdue(lab, delivery(item, "half-time", "phone"))
    assert [message for message in pager.sent if message[1] == "phone"] == [("half-time", "phone")]


def test_a_target_that_was_removed_meanwhile_is_skipped() -> None:
    pager = Pager()
    pager.quiet_until = utc_now() + timedelta(hours=3)
    lab = pager.lab(ttl=86400)
    item = pending(lab)
    overdue(lab, name(item))
    pager.names = ["desk"]
    overdue(lab, delivery(item, "waiting", "phone"))
    notification = record(lab, item, "waiting", "phone")
    assert (notification.state, notification.error) == ("skipped", "it is no longer configured")
