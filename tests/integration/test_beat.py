"""Several beats on a real Redis."""

from __future__ import annotations

import itertools
import signal

import pytest

from agents.traced import ticking
from boyd.models import LoopResult, to_ms
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = pytest.mark.real

INTERVAL = 0.2


def results(deployment: Deployment, count: int) -> list[LoopResult]:
    """The first *count* iterations, once they have ended."""
    history = deployment.agent("ticking").history
    wait_until(lambda: history.get(count), 60)
    iterations = [history.get(n) for n in range(1, count + 1)]
    assert all(iterations)
    return [result for result in iterations if result]


def slots(iterations: list[LoopResult]) -> list[int]:
    """The slot of each iteration that beat started, by the Redis server's clock."""
    return [ticking.settings.ticks.slot(to_ms(result.started_at)) for result in iterations]


def test_beat_ticks_below_one_second(deployment: Deployment) -> None:
    deployment.worker("w", "agents.traced:ticking")
    deployment.beat("b", "agents.traced:ticking")
    iterations = results(deployment, 10)
    numbers = slots(iterations)

    assert all(r.trigger == "beat" for r in iterations)
    assert len(set(numbers)) == len(numbers), "two iterations in one slot"
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert min(gaps) * INTERVAL < 1, "no two began within one second"


def test_three_beats_one_killed_and_one_frozen_start_one_iteration_per_slot(
    deployment: Deployment, measure: Measure
) -> None:
    deployment.worker("w", "agents.traced:ticking")
    for name in ("a", "b", "c"):
        deployment.beat(name, "agents.traced:ticking")
    results(deployment, 5)
    deployment.kill("a")
    deployment.kill("b", signal.SIGSTOP)
    history = deployment.agent("ticking").history
    reached = deployment.agent("ticking").loop_control.status().iteration
    wait_until(lambda: history.get(reached + 8), 30)
    deployment.kill("b", signal.SIGCONT)
    wait_until(lambda: history.get(reached + 12), 30)
    numbers = slots(results(deployment, reached + 12))
    missed = numbers[-1] - numbers[0] + 1 - len(numbers)
    measure(7, f"three beats, one killed, one frozen: {missed} of {len(numbers)} slots missed")

    assert len(set(numbers)) == len(numbers), "two iterations in one slot"
    assert sorted(numbers) == numbers


def test_a_paused_agent_is_not_ticked_until_it_is_resumed(deployment: Deployment) -> None:
    deployment.worker("w", "agents.traced:ticking")
    deployment.beat("b", "agents.traced:ticking")
    results(deployment, 2)
    store = deployment.agent("ticking")
    history, loop = store.history, store.loop_control
    loop.pause("test")
    wait_until(lambda: loop.status().phase == "idle")
    reached = loop.status().iteration
    # Beat goes on trying: the slot of its last attempt stays where the pause began.
    events = deployment.store.events(["ticking"])
    started = [e for _, e in events.wait(1.0) if e.kind == "iteration.started"]

    assert started == []
    assert reached == loop.status().iteration

    deployment.launcher("ticking", "continuous").resume()

    assert wait_until(lambda: history.get(reached + 1))


def test_without_a_worker_ticks_do_not_pile_up(deployment: Deployment) -> None:
    deployment.beat("b", "agents.traced:ticking")
    client = deployment.store.client
    loop = "boyd:{ticking}:loop"
    first = wait_until(lambda: client.hget(loop, "slot"))
    wait_until(lambda: int(client.hget(loop, "slot")) > int(first) + 2000)

    assert deployment.agent("ticking").loop_control.status().iteration == 1
    assert client.llen("boyd.loop.ticking") <= 3
    deployment.worker("w", "agents.traced:ticking")
    assert len(results(deployment, 3)) == 3
