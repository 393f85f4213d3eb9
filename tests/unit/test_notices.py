"""Notifiers are told of approvals: created, half-time, expired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from boyd import Agent
from boyd.models import ApprovalItem, Autonomy
from boyd.store import Verdict
from boyd.testing import Lab
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


def pending(lab: Lab) -> ApprovalItem:
    """The only item that waits."""
    [item] = lab.store.approvals.page(50).pending
    return item


def name(item: ApprovalItem) -> str:
    """The item's notice."""
    return f"notice:{item.id}"


def expire(lab: Lab, item: ApprovalItem) -> None:
    """Let the item's deadline pass; nobody has purged it."""
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})


def wait_of(lab: Lab, item: ApprovalItem) -> float:
    """Seconds from the proposal to the next notice."""
    at = lab.client.hget(f"boyd:{{test}}:{name(item)}", "executionNotBefore")
    return float(at) / 1000 - item.created_at.timestamp()


def test_created_half_time_and_expired_are_told_once_each() -> None:
    notifier = Notifier()
    lab = notifier.lab(ttl=3600)
    item = pending(lab)
    waits = []
    for _ in range(2):
        overdue(lab, name(item))
        waits.append(wait_of(lab, item))
    expire(lab, item)
    overdue(lab, name(item))
    overdue(lab, name(item))

    assert notifier.told == [
        ("created", "pending"),
        ("half-time", "pending"),
        ("expired", "expired"),
    ]
    assert waits == [pytest.approx(1800, abs=2), pytest.approx(3600, abs=2)]
    assert lab.client.zcard(DUE) == 0
    assert not lab.client.exists(f"boyd:{{test}}:{name(item)}")


def test_the_half_time_of_a_long_wait_is_not_told_before_it_comes() -> None:
    """What waits for more than ten minutes is not taken for a sign of a clock gone wrong."""
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

    assert notifier.stages == ["created"]
    assert wait_of(lab, item) == pytest.approx(43200, abs=2)


def test_a_message_that_comes_twice_tells_once() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.dispatcher.hints.extend([("job", name(item), 1)] * 3)
    lab.deliver()

    assert notifier.stages == ["created"]


def test_the_same_proposal_again_is_not_told_again() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    overdue(lab, name(pending(lab)))
    for _ in range(3):
        lab.run()
    lab.sweeper.sweep()
    lab.deliver()

    assert notifier.stages == ["created"]


@pytest.mark.parametrize("verdict", ["approved", "denied", "withdrawn"])
@pytest.mark.parametrize("stages", [0, 1, 2])
def test_after_it_was_resolved_nothing_more_is_told(verdict: Verdict, stages: int) -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    for _ in range(stages):
        overdue(lab, name(item))
    lab.resolver.answer(item.id, verdict, person("ann"))
    lab.deliver()
    overdue(lab, name(item))

    assert notifier.stages == ["created", "half-time"][:stages]
    assert not lab.client.exists(f"boyd:{{test}}:{name(item)}")
    assert lab.client.zcard(DUE) == 0


def test_an_item_that_a_purge_has_moved_is_told_as_expired_too() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    overdue(lab, name(item))
    overdue(lab, name(item))
    expire(lab, item)
    lab.store.approvals.expire(lab.engine.retention)
    overdue(lab, name(item))

    assert notifier.stages == ["created", "half-time", "expired"]


def test_a_notice_whose_worker_was_lost_is_given_again() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(name(item), 1, "lost/1")
    overdue(lab, name(item))
    overdue(lab, name(item))

    assert notifier.stages == ["created", "half-time"]


def test_a_notice_that_takes_down_its_workers_ends() -> None:
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
    assert not lab.client.exists(f"boyd:{{test}}:{name(item)}")


def test_without_a_worker_a_notice_waits() -> None:
    notifier = Notifier()
    lab = notifier.lab()
    item = pending(lab)
    lab.client.hset(f"boyd:{{test}}:{name(item)}", "queuedAt", 1)
    overdue(lab, name(item))

    assert notifier.stages == ["created"]


def test_without_notifiers_nothing_is_ordered() -> None:
    own = plugin(chooses(choice()), Recorder().action(autonomy=GATED))
    lab = Lab(Agent("test", plugins=[own]))
    lab.run()

    assert list(lab.client.scan_iter("boyd:{test}:notice:*")) == []
    assert lab.client.zcard(DUE) == 0


@pytest.mark.parametrize("approvals", [{"auto_expire": False}, {"ttl": 0}])
def test_what_never_expires_has_no_half_time(approvals: dict[str, Any]) -> None:
    notifier = Notifier()
    lab = notifier.lab(**approvals)
    item = pending(lab)
    for _ in range(3):
        overdue(lab, name(item))

    assert notifier.stages == ["created"]
    assert not lab.client.exists(f"boyd:{{test}}:{name(item)}")
    assert pending(lab).id == item.id


def test_a_notifier_that_fails_hinders_neither_the_others_nor_the_next_stage() -> None:
    told: list[str] = []

    def broken() -> None:
        raise OSError("no route")

    first = plugin(
        chooses(choice()), Recorder().action(autonomy=GATED), on_approval=lambda: broken()
    )
    second = plugin(id="q", on_approval=lambda stage: told.append(stage))
    lab = Lab(Agent("test", plugins=[first, second]))
    lab.run()
    item = pending(lab)
    overdue(lab, name(item))
    overdue(lab, name(item))

    assert told == ["created", "half-time"]


def test_the_item_is_told_as_expired_when_the_redis_clock_says_so() -> None:
    notifier = Notifier()
    lab = notifier.lab(ttl=3600)
    item = pending(lab)
    for _ in range(4):
        overdue(lab, name(item))

    assert notifier.stages == ["created", "half-time"]
    assert wait_of(lab, item) == pytest.approx(3600, abs=2)
