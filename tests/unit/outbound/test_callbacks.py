"""Callbacks deliver the end of a run to its submitter."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from boyd.models import Autonomy, Callback, Delivery, Run, utc_now
from boyd.outbound import DELAYS
from boyd.plugin import Action, Orienter
from boyd.testing import TESTER, Lab
from kit import Recorder, agent, assessed, choice, chooses, overdue, person, reads

GATED = Autonomy(mode="approval-required")
URL = "https://example.com/done"


class Receiver:
    """Takes callbacks, and refuses as many as it is told to."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.calls: list[tuple[str, dict[str, Any], str]] = []

    def post(self, url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
        """Take one."""
        self.calls.append((url, json.loads(body), webhook_id))
        ok = len(self.calls) > self.refuses
        return Delivery(at=at, ok=ok, status=200 if ok else 503, duration=1.0)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The posted bodies."""
        return [body for _, body, _ in self.calls]


def lab_for(receiver: Receiver, action: Action | None = None, **settings: Any) -> Lab:
    """A lab whose agent looks into runs, and acts if it has an action."""
    parts: list[Any] = [reads("o", "the disk is full")]
    parts += [chooses(choice()), action] if action else []
    return Lab(agent(*parts, **settings), post=receiver.post)


def submit(lab: Lab) -> str:
    """A run that wants to be called back, after its iteration."""
    run_id = lab.submit("look", callback_url=URL).run.id
    lab.deliver()
    return run_id


def deliver_callback(lab: Lab, run_id: str) -> Callback:
    """Let what is due of the callback happen; how far it is."""
    overdue(lab, f"callback:{run_id}")
    callback = lab.store.runs.callback(run_id)
    assert callback is not None
    return callback


def now(lab: Lab, run_id: str) -> Run:
    """The run as it is now."""
    run = lab.store.runs.get(run_id)
    assert run is not None
    return run


def test_a_completed_run_is_delivered_once_with_its_result() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    callback = deliver_callback(lab, run_id)
    told_again = deliver_callback(lab, run_id)
    run = now(lab, run_id)
    [(url, body, webhook_id)] = receiver.calls

    assert run.result is not None
    assert (url, webhook_id) == (URL, f"run_{run_id}")
    assert run.completed_at is not None
    assert body == {
        "runId": run_id,
        "status": "completed",
        "result": run.result.to_wire(),
        "completedAt": run.completed_at.isoformat().replace("+00:00", "Z"),
    }
    assert callback == told_again
    assert (callback.run_id, callback.url, callback.state, callback.attempts) == (
        run_id,
        URL,
        "succeeded",
        1,
    )
    assert [d.status for d in callback.deliveries] == [200]


def test_a_run_without_a_callback_url_jobs_none() -> None:
    lab = lab_for(Receiver())
    run_id = lab.submit("look").run.id
    lab.deliver()

    assert lab.store.runs.callback(run_id) is None
    assert not lab.store.runs.redeliver(run_id)
    assert lab.client.zcard("boyd:{test}:due") == 0


def test_before_a_run_has_ended_there_is_no_callback() -> None:
    lab = lab_for(Receiver(), Recorder().action(autonomy=GATED))
    run_id = submit(lab)

    assert now(lab, run_id).status == "investigating"
    assert lab.store.runs.callback(run_id) is None


def test_the_callback_of_a_failed_run_contains_the_error() -> None:
    receiver = Receiver()
    lab = lab_for(receiver, Recorder(error=OSError("no route")).action())
    deliver_callback(lab, submit(lab))
    [body] = receiver.bodies

    assert body["status"] == "failed"
    assert [done["description"] for done in body["result"]["actionsPerformed"]] == [
        "OSError: no route"
    ]


def test_a_run_whose_iteration_broke_is_delivered_as_failed() -> None:
    receiver = Receiver()
    orienter = Orienter(name="o", orient=lambda: assessed("x"))
    lab = Lab(agent(orienter), post=receiver.post)
    run_id = lab.submit("look", callback_url=URL).run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "complete")
    lab.client.hset("boyd:{test}:iteration", "error", "decide failed")
    lab.deliver()
    deliver_callback(lab, run_id)

    assert [body["status"] for body in receiver.bodies] == ["failed"]


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("approved", "completed", None),
        ("denied", "failed", "the approval was denied"),
        ("withdrawn", "failed", "the approval was withdrawn"),
        ("expired", "failed", "the approval has expired"),
        ("cancelled", "cancelled", "never mind"),
    ],
)
def test_a_run_that_ends_with_its_approval_is_delivered(
    end: Any, status: str, reason: str | None
) -> None:
    receiver = Receiver()
    lab = lab_for(receiver, Recorder("freed 3 GB").action(autonomy=GATED))
    run_id = submit(lab)
    [item] = lab.store.approvals.page(5).pending
    if end == "expired":
        lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
        lab.store.approvals.expire(lab.engine.retention)
    elif end == "cancelled":
        lab.store.runs.cancel(run_id, TESTER, lab.engine.retention, "never mind")
    else:
        lab.resolver.answer(item.id, end, person("ann"))
    lab.deliver()
    deliver_callback(lab, run_id)
    [body] = receiver.bodies

    assert (body["runId"], body["status"], body.get("reason")) == (run_id, status, reason)
    assert body["completedAt"].endswith("Z")
    if end == "approved":
        assert body["result"]["actionsPerformed"][0]["description"] == "freed 3 GB"
        assert body["result"]["findings"] == ["the disk is full"]


def test_a_pending_run_that_is_cancelled_is_delivered() -> None:
    receiver = Receiver()
    lab = lab_for(receiver, mode="continuous")
    run_id = lab.submit("look", callback_url=URL).run.id
    lab.store.runs.cancel(run_id, TESTER, lab.engine.retention, "never mind")
    deliver_callback(lab, run_id)

    assert [body["status"] for body in receiver.bodies] == ["cancelled"]


def test_a_refused_callback_is_tried_again_later_and_not_before() -> None:
    receiver = Receiver(refuses=1)
    lab = lab_for(receiver)
    run_id = submit(lab)
    first = deliver_callback(lab, run_id)
    early = ("job", f"callback:{run_id}", 1)
    lab.dispatcher.hints.append(early)
    lab.deliver()
    lab.client.zadd("boyd:{test}:due", {f"callback:{run_id}": 1})
    lab.sweeper.sweep()
    lab.deliver()

    assert len(receiver.calls) == 1
    assert (first.state, first.attempts) == ("queued", 1)
    assert first.next_at is not None
    wait = first.next_at - first.deliveries[0].at
    assert abs(wait - timedelta(seconds=DELAYS[0])) < timedelta(seconds=2)
    assert deliver_callback(lab, run_id).state == "succeeded"
    assert [body["status"] for body in receiver.bodies] == ["completed"] * 2


def test_a_receiver_that_says_gone_is_asked_no_more() -> None:
    urls: list[str] = []

    def answer_gone(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
        urls.append(url)
        return Delivery(at=at, ok=False, status=410, duration=1.0)

    lab = Lab(agent(reads("o", "the disk is full")), post=answer_gone)
    run_id = submit(lab)
    callback = deliver_callback(lab, run_id)

    assert (callback.state, callback.attempts, callback.next_at) == ("failed", 1, None)
    deliver_callback(lab, run_id)
    assert len(urls) == 1


def test_the_sweeper_takes_no_long_wait_for_a_clock_that_stepped_back() -> None:
    """Deadlines more than ten minutes ahead are: later ones are put off step by step."""
    receiver = Receiver(refuses=99)
    lab = lab_for(receiver)
    run_id = submit(lab)
    for _ in range(5):
        deliver_callback(lab, run_id)
    for _ in range(3):
        assert lab.sweeper.sweep() == 0
        lab.deliver()
    lab.client.zadd("boyd:{test}:due", {f"callback:{run_id}": 1})
    assert lab.sweeper.sweep() == 1
    assert lab.sweeper.sweep() == 0
    lab.deliver()
    callback = lab.store.runs.callback(run_id)

    assert callback is not None
    assert callback.next_at is not None
    assert callback.next_at - utc_now() > timedelta(minutes=20)
    assert (callback.attempts, len(receiver.calls)) == (5, 5)


def test_after_the_last_attempt_of_the_plan_it_has_failed() -> None:
    receiver = Receiver(refuses=99)
    lab = lab_for(receiver)
    run_id = submit(lab)
    states = [deliver_callback(lab, run_id).state for _ in range(len(DELAYS) + 2)]
    callback = deliver_callback(lab, run_id)

    assert states == ["queued"] * len(DELAYS) + ["failed"] * 2
    assert callback.attempts == len(callback.deliveries) == len(DELAYS) + 1
    assert callback.next_at is None
    assert lab.client.zcard("boyd:{test}:due") == 0
    assert lab.client.ttl(f"boyd:{{test}}:callback:{run_id}") > 86400


def test_one_that_has_failed_can_be_sent_again_from_the_beginning_of_its_plan() -> None:
    receiver = Receiver(refuses=len(DELAYS) + 2)
    lab = lab_for(receiver)
    run_id = submit(lab)
    for _ in range(len(DELAYS) + 1):
        deliver_callback(lab, run_id)
    assert lab.store.runs.redeliver(run_id)
    again = deliver_callback(lab, run_id)
    done = deliver_callback(lab, run_id)

    assert (again.state, again.attempts) == ("queued", 1)
    assert (done.state, done.attempts) == ("succeeded", 2)
    assert len(done.deliveries) == len(receiver.calls) == len(DELAYS) + 3


def test_one_that_waits_can_be_sent_again_at_once() -> None:
    receiver = Receiver(refuses=1)
    lab = lab_for(receiver)
    run_id = submit(lab)
    deliver_callback(lab, run_id)
    assert lab.store.runs.redeliver(run_id)
    lab.sweeper.sweep()
    lab.deliver()

    assert len(receiver.calls) == 2


def test_a_callback_can_be_redelivered_any_number_of_times() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    deliver_callback(lab, run_id)
    for _ in range(5):
        assert lab.store.runs.redeliver(run_id)
        lab.sweeper.sweep()
        lab.deliver()
    lose(lab, run_id)

    assert lab.store.runs.redeliver(run_id)
    assert len({json.dumps(body, sort_keys=True) for body in receiver.bodies}) == 1
    assert len(receiver.calls) == 6


def test_the_log_of_deliveries_is_bounded() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    for _ in range(25):
        deliver_callback(lab, run_id)
        lab.store.runs.redeliver(run_id)

    assert len(deliver_callback(lab, run_id).deliveries) == 20


def test_one_that_is_being_delivered_is_not_sent_twice() -> None:
    lab: Lab
    outcomes: list[bool] = []

    def post(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
        outcomes.append(lab.store.runs.redeliver(webhook_id.removeprefix("run_")))
        return Delivery(at=at, ok=True, duration=1.0)

    lab = Lab(agent(), post=post)
    run_id = submit(lab)
    deliver_callback(lab, run_id)

    assert (deliver_callback(lab, run_id).state, outcomes) == ("succeeded", [True])


def lose(lab: Lab, run_id: str) -> None:
    """A worker takes the callback and is never heard of again."""
    name = f"callback:{run_id}"
    lab.dispatcher.hints.clear()
    lab.client.zadd("boyd:{test}:due", {name: 1})
    lab.sweeper.sweep()
    hints = [hint for hint in lab.dispatcher.hints if hint[1] == name]
    lab.dispatcher.hints.clear()
    for _, _, attempt in hints:
        assert lab.store.jobs.enter(name, attempt, f"lost/{attempt}")
    lab.client.zadd("boyd:{test}:due", {name: 1})


def test_a_worker_that_is_lost_while_delivering_costs_only_time() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    lose(lab, run_id)

    assert deliver_callback(lab, run_id).state == "succeeded"
    assert len(receiver.calls) == 1


def test_one_that_takes_down_its_workers_ends() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    name = f"callback:{run_id}"
    lab.dispatcher.hints.clear()
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(name, attempt, f"lost/{attempt}")
        lab.client.zadd("boyd:{test}:due", {name: 1})
        lab.sweeper.sweep()
        lab.dispatcher.hints.clear()
    callback = lab.store.runs.callback(run_id)

    assert callback is not None
    assert (callback.state, receiver.calls) == ("failed", [])
    assert lab.client.zcard("boyd:{test}:due") == 0


def test_after_many_redeliveries_a_lost_worker_costs_as_little_as_before() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    for _ in range(4):
        deliver_callback(lab, run_id)
        lab.store.runs.redeliver(run_id)
    lose(lab, run_id)

    assert deliver_callback(lab, run_id).state == "succeeded"
    assert len(receiver.calls) == 5


def test_a_run_that_is_pruned_before_its_delivery_is_delivered() -> None:
    receiver = Receiver()
    lab = lab_for(receiver, runs={"max_finished": 1})
    first = submit(lab)
    lab.client.zadd("boyd:{test}:runs:finished", {first: 1})
    second = submit(lab)
    assert lab.store.runs.get(first) is None
    deliver_callback(lab, first)
    deliver_callback(lab, second)

    assert {body["runId"] for body in receiver.bodies} == {first, second}
    assert all(body["result"]["findings"] == ["the disk is full"] for body in receiver.bodies)


def test_a_sender_that_raises_counts_as_a_failed_attempt() -> None:
    def post(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
        raise RuntimeError("a bug")

    lab = Lab(agent(), post=post)
    run_id = submit(lab)
    callback = deliver_callback(lab, run_id)

    assert (callback.state, callback.attempts) == ("queued", 1)
    assert [(d.ok, d.error) for d in callback.deliveries] == [(False, "RuntimeError: a bug")]


def test_without_a_worker_a_callback_waits() -> None:
    receiver = Receiver()
    lab = lab_for(receiver)
    run_id = submit(lab)
    lab.dispatcher.hints.clear()
    lab.client.hset(f"boyd:{{test}}:callback:{run_id}", "queuedAt", 1)

    assert deliver_callback(lab, run_id).state == "succeeded"
    assert len(receiver.calls) == 1


def test_every_callback_has_a_bound() -> None:
    lab = lab_for(Receiver(refuses=99))
    check: Callable[[], bool] = lambda: all(  # noqa: E731
        lab.client.ttl(key) > 0 for key in lab.client.scan_iter("boyd:{test}:callback:*")
    )
    run_id = submit(lab)
    assert check()
    deliver_callback(lab, run_id)
    assert check()
    lab.store.runs.redeliver(run_id)
    assert check()
