"""Real workers on a real Redis: sharing, dying, losing messages."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from boyd.messaging.celery_app import make_app
from boyd.models import LoopResult
from harness import Deployment, wait_until
from kit import person
from measuring import Measure

pytestmark = pytest.mark.real

TRACED = "agents.traced:traced"
PHASES = ("start", "one", "orient", "decide", "act", "complete")


def hold(deployment: Deployment, name: str) -> Path:
    """Make a part of the traced agent wait; remove the file to let it go on."""
    path = Path(f"{deployment.effects_file}.hold.{name}")
    path.touch()
    return path


def marks(deployment: Deployment, name: str) -> list[str]:
    """The lines that a part has left."""
    return [line for line in deployment.effects() if line.startswith(f"{name}:")]


def owner(deployment: Deployment, line: str) -> str:
    """The name of the process that left a line."""
    pid = int(line.rsplit(":", 1)[1])
    return next(name for name, p in deployment.processes.items() if p.pid == pid)


def sources(result: LoopResult) -> list[str]:
    """The sources of an iteration's observations."""
    return [o.source for o in result.observations]


def test_three_workers_share_the_observers_of_one_agent(deployment: Deployment) -> None:
    for name in ("a", "b", "c"):
        deployment.worker(name, TRACED)
    # Each observer waits for the others, so three at once must run.
    held = [hold(deployment, observer) for observer in ("one", "two", "three")]
    trigger = deployment.launcher("traced").trigger("test")
    wait_until(lambda: len(deployment.effects()) >= 4)
    for path in held:
        path.unlink()
    result = deployment.ended("traced", trigger.iteration)
    pids = {o.data["pid"] for o in result.observations}

    assert sources(result) == ["one", "two", "three"]
    assert len(pids) > 1
    assert result.success


@pytest.mark.long
@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_killed_in_a_phase_costs_seconds_and_nothing_else(
    deployment: Deployment, phase: str, measure: Measure
) -> None:
    """Nothing lost, nothing doubled, no hang."""
    for name in ("a", "b", "c"):
        deployment.worker(name, TRACED)
    held = hold(deployment, phase)
    trigger = deployment.launcher("traced").trigger("test")
    line = wait_until(lambda: marks(deployment, phase))[0]
    deployment.kill(owner(deployment, line))
    with measure.seconds(3, f"a worker killed in {phase}: the iteration has ended after"):
        held.unlink()
        # Stated bound: lease 3 s, a sweep of at most 1.2 s, and the rest of the iteration.
        result = deployment.ended("traced", trigger.iteration, timeout=15)
    acted = marks(deployment, "act")

    assert sources(result) == ["one", "two", "three"]
    assert len(acted) == 1, "the action ran twice"
    assert result.observer_errors == []
    assert result.retries >= 1
    if phase == "act":
        assert "Outcome unknown" in (result.action_results[0].error or "")
        assert result.action_results[0].unknown
    else:
        assert [r.output for r in result.action_results] == ["acted"]
    assert deployment.agent("traced").loop_control.status().phase == "idle"
    lost = [run for run in result.phase_runs if run.lost]
    counted = [run.phase for run in result.phase_runs if not run.lost]
    assert [run.phase for run in lost] == ["observe" if phase == "one" else phase]
    assert lost[0].worker
    assert lost[0].host
    assert counted == ["start", "observe", "orient", "decide", "act", "complete"]
    assert result.gate is not None
    assert result.gate.outcome == "automatic"


def test_an_iteration_after_a_kill_goes_on_counting(deployment: Deployment) -> None:
    for name in ("a", "b"):
        deployment.worker(name, TRACED)
    held = hold(deployment, "decide")
    launcher = deployment.launcher("traced")
    launcher.trigger("test")
    line = wait_until(lambda: marks(deployment, "decide"))[0]
    deployment.kill(owner(deployment, line))
    held.unlink()
    deployment.ended("traced", 1)

    assert launcher.trigger("test").iteration == 2
    assert deployment.ended("traced", 2).success


def test_a_frozen_worker_that_wakes_up_late_is_refused(deployment: Deployment) -> None:
    """A SIGSTOPped worker loses its lease; what it does after SIGCONT changes nothing."""
    for name in ("a", "b"):
        deployment.worker(name, TRACED)
    held = hold(deployment, "orient")
    trigger = deployment.launcher("traced").trigger("test")
    line = wait_until(lambda: marks(deployment, "orient"))[0]
    frozen = owner(deployment, line)
    deployment.kill(frozen, signal.SIGSTOP)
    held.unlink()
    result = deployment.ended("traced", trigger.iteration)
    deployment.kill(frozen, signal.SIGCONT)
    again = deployment.launcher("traced").trigger("test")
    deployment.ended("traced", again.iteration)

    assert result.success
    assert [f"act:{n}" for n in (1, 2)] == [m.rsplit(":", 1)[0] for m in marks(deployment, "act")]


def test_without_a_worker_a_started_iteration_waits_and_then_runs(deployment: Deployment) -> None:
    trigger = deployment.launcher("traced").trigger("test")
    deployment.worker("late", TRACED)

    assert deployment.ended("traced", trigger.iteration).success


@pytest.mark.long
def test_every_tenth_message_lost_and_all_iterations_still_end_in_order(
    deployment: Deployment,
) -> None:
    deployment.environment["DROP_EVERY"] = "10"
    for name in ("a", "b"):
        deployment.worker(name, "agents.lossy:ticking")
    deployment.beat("beat", "agents.lossy:ticking")
    history = deployment.agent("ticking").history
    wait_until(lambda: history.get(12), timeout=90)
    results = [history.get(n) for n in range(1, 13)]

    assert all(r is not None and r.success for r in results)
    assert any(r is not None and r.retries == 0 for r in results)
    counts = Counter(line.rsplit(":", 1)[0] for line in deployment.effects())
    for n in range(1, 13):
        for phase in ("start", "one", "two", "three", "orient", "decide", "act", "complete"):
            assert counts[f"{phase}:{n}"] == 1, f"{phase} of iteration {n}"


def test_a_stopped_worker_exits_cleanly_and_leaves_the_fleet(deployment: Deployment) -> None:
    deployment.worker("a", TRACED)

    assert deployment.stop("a") == 0
    assert deployment.store.fleet.workers() == []


def test_the_log_of_a_worker_has_nothing_but_lines_of_one_form(deployment: Deployment) -> None:
    deployment.worker("a", TRACED)
    deployment.stop("a")

    lines = deployment.log("a").splitlines()
    assert [line for line in lines if not re.match(r"\d\d:\d\d:\d\d\.\d{3} [a-z]+ +\S", line)] == []
    assert re.search(r"worker \S+ is stopping$", lines[-1])


def test_the_log_of_a_worker_that_lost_redis_has_no_warnings_of_libraries(
    deployment: Deployment,
) -> None:
    deployment.worker("a", TRACED)

    def loses_broker() -> bool:
        deployment.store.client.client_kill_filter(_type="normal")
        return "Connection to broker lost" in deployment.log("a")

    wait_until(loses_broker)
    trigger = deployment.launcher("traced").trigger("test")
    deployment.ended("traced", trigger.iteration)

    assert "Warning: " not in deployment.log("a")


def test_messages_are_sent_through_one_client(redis_url: str) -> None:
    app = make_app(redis_url)
    with app.producer_pool.acquire(block=True) as producer:
        channel = producer.channel
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
    app.close()


def test_a_message_that_makes_no_sense_is_ignored(deployment: Deployment) -> None:
    deployment.worker("a", TRACED)
    app = deployment._app
    rubbish: list[list[Any]] = [
        *([], ["traced"], ["traced", "x", 1], ["nobody", 1, 1], ["traced", -1, 1], [{}])
    ]
    for arguments in rubbish:
        app.send_task("boyd.start", arguments, queue="boyd.loop.traced")
    trigger = deployment.launcher("traced").trigger("test")

    assert deployment.ended("traced", trigger.iteration).success


@pytest.mark.parametrize("killed", ["before", "during"])
def test_an_approved_action_survives_the_death_of_its_worker(
    deployment: Deployment, killed: str
) -> None:
    """At most once, and the item says how it ended."""
    for name in ("a", "b"):
        deployment.worker(name, "agents.traced:careful")
    store = deployment.agent("careful")
    trigger = deployment.launcher("careful").trigger("test")
    deployment.ended("careful", trigger.iteration)
    [item] = store.approvals.page(50).pending
    held = hold(deployment, "act" if killed == "during" else "before")
    deployment.resolver("careful").answer(item.id, "approved", person("ann"))
    line = wait_until(lambda: marks(deployment, held.suffix[1:]))[0]
    deployment.kill(owner(deployment, line))
    held.unlink()

    def final_state() -> str | None:
        approval = store.approvals.get(item.id)
        assert approval is not None
        assert approval.execution is not None
        return approval.execution.state if approval.result else None

    state = wait_until(final_state, 15)

    assert ("unknown" if killed == "during" else "succeeded") == state
    assert len(marks(deployment, "act")) == 1


class Trap:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ('echo trapped >> "$EFFECTS"',)


def test_a_message_that_would_run_when_it_is_read_is_not_read(deployment: Deployment) -> None:
    deployment.worker("a", TRACED)
    app = deployment._app
    app.send_task("boyd.start", [Trap()], queue="boyd.loop.traced", serializer="pickle")
    trigger = deployment.launcher("traced").trigger("test")

    assert deployment.ended("traced", trigger.iteration).success
    assert "trapped" not in deployment.effects()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_approved_action_whose_only_worker_is_gone_is_unknown_at_once(
    deployment: Deployment, number: int, measure: Measure
) -> None:
    """Nobody is left who could execute it, and nobody needs to be."""
    deployment.worker("acts", "agents.traced:careful", "-Q", "act")
    deployment.worker("thinks", "agents.traced:careful", "-Q", "loop,observe")
    store = deployment.agent("careful")
    trigger = deployment.launcher("careful").trigger("test")
    deployment.ended("careful", trigger.iteration)
    [item] = store.approvals.page(50).pending
    held = hold(deployment, "act")
    deployment.resolver("careful").answer(item.id, "approved", person("ann"))
    wait_until(lambda: marks(deployment, "act"))
    deployment.kill("acts", number)
    with measure.seconds(3, "the only worker that acts is gone: the approval is unknown after"):
        wait_until(lambda: store.approvals.page(1).history[0].result)
    done = store.approvals.get(item.id)
    assert done is not None
    assert done.execution is not None
    assert done.result is not None
    assert done.execution.started_at is not None
    store.audit_trail.seal()
    trail = {entry.kind: entry for entry in store.audit_trail.page(50).entries}
    if number == signal.SIGSTOP:
        held.unlink()
        deployment.kill("acts", signal.SIGCONT)
        key = f"boyd:{{careful}}:execution:approval:{item.id}"
        wait_until(lambda: deployment._client.hexists(key, "lateResult"))

    assert (done.execution.state, done.result.unknown) == ("unknown", True)
    assert abs((done.execution.started_at - trail["action.started"].at).total_seconds()) < 0.01
    assert trail["action.unknown"].what["execution"] == f"approval:{item.id}"
    assert store.approvals.get(item.id) == done


def test_an_action_of_the_loop_whose_only_worker_is_gone_holds_nothing_up(
    deployment: Deployment,
) -> None:
    deployment.worker("acts", TRACED, "-Q", "act")
    deployment.worker("thinks", TRACED, "-Q", "loop,observe")
    hold(deployment, "act")
    trigger = deployment.launcher("traced").trigger("test")
    wait_until(lambda: marks(deployment, "act"))
    deployment.kill("acts")
    result = deployment.ended("traced", trigger.iteration)

    assert [action_result.unknown for action_result in result.action_results] == [True]
