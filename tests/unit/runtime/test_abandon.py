"""An iteration that somebody abandons has one end, and nothing of it is done afterwards."""

from __future__ import annotations

import time

import pytest

from boyd.models import ActionResult, Fence
from boyd.runtime import Abandoner
from boyd.runtime.sweeper import RESTART
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, execution_request, person, seen, sees

ANN = person("ann")
PHASES = ("start", "observe", "orient", "decide", "act", "complete")


def lab_in(phase: str, recorder: Recorder) -> Lab:
    """A lab whose iteration is about to enter *phase*, with a run that it looks into."""
    lab = Lab(agent(sees("o", seen()), chooses(choice()), recorder.action()))
    lab.submit("a question")
    while lab.store.loop_control.status().phase != phase:
        lab.step()
    return lab


def abandoner(lab: Lab) -> Abandoner:
    return Abandoner(lab.store, lab.dispatcher, lab.engine.retention)


@pytest.mark.parametrize("phase", PHASES)
def test_an_iteration_is_abandoned_in_any_phase_and_what_comes_late_is_refused(phase: str) -> None:
    recorder = Recorder()
    lab = lab_in(phase, recorder)
    late = list(lab.dispatcher.hints)
    abandonment = abandoner(lab).abandon("no use", ANN)
    calls = len(recorder.calls)
    for hint in late:
        lab.steps.run(*hint)
    assert len(recorder.calls) == calls
    lab.deliver()
    [result] = [r for r in lab.store.history.results() if r.iteration == 1]
    [run] = lab.store.runs.page(5).runs
    [noted] = [e for e in lab.client.xrange("boyd:{test}:audit:open") if "aband" in e[1]["kind"]]

    assert (abandonment.outcome, abandonment.iteration) == ("abandoned", 1)
    assert (result.success, result.error) == (False, "no use")
    assert lab.store.loop_control.status().phase == "idle"
    assert noted[1]["note"] == "no use"
    assert noted[1]["who"] == "ann"
    # A run that it had not taken up yet is looked into by the next one.
    taken_up = phase in ("decide", "act", "complete")
    assert run.status == ("failed" if taken_up else "completed")


def test_an_action_that_had_begun_is_unknown_and_its_late_result_is_refused() -> None:
    recorder = Recorder()
    lab = lab_in("act", recorder)
    entry = lab.store.iterations.enter(1, 1, "act", "alive/1", ("iteration",))
    assert entry is not None
    execution = lab.store.executions.of_iteration(1)
    fence = Fence(1, 1, "alive/1")
    lab.store.executions.claim(execution_request(execution, fence=fence), "token")
    abandoner(lab).abandon("no use", ANN)
    done = ActionResult(action="p:do", success=True, duration=1)
    [result] = lab.store.history.results()

    assert result.action_results[0].unknown
    assert not lab.store.executions.finish(execution, "token", done)
    assert not lab.store.iterations.leave(entry, "complete", {})
    assert lab.store.executions.get(execution).state == "unknown"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("idempotent", "seconds", "waits"), [(True, 5, True), (True, 31, False), (False, 5, False)]
)
def test_an_action_that_may_run_again_waits_for_a_worker_that_is_restarted(
    idempotent: bool, seconds: float, waits: bool
) -> None:
    lab = lab_in("act", Recorder())
    assert lab.store.iterations.enter(1, 1, "act", "dead/1", ("iteration",))
    execution, fence = lab.store.executions.of_iteration(1), Fence(1, 1, "dead/1")
    lab.store.executions.claim(
        execution_request(execution, idempotent=idempotent, fence=fence), "token"
    )
    lost = (time.time() - seconds) * 1000
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "leaseUntil", int(lost))
    lab.client.hdel("boyd:{test}:iteration", "entered")
    epoch = lab.store.iterations.settle_act(1, 1, "nobody serves it", execution, RESTART)

    assert (epoch == 0) == waits


def test_abandoning_keeps_the_result_of_an_action_that_has_ended() -> None:
    recorder = Recorder()
    lab = lab_in("act", recorder)
    entry = lab.store.iterations.enter(1, 1, "act", "alive/1", ("iteration",))
    assert entry is not None
    execution, fence = lab.store.executions.of_iteration(1), Fence(1, 1, "alive/1")
    lab.store.executions.claim(execution_request(execution, fence=fence), "token")
    done = ActionResult(action="p:do", success=True, duration=1)
    assert lab.store.executions.finish(execution, "token", done)
    abandoner(lab).abandon("no use", ANN)

    assert lab.store.history.results()[0].action_results == [done]


def test_with_nothing_in_flight_or_another_one_meant_nothing_happens() -> None:
    lab = lab_in("decide", Recorder())
    other = abandoner(lab).abandon("no use", ANN, iteration=7)
    lab.deliver()
    idle = abandoner(lab).abandon("no use", ANN)

    assert (other.outcome, other.iteration) == ("over", 1)
    assert idle.outcome == "idle"
    assert lab.store.history.results()[0].success


def test_the_last_iteration_of_an_agent_has_no_follow_up_and_what_waits_is_taken_later() -> None:
    recorder = Recorder()
    lab = lab_in("act", recorder)
    lab.store.loop_control.intake([seen("alert")], start=False)
    abandoner(lab).abandon("retired", ANN, last=True)

    assert (lab.store.loop_control.status().phase, lab.store.loop_control.iteration()) == (
        "idle",
        1,
    )
    assert lab.client.llen("boyd:{test}:intake") == 1
    result = lab.run()
    assert (result.iteration, result.success) == (2, True)
    assert lab.client.llen("boyd:{test}:intake") == 0


def test_an_iteration_that_was_abandoned_before_can_still_become_the_last_one() -> None:
    lab = lab_in("act", Recorder())
    lab.store.loop_control.intake([seen("alert")], start=False)
    lab.store.iterations.abandon("no use", ANN)
    abandoner(lab).abandon("retired", ANN, last=True)

    assert (lab.store.loop_control.status().phase, lab.store.loop_control.iteration()) == (
        "idle",
        1,
    )


def test_a_worker_ends_an_iteration_whose_abandoner_died() -> None:
    recorder = Recorder()
    lab = lab_in("act", recorder)
    lab.store.iterations.abandon("no use", ANN)
    assert lab.store.iterations.abandon("again", ANN)[:2] == ("abandoned", 1)
    lab.dispatcher.hints.clear()
    lab.client.zadd("boyd:{test}:due", {"phase": 1})
    lab.sweeper.sweep()
    lab.deliver()
    [result] = lab.store.history.results()

    assert (result.success, result.error, recorder.calls) == (False, "no use", [])
    assert [r.error for r in result.action_results] == ["Not executed: no use"]


def test_a_late_worker_cannot_renew_or_reenter_an_abandoned_complete_phase() -> None:
    lab = lab_in("complete", Recorder())
    entry = lab.store.iterations.enter(1, 1, "complete", "alive/1", ("iteration",))
    assert entry is not None
    outcome, _, epoch = lab.store.iterations.abandon("no use", ANN)

    assert (outcome, epoch) == ("abandoned", 2)
    assert not lab.store.iterations.renew(1, 1, "alive/1")
    assert lab.store.iterations.enter(1, 2, "complete", "other/1", ("iteration",))
