"""Recovery, without processes: what a sweeper may and may not take from whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fakeredis
import pytest

from boyd import Agent
from boyd.errors import StoreError, StoreUnavailable
from boyd.models import Autonomy, Fence
from boyd.runtime import Sweeper, sweep_all
from boyd.store import PhaseEntry
from boyd.store.due import MOST_DUE
from boyd.store.phase_entries import BatchEnd
from boyd.store.server.scripts import Reads, ScriptCall, Scripts
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, execution_request, person, seen, sees
from lab_redis import client_of

DUE = "boyd:{test}:due"
RECORD = "boyd:{test}:iteration"


def overdue(lab: Lab, member: str = "phase") -> None:
    """Let a deadline have passed."""
    lab.client.zadd(DUE, {member: 1})


def enter_and_vanish(lab: Lab) -> None:
    """Enter the start phase as a worker that will never leave it."""
    lab.dispatcher.hints.clear()
    assert lab.store.iterations.enter(1, 1, "start", "lost/1")


def test_a_phase_whose_message_was_lost_is_sent_again_under_the_same_epoch() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    lab.dispatcher.hints.clear()
    overdue(lab)
    lab.sweeper.sweep()

    assert list(lab.dispatcher.hints) == [("start", 1, 1)]
    lab.deliver()
    assert lab.store.history.results()[0].success


def test_a_phase_whose_worker_was_lost_is_sent_again_under_a_new_epoch() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    enter_and_vanish(lab)
    overdue(lab)
    lab.sweeper.sweep()

    assert list(lab.dispatcher.hints) == [("start", 1, 2)]
    lab.deliver()
    result = lab.store.history.results()[0]
    assert (result.success, result.retries) == (True, 1)


def test_a_phase_that_loses_every_worker_fails_its_iteration() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    for epoch in (1, 2, 3):
        lab.dispatcher.hints.clear()
        assert lab.store.iterations.enter(1, epoch, "start", f"lost/{epoch}")
        overdue(lab)
        lab.sweeper.sweep()
    lab.deliver()
    result = lab.store.history.results()[0]

    assert (result.success, result.error) == (False, "start lost its worker 3 times, last lost/3")


def test_complete_that_loses_every_worker_is_ended_by_the_sweeper() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "complete")
    for epoch in (1, 2, 3):
        assert lab.store.iterations.enter(1, epoch, "complete", f"lost/{epoch}")
        overdue(lab)
        lab.sweeper.sweep()
    result = lab.store.history.results()[0]

    assert not result.success
    assert len(result.observations) == 1
    assert result.ended_at >= result.started_at
    assert lab.store.loop_control.status().phase == "idle"


def test_a_record_that_cannot_be_read_is_ended_all_the_same() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "orient")
    lab.client.hset(RECORD, "seen:0", '[{"source": 7}]')
    lab.deliver()
    reply = lab.client.hgetall("boyd:{test}:iteration:1")

    assert (reply["success"], lab.store.loop_control.status().phase) == ("0", "idle")
    assert "orient failed" in reply["error"]


def test_a_deadline_is_taken_by_one_sweeper() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    overdue(lab)

    assert list(lab.store.due.take()) == ["phase"]
    assert lab.store.due.take() == {}


def test_a_late_sweeper_takes_nothing_from_a_worker_that_has_entered_since() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    overdue(lab)
    proof = lab.store.due.take()["phase"]
    entry = lab.store.iterations.enter(1, 1, "start", "alive/1")

    assert entry is not None
    assert lab.store.iterations.retry(proof) is None
    assert lab.store.iterations.leave_start(entry, [], [], {})


def test_no_successor_enters_several_batches() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    entry = lab.store.iterations.enter(1, 1, "start", "w/1")
    assert entry is not None
    end = lab.store.iterations.leave_start(entry, ["o", "p"], ["{}", "{}"], {}, "w/2")
    assert end is not None
    assert end.entry is None
    for batch in (1, 2):
        assert lab.store.observers.enter_batch(1, batch, 1, f"other/{batch}")


def test_after_a_silence_the_living_get_a_lease_before_anything_is_taken() -> None:
    """Redis was away: those who could not renew must not all count as lost."""
    lab = Lab(agent())
    lab.launcher.trigger("test")
    enter_and_vanish(lab)
    lab.sweeper.sweep()
    overdue(lab)
    lab.client.hset("boyd:{test}:loop", "sweptAt", 1)
    Sweeper(lab.engine, lab.jobs, 300).sweep()

    assert list(lab.dispatcher.hints) == []
    assert lab.store.iterations.renew(1, 1, "lost/1")


def test_a_sweeper_that_had_no_answer_leaves_the_living_a_lease() -> None:
    """An outage shorter than a lease, of which the living have used a part before."""
    server = fakeredis.FakeServer()
    lab = Lab(agent(), client=client_of(server))
    lab.launcher.trigger("test")
    enter_and_vanish(lab)
    lab.sweeper.sweep()
    server.connected = False
    with pytest.raises(StoreUnavailable):
        sweep_all(lab.whole, [lab.sweeper])
    server.connected = True
    overdue(lab)
    sweep_all(lab.whole, [lab.sweeper])
    before = list(lab.dispatcher.hints)
    overdue(lab)
    sweep_all(lab.whole, [lab.sweeper])

    assert before == []
    assert list(lab.dispatcher.hints) == [("start", 1, 2)]


def test_a_lab_takes_what_is_overdue_however_slow_its_test_is() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    lab.dispatcher.hints.clear()
    lab.sweeper.sweep()
    overdue(lab)
    lab.client.hset("boyd:{test}:loop", "sweptAt", 1)
    lab.sweeper.sweep()

    assert list(lab.dispatcher.hints) == [("start", 1, 1)]


def test_a_deadline_far_ahead_is_one_of_a_clock_that_stepped_back() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    lab.dispatcher.hints.clear()
    lab.client.zadd(DUE, {"phase": 9e12})
    lab.sweeper.sweep()

    assert list(lab.dispatcher.hints) == [("start", 1, 1)]


def test_a_bundle_whose_worker_was_lost_is_sent_one_by_one() -> None:
    lab = Lab(agent(*[sees(f"o{i}", seen(f"o{i}")) for i in range(3)]))
    lab.launcher.trigger("test")
    lab.step()
    lab.dispatcher.hints.clear()
    assert lab.store.observers.enter_batch(1, 1, 1, "lost/1")
    overdue(lab, "batch:1")
    lab.sweeper.sweep()

    assert [("observe", 1, batch, 2) for batch in (2, 3, 4)] == list(lab.dispatcher.hints)
    lab.deliver()
    result = lab.store.history.results()[0]
    assert [o.source for o in result.observations] == ["o0", "o1", "o2"]
    assert result.observer_errors == []


def test_an_observer_that_takes_its_worker_with_it_twice_is_given_up() -> None:
    lab = Lab(agent(sees("bad"), sees("good", seen())))
    lab.launcher.trigger("test")
    lab.step()
    lab.dispatcher.hints.clear()
    lab.store.observers.enter_batch(1, 1, 1, "lost/1")
    overdue(lab, "batch:1")
    lab.sweeper.sweep()
    lab.store.observers.enter_batch(1, 2, 2, "lost/2")
    overdue(lab, "batch:2")
    lab.sweeper.sweep()
    lab.deliver()
    result = lab.store.history.results()[0]

    assert [(error.id, error.error) for error in result.observer_errors] == [
        ("p:bad", "worker lost was lost while it ran")
    ]
    assert len(result.observations) == 1


def test_a_worker_that_lost_its_lease_is_refused() -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    lab.launcher.trigger("test")
    lab.dispatcher.hints.clear()
    late = lab.store.iterations.enter(1, 1, "start", "late/1")
    overdue(lab)
    lab.sweeper.sweep()

    assert late is not None
    assert not lab.store.iterations.renew(1, 1, "late/1")
    assert not lab.store.iterations.leave_start(late, [], [], {})
    lab.deliver()
    assert lab.store.history.results()[0].success


def test_a_batch_that_a_worker_takes_at_the_last_moment_is_not_given_up() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    lab.step()
    overdue(lab, "batch:1")
    proof = lab.store.due.take()["batch:1"]
    stuck = lab.store.observers.retry_batch(1, proof)
    assert stuck is not None
    entry = lab.store.observers.enter_batch(1, 1, 1, "w")
    assert entry

    assert lab.store.observers.give_up_batch(stuck, {}) is None
    assert lab.store.observers.complete_batch(entry, {}) == BatchEnd(0, 1)


def test_a_batch_is_completed_only_under_its_attempt() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    lab.step()
    complete = lab.store.observers.complete_batch
    entry = lab.store.observers.enter_batch(1, 1, 1, "w")
    assert entry

    assert complete(replace(entry, attempt=2), {}) is None
    assert complete(replace(entry, attempt=2, worker=""), {}) is None
    assert complete(replace(entry, worker="other"), {}) is None
    assert complete(entry, {}) == BatchEnd(0, 1)


def test_every_message_may_come_twice() -> None:
    recorder = Recorder()
    lab = Lab(agent(sees("o", seen("o")), chooses(choice()), recorder.action()))
    lab.launcher.trigger("test")
    while lab.dispatcher.hints:
        hint = lab.dispatcher.hints[0]
        lab.step()
        lab.dispatcher.hints.appendleft(hint)
        lab.step()

    assert len(recorder.calls) == 1
    assert len(lab.store.history.results()) == 1


def somebody_else_enters(lab: Lab) -> None:
    """The lease lapsed, the phase was sent again, another worker has it."""
    lab.client.hset(RECORD, mapping={"epoch": 2, "entered": "other/1", "situation": "of another"})


def the_phase_is_sent_again(lab: Lab) -> None:
    """The lease lapsed, and nobody has it yet."""
    lab.client.hset(RECORD, "epoch", 2)
    lab.client.hdel(RECORD, "entered")


def the_iteration_ends(lab: Lab) -> None:
    """Somebody else was quicker with all of it."""
    lab.client.delete(RECORD)


def the_next_one_begins(lab: Lab) -> None:
    """And the next one is in the same phase under the same epoch."""
    lab.client.hset(RECORD, mapping={"iteration": 2, "entered": "other/1"})


@pytest.mark.parametrize(
    "meanwhile",
    [somebody_else_enters, the_phase_is_sent_again, the_iteration_ends, the_next_one_begins],
)
@pytest.mark.parametrize("phase", ["start", "orient"])
def test_a_phase_that_is_lost_before_its_record_is_read_is_not_entered(
    monkeypatch: pytest.MonkeyPatch, phase: str, meanwhile: Callable[[Lab], None]
) -> None:
    lab = Lab(agent(sees("o")))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == phase)
    iterations = lab.store.iterations

    def apart(self: Scripts, call: ScriptCall, add_reads: Reads) -> tuple[Any, Any]:
        reply = self.run(call)
        assert reply[0] == "ok"
        meanwhile(lab)
        return reply, [add_reads(lab.client)]

    monkeypatch.setattr(Scripts, "run_and_read", apart)
    if phase == "start":
        assert iterations.enter(1, 1, "start", "w/1") is None
    else:
        assert iterations.enter_orient(1, 1, "w/1") is None


def test_the_sweeper_resends_every_lost_message() -> None:
    """Each step makes due what follows it, so that nothing rests on a message."""
    recorder = Recorder()
    lab = Lab(agent(sees("o", seen()), chooses(choice()), recorder.action()))
    lab.launcher.trigger("test")
    lost = []
    while lab.store.loop_control.status().phase != "idle":
        lost += [hint[0] for hint in lab.dispatcher.hints]
        lab.dispatcher.hints.clear()
        for member in lab.client.zrange(DUE, 0, -1):
            overdue(lab, member)
        lab.sweeper.sweep()
        lab.step()

    assert lost == ["start", "observe", "orient", "decide", "act", "complete"]
    assert lab.store.history.results()[0].success
    assert len(recorder.calls) == 1


def test_the_next_phase_is_due_in_the_step_that_leaves_the_last() -> None:
    """A sweep would find it, but only after a while."""
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    lab.launcher.trigger("test")
    due = {}
    while (phase := lab.store.loop_control.status().phase) != "idle":
        due[phase] = phase == "observe" or lab.client.zscore(DUE, "phase") is not None
        lab.client.zrem(DUE, "phase")
        lab.step()

    assert due == dict.fromkeys(("start", "observe", "orient", "decide", "act", "complete"), True)


def test_a_phase_is_left_only_by_who_has_entered_it() -> None:
    """Also under the same epoch, which two workers have when it was put back in between."""
    lab = Lab(agent())
    lab.launcher.trigger("test")
    entry = lab.store.iterations.enter(1, 1, "start", "one")
    assert entry is not None

    assert not lab.store.iterations.leave_start(replace(entry, worker="another"), [], [], {})
    assert lab.store.iterations.leave_start(entry, [], [], {})


def test_agents_are_swept_together_and_one_that_cannot_be_fails_alone() -> None:
    broken = Lab(Agent("broken"))
    fine = Lab(agent(), client=broken.client)
    fine.launcher.trigger("test")
    fine.dispatcher.hints.clear()
    broken.client.set("boyd:{broken}:due", "no sorted set")
    overdue(fine)
    with pytest.raises(StoreError):
        sweep_all(fine.whole, [broken.sweeper, fine.sweeper])

    assert list(fine.dispatcher.hints) == [("start", 1, 1)]


def test_an_item_whose_record_cannot_be_read_delays_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab(
        agent(chooses(choice()), Recorder().action(autonomy=Autonomy(mode="approval-required")))
    )
    lab.run()
    [item] = lab.store.approvals.page(20).pending
    lab.resolver.answer(item.id, "approved", person("ann"))
    job = f"approval:{item.id}"
    lab.client.hset(f"boyd:{{test}}:{job}", mapping={"decision": "{", "queuedAt": 1})
    lab.launcher.trigger("test")
    lab.dispatcher.hints.clear()
    lab.client.zadd(DUE, {job: 1, "phase": 2})
    lab.sweeper.sweep()

    assert list(lab.dispatcher.hints) == [("start", 2, 1)]
    assert f"cannot recover {job} of agent test: approval {item.id} cannot be read" in caplog.text


def test_a_sweep_says_whether_there_may_be_more() -> None:
    lab = Lab(agent())
    lab.client.zadd(DUE, {f"call:{n}": 1 for n in range(MOST_DUE + 1)})

    assert sweep_all(lab.whole, [lab.sweeper])
    assert not sweep_all(lab.whole, [lab.sweeper])
    assert lab.client.zcard(DUE) == 0


def test_a_job_of_a_later_release_is_left_to_its_own_workers() -> None:
    lab = Lab(agent())
    lab.jobs.retry("dream:1", "1")

    assert list(lab.dispatcher.hints) == []


def acting(lab: Lab, served: bool) -> None:
    """Let the lab's worker consume the queue `act`, or not; heartbeats tell it."""
    for worker in lab._workers:
        worker.queues[:] = [name for name in worker.queues if name != "act"]
        if served:
            worker.queues.append("act")
    lab.whole.fleet._seen = (float("-inf"), [])
    lab._beat()


def in_act(lab: Lab) -> None:
    """Bring an iteration to where its act phase is due, and lose the only worker that acts."""
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    acting(lab, served=False)


def sweep_after_deadline(lab: Lab) -> None:
    """Let the deadline pass, sweep, and deliver what that has sent."""
    lab.dispatcher.hints.clear()
    overdue(lab)
    lab.sweeper.sweep()
    lab.deliver()


NO_ACT = "No live worker consumes queue 'act'; start one with -Q act"


def test_an_action_that_no_worker_can_execute_fails_within_one_sweep() -> None:
    recorder = Recorder()
    lab = Lab(agent(sees("o", seen()), chooses(choice()), recorder.action()))
    in_act(lab)
    sweep_after_deadline(lab)
    [result] = lab.store.history.results()

    assert (result.success, recorder.calls) == (True, [])
    assert [r.error for r in result.action_results] == [NO_ACT]


def test_an_action_whose_worker_died_and_left_none_ends_as_unknown_within_one_sweep() -> None:
    recorder = Recorder()
    lab = Lab(agent(sees("o", seen()), chooses(choice()), recorder.action()))
    in_act(lab)
    entry = lab.store.iterations.enter(1, 1, "act", "gone/1", ("iteration",))
    assert entry is not None
    claim_action(lab, entry)
    sweep_after_deadline(lab)
    [result] = lab.store.history.results()
    [action] = result.action_results

    assert (action.unknown, recorder.calls) == (True, [])
    assert "Outcome unknown" in (action.error or "")
    assert not lab.store.iterations.leave(entry, "complete", {})


def claim_action(lab: Lab, entry: PhaseEntry) -> None:
    """Claim the action of an iteration, as a worker that dies with it."""
    fence = Fence(entry.iteration, entry.epoch, entry.worker)
    execution = lab.store.executions.of_iteration(entry.iteration)
    lab.store.executions.claim(execution_request(execution, fence=fence), "token")
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "leaseUntil", 1)


def test_asking_for_an_approval_needs_no_worker_that_acts() -> None:
    action = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(sees("o", seen()), chooses(choice()), action))
    acting(lab, served=False)
    first, second = lab.run(), lab.run()

    assert [r.waits_for for r in (first.action_results[0], second.action_results[0])] == (
        [lab.store.approvals.page(5).pending[0].id] * 2
    )
    assert lab.store.approvals.page(5).pending[0].seen == 2


def test_an_approval_is_asked_for_without_its_preview_when_the_worker_for_that_is_gone() -> None:
    action = Recorder().action(
        autonomy=Autonomy(mode="approval-required"), dry_run=lambda: "would do"
    )
    lab = Lab(agent(sees("o", seen()), chooses(choice()), action))
    in_act(lab)
    sweep_after_deadline(lab)
    [item] = lab.store.approvals.page(5).pending

    assert item.preview is not None
    assert item.preview.error == NO_ACT


def test_complete_goes_to_the_loop_after_its_act_phase_was_given_up() -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action(queue="act.db")))
    lab._workers[0].queues.append("act.db")
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    assert lab.client.hget(RECORD, "queue") == "act.db"
    for epoch in (1, 2, 3, 5, 6, 7):
        lab.dispatcher.hints.clear()
        assert lab.store.iterations.enter(1, epoch, "act", f"lost/{epoch}", ("iteration",))
        overdue(lab)
        lab.sweeper.sweep()
    overdue(lab)
    retry = lab.store.iterations.retry(lab.store.due.take()["phase"])

    assert retry is not None
    assert (retry.phase, retry.queue, lab.client.hget(RECORD, "queue")) == ("complete", None, "")


def test_an_unserved_queue_is_noticed_by_each_sweep_and_the_message_is_sent_ever_less() -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    sent = []
    for look in range(1, 20):
        lab.dispatcher.hints.clear()
        overdue(lab)
        lab.sweeper.sweep()
        sent += [look] * len(lab.dispatcher.hints)
        assert lab.client.zscore(DUE, "phase") <= lab.store.clock.seconds() * 1000 + 2100

    assert sent == [1, 2, 4, 8, 16]
