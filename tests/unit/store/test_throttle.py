"""The throttle elects one process for periodic work; heartbeats are short while nothing changes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest

from boyd.errors import StoreError
from boyd.store import AgentEntry, Store, Throttle, WorkerInfo, throttle
from boyd.store.due import MOST_DUE
from boyd.store.keys import AGENTS, FREEZES, REGISTERED, WORKER_INFO, WORKERS
from boyd.store.throttle import ANNOUNCE

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Process:
    """Several processes at one Redis, and the time since one of them acquired the throttle."""

    def __init__(self) -> None:
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.store = Store(self.client, "test")

    def throttle(self, *agents: str) -> Throttle:
        return self.store.throttle(agents)

    def passes(self, seconds: float) -> None:
        """Let that much more time pass since the throttle was acquired."""
        for key in self.client.keys(f"{WORKERS}:turn:*"):
            self.client.set(key, int(float(self.client.get(key)) - seconds * 1000))


@pytest.fixture
def world() -> Process:
    return Process()


def test_one_process_acquires_the_throttle_until_most_of_the_interval_is_over(
    world: Process,
) -> None:
    first, other = world.throttle("a", "b"), world.throttle("b", "a")

    assert first.acquire(1.0)
    assert not other.acquire(1.0)
    assert not first.acquire(1.0)
    world.passes(0.76)
    assert other.acquire(1.0)
    assert not first.acquire(1.0)


@pytest.mark.parametrize("ahead", [0.0, 40.0, -3600.0])
def test_heartbeats_announce_how_far_the_clock_of_redis_is_ahead(
    world: Process, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    clock = SimpleNamespace(time=lambda: time.time() - ahead, monotonic=time.monotonic)
    monkeypatch.setattr(throttle, "time", clock)
    beats = world.throttle("a")
    for _ in range(2):
        beats.beat(info())

    (process,) = world.store.fleet.workers()
    assert process.clock_skew == pytest.approx(ahead, abs=5)


def test_processes_with_other_agents_have_a_throttle_of_their_own(world: Process) -> None:
    assert world.throttle("a").acquire(1.0)
    assert world.throttle("a", "b").acquire(1.0)


def test_a_process_that_asks_rarely_does_not_hold_back_those_that_ask_often(world: Process) -> None:
    rare, often = world.throttle("a"), world.throttle("a")

    assert rare.acquire(10.0)
    world.passes(0.8)
    assert not rare.acquire(10.0)
    assert often.acquire(1.0)


def test_the_throttle_opens_after_the_clock_stepped_back(world: Process) -> None:
    throttle = world.throttle("a")

    assert throttle.acquire(1.0)
    world.passes(-60)
    assert throttle.acquire(1.0)


def test_redis_forgets_a_throttle_that_nobody_acquires(world: Process) -> None:
    world.throttle("a").acquire(1.0)
    (key,) = world.client.keys(f"{WORKERS}:turn:*")

    assert 0 < world.client.ttl(key) <= 3600


def test_an_agent_whose_due_work_cannot_be_read_fails_alone(
    world: Process,
) -> None:
    for agent in ("a", "b"):
        members = {f"call:{n}": 1 for n in range(MOST_DUE + 1)}
        world.client.zadd(f"boyd:{{{agent}}}:due", members)
    world.client.set("boyd:{broken}:due", "no sorted set")
    first, broken, last = world.store.take_due(["a", "broken", "b"])

    assert isinstance(broken, StoreError)
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert len(first) == len(last) == MOST_DUE


# Heartbeats

ENTRY = AgentEntry(
    id="a", name="A", mode="manual", loop_interval=60, plugins=["p"], fingerprint="one"
)


def info(problem: str | None = None) -> WorkerInfo:
    return WorkerInfo(
        name="w",
        role="worker",
        host="here",
        pid=1,
        queues=["loop"],
        agents=["a"],
        version="test",
        started_at=STARTED,
        problem=problem,
    )


class Beating(Process):
    """A process that has announced itself, and its announcements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.announced: list[WorkerInfo] = []
        self.store.fleet.register(ENTRY)
        self.beats = self.store.throttle(["a"])
        beat = self.store.fleet.beat

        def count_beat(info: WorkerInfo) -> list[str]:
            self.announced.append(info)
            return beat(info)

        monkeypatch.setattr(self.store.fleet, "beat", count_beat)
        for _ in range(3):
            self.beats.beat(info())
        assert self.announced == [info()]


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Beating:
    return Beating(monkeypatch)


def test_a_short_heartbeat_keeps_a_process_alive(beating: Beating) -> None:
    beating.client.zincrby(WORKERS, -60_000, "w")
    assert beating.store.fleet.workers() == []
    beating.beats.beat(info())

    assert [worker.name for worker in beating.store.fleet.workers()] == ["w"]
    assert len(beating.announced) == 1


@pytest.mark.parametrize("lost", [AGENTS, REGISTERED, WORKER_INFO, FREEZES, "everything"])
def test_a_heartbeat_restores_data_that_redis_has_lost(beating: Beating, lost: str) -> None:
    beating.store.freezes.freeze("incident", "a")
    beating.beats.beat(info())
    beating.client.delete(lost)
    if lost == "everything":
        beating.client.flushall()
    beating.beats.beat(info())

    assert beating.store.fleet.agents() == {"a": ENTRY}
    assert [worker.name for worker in beating.store.fleet.workers()] == ["w"]
    assert beating.store.freezes.of("a") == "incident"
    beating.beats.beat(info())
    count = len(beating.announced)
    beating.beats.beat(info())
    assert len(beating.announced) == count


def test_a_heartbeat_announces_and_compares_changes_at_once(beating: Beating) -> None:
    beating.beats.beat(info(problem="hung"))
    assert beating.announced[1:] == [info(problem="hung")]
    Store(beating.client, "other").fleet.retire(ENTRY, STARTED)

    assert beating.beats.beat(info(problem="hung")).again == ["a"]
    beating.client.hset(FREEZES, "a", f"{2**41} incident")
    beating.beats.beat(info(problem="hung"))
    assert beating.client.hget("boyd:{a}:frozen", "a") == f"{2**41} incident"


def test_a_process_announces_itself_again_now_and_then(
    beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.monotonic() + ANNOUNCE + 1
    monkeypatch.setattr("boyd.store.throttle.time.monotonic", lambda: later)
    beating.beats.beat(info())

    assert len(beating.announced) == 2


def test_a_heartbeat_acquires_the_throttle_in_the_same_round_trip(beating: Beating) -> None:
    assert beating.beats.beat(info(), 1.0).acquired
    assert not beating.beats.beat(info(), 1.0).acquired
    assert not beating.throttle("a").acquire(1.0)
    beating.passes(0.8)
    assert not beating.beats.beat(info()).acquired
    assert beating.beats.beat(info(problem="hung"), 1.0).acquired
