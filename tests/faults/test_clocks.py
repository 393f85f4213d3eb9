"""Wall clocks are wrong, by seconds or hours; only that of Redis counts, and it may be set."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from boyd.models import to_ms
from boyd.models.loop import Ticks
from faults.clocks import Clock, clocks_in, missing, tidy
from faults.invariants import Invariants
from faults.load import Load
from faults.storm import settle
from faults.world import AGENTS, RedisProcess, World
from harness import Deployment, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

HOUR = 3600.0
NIGHTLY = "agents.scheduled:nightly"


@pytest.fixture(autouse=True)
def _shifting() -> Iterator[None]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    yield
    tidy()


@pytest.mark.long
def test_clocks_that_are_hours_apart_and_step_double_and_lose_nothing(tmp_path: Path) -> None:
    ahead = {"w0": 30.0, "w1": -30.0, "b0": -HOUR, "a0": HOUR}
    world = World(tmp_path)
    world.clocks = clocks_in(tmp_path, ahead)
    try:
        world.start()
        load = Load(world, seed=7)
        load.start()
        _wait_for_answers(load, 6)
        for name, seconds in {"w0": -HOUR, "w1": HOUR, "b0": HOUR, "a0": -HOUR}.items():
            world.clocks[name].shift(seconds)
        _wait_for_answers(load, 6)
        load.stop()
        settle(world)

        assert _twice_begun(world) == []
        assert Invariants(world, load.acknowledged).check() == []
    finally:
        world.end()


@pytest.mark.long
def test_a_beat_whose_clock_is_put_back_goes_on(deployment: Deployment, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    agents = ("--agent", "agents.storm:storm0", "--agent", "agents.storm:storm1")
    deployment.start("w0", "worker", *agents)
    deployment.prefix = clock.command
    deployment.start("b0", "beat", *agents)
    for agent in AGENTS:
        deployment.ended(agent, 1)
    clock.shift(-HOUR)
    for agent in AGENTS:
        further = deployment.agent(agent).loop_control.status().iteration + 3
        deployment.ended(agent, further, 10)


@pytest.mark.long
@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_the_clock_of_redis_itself_is_set(tmp_path: Path, step: float) -> None:
    """A step ahead may expire waiting items; everything else goes on within seconds."""
    clock = Clock(tmp_path / "clock")
    world = World(tmp_path, RedisProcess(tmp_path, clock=clock))
    try:
        world.start()
        load = Load(world, seed=8)
        load.start()
        _wait_for_answers(load, 4)
        clock.shift(step)
        _wait_for_answers(load, 6)
        load.stop()
        settle(world)

        assert _twice_begun(world) == []
        assert Invariants(world, load.acknowledged).check() == []
    finally:
        world.end()


@pytest.mark.long
def test_starts_by_the_schedule_happen_once_over_a_change_of_the_clock(tmp_path: Path) -> None:
    """At 02:30 in Vienna, which is skipped in March, comes twice in October, and may be missed."""
    clock = Clock(tmp_path / "clock")
    server = RedisProcess(tmp_path, clock=clock)
    beats = ("b0", "b1")
    try:
        with Deployment(server.url, tmp_path) as deployment:
            deployment.worker("w", NIGHTLY)
            history = deployment.agent("nightly").history

            def start_minute(number: int) -> datetime:
                deployment.ended("nightly", number, 30)
                assert not history.get(number + 1)
                result = history.get(number)
                assert result is not None
                return result.started_at.replace(second=0, microsecond=0)

            def begin(text: str) -> None:
                clock.shift(datetime.fromisoformat(text).timestamp() - time.time())
                for name in beats:
                    deployment.beat(name, NIGHTLY)

            def stop() -> None:
                for name in beats:
                    deployment.kill(name)

            begin("2027-03-28T00:59:57+00:00")
            assert start_minute(1) == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
            stop()
            # Seven months of starts were missed: one is made up for, at once.
            begin("2027-10-31T00:10:00+00:00")
            assert start_minute(2) == datetime(2027, 10, 31, 0, 10, tzinfo=UTC)
            stop()
            begin("2027-10-31T00:29:57+00:00")
            assert start_minute(3) == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
            stop()
            begin("2027-10-31T01:29:57+00:00")
            wait_until(lambda: deployment.store.clock.seconds() % 3600 > 1805, 30)
            assert start_minute(3) == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    finally:
        server.signal(signal.SIGKILL)


def _wait_for_answers(load: Load, number: int) -> None:
    answers = load.acknowledged.answers
    enough = len(answers) + number
    wait_until(lambda: len(answers) >= enough, 60)


def _twice_begun(world: World) -> list[tuple[str, int]]:
    """Slots, on the clock of Redis, in which beats began two iterations."""
    counts: Counter[tuple[str, int]] = Counter()
    for agent in AGENTS:
        ticks = Ticks.of(agent, 0.5)
        for result in world.deployment.agent(agent).history.results(10**6):
            if result.trigger == "beat":
                counts[agent, ticks.slot(to_ms(result.started_at))] += 1
    return [slot for slot, times in counts.items() if times > 1]
