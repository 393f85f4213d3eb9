"""A step of which only a part was done is finished or ended, and nothing is done twice."""

from __future__ import annotations

from typing import Any

import pytest

from boyd.errors import StoreError
from boyd.models import Autonomy, CallRequest, LoopResult, RunRequest
from boyd.store import Verdict
from boyd.store.keys import Keys
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, person, seen, sees

KEYS = Keys("test")
#: Every key that an iteration's scripts write to.
WRITTEN = sorted(
    {
        *(
            KEYS.loop,
            KEYS.iteration,
            KEYS.due,
            KEYS.jobs,
            KEYS.events,
            KEYS.history,
            KEYS.observers_ran,
        ),
        *(KEYS.observers_health, KEYS.runs, KEYS.runs_pending, KEYS.runs_finished, KEYS.intake),
        KEYS.audit_open,
    }
)
#: How many messages an iteration takes: a fault may come with each.
STEPS = 5


def come_to_rest(lab: Lab) -> None:
    """Sweep and deliver until nothing is in flight, as time would have it."""
    for _ in range(40):
        attempt(lab.deliver)
        for member in lab.client.zrange(KEYS.due, 0, -1):
            lab.client.zadd(KEYS.due, {member: 1})
        attempt(lab.sweeper.sweep)
        lapse(lab)
        if lab.store.loop_control.status().phase == "idle" and not lab.client.hget(
            KEYS.loop, "active"
        ):
            return
    raise AssertionError(f"still in {lab.store.loop_control.status().phase}")


def attempt(step: Any) -> None:
    """Do what a worker does; it leaves a step that Redis refuses to be sent again."""
    try:
        step()
    except StoreError:
        return


def lapse(lab: Lab) -> None:
    """Let every claim have lapsed."""
    for key in lab.client.scan_iter(f"{KEYS.prefix}execution:*"):
        if lab.client.hget(key, "state") == "running":
            lab.client.hset(key, "leaseUntil", 1)


def past_iterations(lab: Lab) -> list[LoopResult]:
    """The iterations that are in history, oldest first."""
    return lab.store.history.results()[::-1]


def lab_with(recorder: Recorder) -> Lab:
    return Lab(agent(sees("o", seen()), sees("q", seen()), chooses(choice()), recorder.action()))


@pytest.mark.long
@pytest.mark.parametrize("key", WRITTEN, ids=lambda key: key.removeprefix(KEYS.prefix))
@pytest.mark.parametrize("step", range(STEPS))
def test_a_key_of_another_type_for_a_moment_stops_no_loop(key: str, step: int) -> None:
    recorder = Recorder()
    lab = lab_with(recorder)
    lab.submit("a question")
    for _ in range(step):
        lab.step()
    lab.client.set(key, "foreign")
    attempt(lab.step)
    lab.client.delete(key)
    come_to_rest(lab)
    attempt(lambda: lab.launcher.trigger("after"))
    come_to_rest(lab)
    last = past_iterations(lab)[-1]

    assert last.success
    assert len(last.observations) >= 2
    once = [
        result
        for result in past_iterations(lab)
        for action in result.action_results
        if action.success
    ]
    assert len(recorder.calls) >= len(once) > 0


@pytest.mark.parametrize("field", ["slot", "iteration", "active", "sweptAt"])
def test_a_value_that_is_no_number_is_put_right(field: str) -> None:
    lab = lab_with(Recorder())
    lab.run()
    lab.client.hset(KEYS.loop, field, "garbage")
    assert lab.store.loop_control.status().iteration in (0, 1)
    lab.sweeper.sweep()
    lab.sweeper.sweep()

    assert lab.run().iteration == 2


NO_COUNT = ["-5", "-1", "1.5", "1e400", "nan", "0x10", "", "99999999999999999999", "garbage"]


@pytest.mark.long
@pytest.mark.parametrize("value", NO_COUNT)
@pytest.mark.parametrize("field", ["slot", "iteration", "active"])
def test_a_value_that_counts_nothing_is_put_right_whether_a_sweep_or_a_trigger_comes_first(
    field: str, value: str
) -> None:
    for sweeps in (0, 2):
        lab = lab_with(Recorder())
        lab.run()
        lab.client.hset(KEYS.loop, field, value)
        for _ in range(sweeps):
            lab.sweeper.sweep()
        lab.launcher.trigger("after")
        come_to_rest(lab)
        lab.run()

        numbers = [result.iteration for result in past_iterations(lab)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 2
        assert lab.store.loop_control.status().iteration == numbers[-1]


@pytest.mark.parametrize("value", NO_COUNT)
@pytest.mark.parametrize("field", ["iteration", "epoch"])
def test_an_iteration_in_flight_whose_number_or_epoch_counts_nothing_ends(
    field: str, value: str
) -> None:
    lab = lab_with(Recorder())
    lab.launcher.trigger("test")
    lab.step()
    lab.dispatcher.hints.clear()
    lab.client.hset(KEYS.iteration, field, value)
    come_to_rest(lab)

    assert [result.iteration for result in past_iterations(lab)] == [1]
    assert lab.run().iteration == 2


def test_an_iteration_that_is_not_due_is_made_due() -> None:
    lab = lab_with(Recorder())
    lab.launcher.trigger("test")
    lab.dispatcher.hints.clear()
    lab.client.delete(KEYS.due)
    come_to_rest(lab)

    assert [result.success for result in past_iterations(lab)] == [True]


def test_batches_that_are_not_due_or_counted_wrong_end_the_phase_all_the_same() -> None:
    lab = lab_with(Recorder())
    lab.launcher.trigger("test")
    lab.step()
    lab.dispatcher.hints.clear()
    for member in lab.client.zrange(KEYS.due, 0, -1):
        if member.startswith("batch:"):
            lab.client.zrem(KEYS.due, member)
    lab.client.hincrby(KEYS.iteration, "open", 7)
    come_to_rest(lab)
    [result] = past_iterations(lab)

    assert (result.success, len(result.observations)) == (True, 2)


def test_an_iteration_whose_record_is_gone_ends_with_its_runs_and_what_is_known_of_its_action() -> (
    None
):
    recorder = Recorder()
    lab = lab_with(recorder)
    run = lab.submit("a question").run
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    lab.steps.run("act", 1, 1)
    lab.dispatcher.hints.clear()
    lab.client.delete(KEYS.iteration)
    come_to_rest(lab)
    [result] = past_iterations(lab)
    after = lab.store.runs.get(run.id)

    assert (result.success, result.iteration, result.runs) == (False, 1, [run.id])
    assert "record was lost" in (result.error or "")
    assert [action.output for action in result.action_results] == ["done"]
    assert after is not None
    assert after.status == "failed"
    assert len(recorder.calls) == 1


def test_a_job_missing_from_the_due_index_is_made_due() -> None:
    recorder = Recorder()
    lab = lab_with(recorder)
    request = CallRequest(kind="execute", action="p:do", actor=person("ann"))
    call_id = lab.launcher.call(request, None)
    lab.dispatcher.hints.clear()
    lab.client.delete(KEYS.due)
    for _ in range(2):  # the first finds that it is not due, the second that its message was lost
        lab.sweeper.sweep()
    lab.deliver()
    record = lab.store.calls.get(call_id)

    assert record is not None
    assert record.execution is not None
    assert (record.execution.state, len(recorder.calls)) == ("succeeded", 1)
    assert not lab.client.exists(KEYS.jobs)


def test_an_event_that_cannot_be_written_stops_nothing_and_is_noted() -> None:
    lab = lab_with(Recorder())
    lab.client.set(KEYS.events, "foreign")

    assert lab.run().success
    assert "WRONGTYPE" in lab.client.hget(KEYS.loop, "eventsLostWhy")


def test_an_iteration_whose_loop_hash_is_lost_goes_on_and_the_next_one_joins_it() -> None:
    recorder = Recorder()
    lab = lab_with(recorder)
    lab.launcher.trigger("test")
    lab.step()
    lab.client.delete(KEYS.loop)
    joined = lab.launcher.trigger("again")
    lab.deliver()

    assert joined.iteration == 1
    assert [(result.iteration, result.success) for result in past_iterations(lab)] == [(1, True)]
    assert lab.run().iteration == 2


@pytest.mark.parametrize("key", [KEYS.runs, KEYS.runs_pending, KEYS.due, KEYS.audit_open])
def test_a_request_that_failed_halfway_is_completed_when_repeated(key: str) -> None:
    recorder = Recorder()
    lab = lab_with(recorder)
    call = CallRequest(kind="execute", action="p:do", actor=person("ann"))
    question = RunRequest(title="a", description="question")
    lab.client.set(key, "foreign")
    attempt(lambda: lab.launcher.call(call, None, "0" * 32))
    attempt(lambda: lab.launcher.submit_run(question, person("ann"), "run-1"))
    lab.client.delete(key)
    lab.launcher.call(call, None, "0" * 32)
    lab.launcher.submit_run(question, person("ann"), "run-1")
    come_to_rest(lab)
    for _ in range(3):
        lab.sweeper.sweep()
        lab.deliver()
    run, called = lab.store.runs.get("run-1"), lab.store.calls.get("0" * 32)

    assert run is not None
    assert run.status == "completed"
    assert called is not None
    assert called.execution is not None
    assert called.execution.state == "succeeded"


SETTLING = (KEYS.approvals_history, KEYS.approvals_fingerprints, KEYS.audit_open)


@pytest.mark.parametrize(
    ("key", "verdict"),
    [
        *((key, verdict) for key in SETTLING for verdict in ("approved", "denied")),
        (KEYS.due, "approved"),
    ],
)
def test_an_answer_that_fails_halfway_leaves_the_item_pending_and_counts_when_it_comes_again(
    key: str, verdict: Verdict
) -> None:
    recorder = Recorder()
    asks = Autonomy(mode="approval-required")
    lab = Lab(agent(sees("o", seen()), chooses(choice()), recorder.action(autonomy=asks)))
    lab.run()
    [item] = lab.store.approvals.page(5).pending
    lab.client.rename(key, "aside") if lab.client.exists(key) else None
    lab.client.set(key, "foreign")
    attempt(lambda: lab.resolver.answer(item.id, verdict, person("ann"), "note"))
    lab.client.delete(key)
    lab.client.rename("aside", key) if lab.client.exists("aside") else None
    again = lab.resolver.answer(item.id, verdict, person("ann"), "note")
    lab.deliver()
    stored = lab.store.approvals.get(item.id)

    assert again.outcome == verdict
    assert stored is not None
    assert stored.status == verdict
    assert len(recorder.calls) == (1 if verdict == "approved" else 0)
    assert lab.client.ttl(KEYS.approval(item.id)) > 0
