"""Real workers notify people by mail and webhook, through every mishap at least once."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import requests

from boyd import Agent
from boyd.models import ApprovalItem, Autonomy, NotificationRecord
from boyd.plugins.notifier import Notifier
from boyd.security.links import LinkSigner
from boyd.store import connect
from boyd.testing import Lab
from boyd_cli.views import approval_view
from faults.clocks import Clock, missing, tidy
from harness import Deployment, free_port, wait_until
from kit import Recorder, choice, chooses, person, plugin
from mail_kit import Mailbox, mail_server, parts_of
from plugin_kit import site
from redis_kit import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.slow]

SECRET = "a secret with more than thirty-two characters"
LINK = re.compile(r"https://boyd\.example\.com/console/answer/(\S+)")
MODULE = "agents.notified:agent"


def notify(deployment: Deployment, *recipients: Any) -> None:
    """Have workers notify these recipients."""
    groups = [{"name": "ops", "recipients": list(recipients)}]
    deployment.environment |= {
        "NOTIFIED": json.dumps(groups),
        "BOYD_API__URL": "https://boyd.example.com",
        "BOYD_APPROVAL_SECRET": SECRET,
    }


def propose(deployment: Deployment) -> ApprovalItem:
    """The item that an iteration proposes."""
    deployment.launcher("notified").trigger("test")
    pending = deployment.agent("notified").approvals.page
    return wait_until(lambda: pending(5).pending)[0]  # type: ignore[no-any-return]


def records(deployment: Deployment, item: ApprovalItem) -> dict[str, NotificationRecord]:
    """The records of the notifications, by stage and recipient."""
    approval = deployment.agent("notified").approvals.get(item.id)
    assert approval is not None
    return {
        f"{notification.stage} {notification.recipient}": notification
        for notification in approval.notifications
    }


def make_due(deployment: Deployment, item: ApprovalItem, recipient: str) -> None:
    """Let the time pass until the next attempt."""
    name = f"delivery:{item.id}:waiting:notifier:{recipient}"
    client = deployment.store.client
    client.hset(f"boyd:{{notified}}:{name}", "executionNotBefore", 1)
    client.zadd("boyd:{notified}:due", {name: 1})


def test_a_link_in_a_mail_approves_and_the_answer_is_mailed_too(deployment: Deployment) -> None:
    with mail_server() as box:
        jane = {"url": box.address, "as": "mail:jane@example.com"}
        notify(deployment, jane)
        deployment.worker("w0", MODULE)
        item = propose(deployment)
        [question] = wait_until(lambda: box.mails[:1])
        text = parts_of(question)["text/plain"]
        for line in ("why: it is time", 'params: {"text": "written"}', "preview: would write"):
            assert line in text
        match = LINK.search(text)
        assert match is not None
        link = LinkSigner(SECRET).read(match[1])
        assert link is not None
        assert link.problem(item, datetime.now(UTC)) is None
        assert f'<a href="{match[0]}">' in parts_of(question)["text/html"]

        done = deployment.resolver("notified").answer_link(link, "approved")
        assert done.counts
        wait_until(lambda: deployment.effects() == ["written"])
        subject = "Succeeded: writer:write (notified)"
        executed = wait_until(
            lambda: next((mail for mail in box.mails if mail["Subject"] == subject), None)
        )
        assert executed["References"] == question["References"]
        assert LINK.search(parts_of(executed)["text/plain"]) is None
        wait_until(lambda: records(deployment, item)["executed ops/0"].state == "succeeded")
    states = {
        name: (record.state, record.attempts) for name, record in records(deployment, item).items()
    }
    # The answer is told, too, unless the execution has ended before.
    assert states.pop("answered ops/0", None) in (None, ("succeeded", 1), ("skipped", 0))
    assert states == {"waiting ops/0": ("succeeded", 1), "executed ops/0": ("succeeded", 1)}
    assert SECRET not in deployment.log("w0")
    stored = deployment.store.client.hgetall(f"boyd:{{notified}}:approval:{item.id}")
    assert "127.0.0.1" not in json.dumps(stored), "addresses are secrets"
    assert match[1] not in json.dumps(stored)


def test_a_worker_killed_while_it_sends_is_followed_by_another_that_sends_again(
    deployment: Deployment,
) -> None:
    with site() as chat:
        notify(deployment, chat.url)
        deployment.worker("w0", MODULE)

        def kill() -> None:
            if len(chat.requests) == 1:
                deployment.kill("w0", signal.SIGKILL)

        chat.hold = kill
        item = propose(deployment)
        wait_until(lambda: chat.requests)
        deployment.worker("w1", MODULE)
        wait_until(lambda: records(deployment, item)["waiting ops/0"].state == "succeeded")
        ids = [headers["webhook-id"] for _, _, headers, _ in chat.requests]
    assert ids == [f"approval_{item.id}_waiting"] * 2
    assert records(deployment, item)["waiting ops/0"].attempts == 2


def state_of(deployment: Deployment, item: ApprovalItem, name: str) -> str | None:
    """The state of a notification, if it has been planned."""
    notification = records(deployment, item).get(name)
    return notification.state if notification else None


@pytest.mark.long
def test_an_acknowledgement_stops_the_next_escalation(
    deployment: Deployment,
) -> None:
    with site() as ops, site() as leads, site() as boss:
        notify(deployment, ops.url)
        sites = {"ops": ops, "leads": leads, "boss": boss}
        groups = [
            {"name": name, "recipients": [place.url], "default": name == "ops"}
            for name, place in sites.items()
        ]
        steps = [{"group": "leads", "after": 3}, {"group": "boss", "after": 15}]
        deployment.environment |= {
            "NOTIFIED": json.dumps(groups),
            "ESCALATIONS": json.dumps(steps),
        }
        deployment.worker("w0", MODULE)
        item = propose(deployment)
        wait_until(lambda: ops.requests)
        deployment.kill("w0", signal.SIGKILL)
        deployment.worker("w1", MODULE)
        wait_until(lambda: leads.requests)

        base, eve = deployment.api("api"), deployment.key("eve", "read", "approvals")
        path = f"{base}/api/v0/approvals/{item.id}"
        answer = requests.post(f"{path}/acknowledge", headers=eve, timeout=60)
        assert answer.json()["acknowledgement"]["by"] == "eve"
        wait_until(lambda: state_of(deployment, item, "acknowledged ops/0") == "succeeded")
        clock = deployment.agent("notified").clock
        wait_until(lambda: (clock.now() - item.created_at).total_seconds() > 16)
        held = "escalated boss/0"
        wait_until(lambda: records(deployment, item)[held].next_at == item.expires_at)
        requests.post(f"{path}/deny", headers=eve, timeout=60)
        wait_until(lambda: state_of(deployment, item, held) == "skipped")
        wait_until(lambda: state_of(deployment, item, "answered leads/0") == "succeeded")

        texts = [json.loads(body)["text"].partition(":")[0] for _, _, _, body in leads.requests]
        assert texts == ["Escalated, approval needed", "eve has it", "Denied by eve"]
        assert boss.requests == []


def test_a_target_that_is_down_delays_no_other_and_gets_its_message_when_it_is_up(
    deployment: Deployment,
) -> None:
    port = free_port()
    with site() as chat:
        notify(deployment, Mailbox(port).address, chat.url)
        deployment.worker("w0", MODULE)
        item = propose(deployment)
        wait_until(lambda: len(chat.requests) == 1)
        wait_until(lambda: records(deployment, item)["waiting ops/0"].state == "queued")
        wait_until(lambda: records(deployment, item)["waiting ops/0"].error)
        down = records(deployment, item)["waiting ops/0"]
        assert (down.attempts, down.kind) == (1, "mailto")
        assert "example.com" not in str(down.error)
        with mail_server(port) as box:
            make_due(deployment, item, "ops/0")
            wait_until(lambda: box.mails)
            wait_until(lambda: records(deployment, item)["waiting ops/0"].state == "succeeded")
        up = records(deployment, item)["waiting ops/0"]
        assert (up.attempts, up.error) == (2, None)
        assert len(chat.requests) == 1
        _is_visible(deployment, item)


def _is_visible(deployment: Deployment, item: ApprovalItem) -> None:
    """The API, its metrics and the command line show what became of the notifications."""
    base, headers = deployment.api("api"), deployment.key("ann", "read")
    body = requests.get(f"{base}/api/v0/approvals/{item.id}", headers=headers, timeout=60).json()
    notifications = [
        (notification["kind"], notification["state"], notification["attempts"])
        for notification in body["notifications"]
    ]
    assert notifications == [("mailto", "succeeded", 2), ("webhook", "succeeded", 1)]
    metrics = requests.get(f"{base}/metrics", headers=headers, timeout=60).text
    assert 'boyd_notifications_total{agent="notified",state="succeeded"} 2.0' in metrics
    approval = deployment.agent("notified").approvals.get(item.id)
    assert approval is not None
    with redirect_stdout(StringIO()) as printed:
        approval_view.show(approval, deployment.agent("notified").clock.now())
    text = printed.getvalue()
    assert "waiting: ops by mailto sent; 2 attempts" in text
    assert "waiting: ops by webhook sent; 1 attempt," in text


def test_a_target_that_never_answers_delays_neither_the_loop_nor_other_targets(
    deployment: Deployment,
) -> None:
    with site() as slow, site() as chat:
        release = threading.Event()
        slow.hold = release.wait
        notify(deployment, slow.url, chat.url)
        deployment.worker("w0", MODULE)
        item = propose(deployment)
        wait_until(lambda: slow.requests)
        wait_until(lambda: chat.requests)
        deployment.ended("notified", deployment.launcher("notified").trigger("test").iteration)
        deployment.resolver("notified").answer(item.id, "approved", person("ann"))
        wait_until(lambda: deployment.effects() == ["written"])
        assert records(deployment, item)["waiting ops/0"].state == "running"
        release.set()


def test_a_question_about_what_waits_takes_nobody_the_right_to_answer(
    deployment: Deployment,
) -> None:
    deployment.worker("w0", MODULE)
    item = propose(deployment)
    base = deployment.api("api") + "/api/v0"
    ann = deployment.key("ann", "read", "runs", "approvals")
    body = {"title": "Why does it want to write?", "description": "I look at it"}
    run = requests.post(f"{base}/runs", json=body, headers=ann, timeout=60).json()

    def joining_approval() -> Any:
        approval = requests.get(f"{base}/approvals/{item.id}", headers=ann, timeout=60).json()
        return approval if run["id"] in approval["runIds"] else None

    waiting = wait_until(joining_approval)
    assert (waiting["seen"], waiting["requestedBy"]) == (2, [])
    answer = requests.post(f"{base}/approvals/{item.id}/approve", headers=ann, timeout=90)
    assert (answer.status_code, answer.json()["approval"]["actedBy"]) == (200, "ann")
    assert deployment.effects() == ["written"]


@pytest.fixture(name="night")
def _night(tmp_path: Path) -> Iterator[tuple[str, Clock]]:
    """A Redis whose clock can be set: in Vienna, it is the night in which clocks go forward."""
    if reason := missing():
        pytest.skip(reason)
    clock = Clock(tmp_path / "clock")
    set_to(clock, "2027-03-27T23:30+01:00")
    try:
        with RedisServer(tmp_path, prefix=clock.command) as server:
            yield server.url, clock
    finally:
        tidy()


def set_to(clock: Clock, moment: str) -> None:
    """Set the clock."""
    clock.shift((datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds())


def test_quiet_hours_end_when_the_clocks_of_the_zone_say_so(night: tuple[str, Clock]) -> None:
    url, clock = night
    quiet = {"start": 22, "end": 7, "timezone": "Europe/Vienna"}
    with site() as sleeper, site() as awake:
        groups: list[dict[str, Any]] = [
            {"name": "sleeper", "recipients": [sleeper.url], "quiet": quiet},
            {"name": "awake", "recipients": [awake.url]},
        ]
        lab = lab_on(url, groups)
        lab.run()
        settle(lab, clock)
        [item] = lab.store.approvals.page(5).pending
        [held] = [
            notification for notification in item.notifications if notification.group == "sleeper"
        ]
        assert (len(awake.requests), len(sleeper.requests)) == (1, 0)
        assert held.next_at == datetime.fromisoformat("2027-03-28T07:00+02:00")

        for moment, sent in (("06:58", 0), ("07:01", 1)):
            set_to(clock, f"2027-03-28T{moment}+02:00")
            settle(lab_on(url, groups), clock)
            assert len(sleeper.requests) == sent, moment


def lab_on(url: str, groups: list[dict[str, Any]]) -> Lab:
    """A lab on that Redis, which has just read its clock."""
    action = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    parts = [plugin(chooses(choice()), action), Notifier(groups=groups)]
    return Lab(Agent("test", plugins=parts, approvals={"ttl": 86400}), client=connect(url))


def settle(lab: Lab, clock: Clock) -> None:
    """Do everything that is due within seconds; after a jump, sweepers wait for a lease first.

    Redis may see two steps as one: that still is less than a lease.
    """
    for _ in range(20):
        lab.sweeper.sweep()
        lab.deliver()
        clock.shift(clock.seconds + 1)
