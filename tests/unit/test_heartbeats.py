"""Turns: what any of several processes has to do, one of them does. Heartbeats are short."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import fakeredis
import pytest

from boyd.errors import StoreError
from boyd.store import AgentEntry, Store, Turns, WorkerInfo
from boyd.store.due import MOST_DUE
from boyd.store.keys import AGENTS, FREEZES, REGISTERED, WORKER_INFO, WORKERS
from boyd.store.turns import ANNOUNCE

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Process:
    """Several processes on one Redis, and the age of their last turn."""

    def __init__(self) -> None:
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.store = Store(self.client, "test")

    def turns(self, *agents: str) -> Turns:
        return self.store.turns(agents)

    def passes(self, seconds: float) -> None:
        """The last turn was that much earlier."""
        for key in self.client.keys(f"{WORKERS}:turn:*"):
            self.client.set(key, int(float(self.client.get(key)) - seconds * 1000))


@pytest.fixture
def world() -> Process:
    return Process()


def test_of_several_that_ask_one_has_its_turn_until_most_of_a_second_is_over(
    world: Process,
) -> None:
    one, other = world.turns("a", "b"), world.turns("b", "a")

    assert one.take(1.0)
    assert not other.take(1.0)
    assert not one.take(1.0)
    world.passes(0.76)
    assert other.take(1.0)
    assert not one.take(1.0)


def test_other_agents_have_turns_of_their_own(world: Process) -> None:
    assert world.turns("a").take(1.0)
    assert world.turns("a", "b").take(1.0)


def test_one_that_asks_rarely_does_not_hold_back_those_that_ask_often(world: Process) -> None:
    rare, often = world.turns("a"), world.turns("a")

    assert rare.take(10.0)
    world.passes(0.8)
    assert not rare.take(10.0)
    assert often.take(1.0)


def test_a_turn_that_lies_ahead_is_one_of_a_clock_that_stepped_back(world: Process) -> None:
    turns = world.turns("a")

    assert turns.take(1.0)
    world.passes(-60)
    assert turns.take(1.0)


def test_an_unused_turn_expires(world: Process) -> None:
    world.turns("a").take(1.0)
    (key,) = world.client.keys(f"{WORKERS}:turn:*")

    assert 0 < world.client.ttl(key) <= 3600


def test_an_agent_that_cannot_be_read_does_not_stop_due_work_of_others(
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
    """A process that has told all it has to say, and how often it has done so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.said: list[WorkerInfo] = []
        self.store.fleet.register(ENTRY)
        self.beats = self.store.turns(["a"])
        beat = self.store.fleet.beat

        def counted(said: WorkerInfo) -> list[str]:
            self.said.append(said)
            return beat(said)

        monkeypatch.setattr(self.store.fleet, "beat", counted)
        for _ in range(3):
            self.beats.beat(info())
        assert self.said == [info()]


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Beating:
    return Beating(monkeypatch)


def test_a_short_heartbeat_keeps_a_process_alive(beating: Beating) -> None:
    beating.client.zincrby(WORKERS, -60_000, "w")
    assert beating.store.fleet.workers() == []
    beating.beats.beat(info())

    assert [worker.name for worker in beating.store.fleet.workers()] == ["w"]
    assert len(beating.said) == 1


@pytest.mark.parametrize("lost", [AGENTS, REGISTERED, WORKER_INFO, FREEZES, "everything"])
def test_a_heartbeat_restores_records_that_redis_has_lost(beating: Beating, lost: str) -> None:
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
    said = len(beating.said)
    beating.beats.beat(info())
    assert len(beating.said) == said


def test_a_heartbeat_sends_changes_at_once(beating: Beating) -> None:
    beating.beats.beat(info(problem="hung"))
    assert beating.said[1:] == [info(problem="hung")]
    Store(beating.client, "other").fleet.retire(ENTRY, STARTED)

    assert beating.beats.beat(info(problem="hung")).again == ["a"]
    beating.client.hset(FREEZES, "a", f"{2**41} incident")
    beating.beats.beat(info(problem="hung"))
    assert beating.client.hget("boyd:{a}:frozen", "a") == f"{2**41} incident"


def test_a_process_tells_everything_again_now_and_then(
    beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.monotonic() + ANNOUNCE + 1
    monkeypatch.setattr("boyd.store.turns.time.monotonic", lambda: later)
    beating.beats.beat(info())

    assert len(beating.said) == 2


def test_a_heartbeat_asks_for_a_turn_by_the_way(beating: Beating) -> None:
    assert beating.beats.beat(info(), 1.0).turn
    assert not beating.beats.beat(info(), 1.0).turn
    assert not beating.turns("a").take(1.0)
    beating.passes(0.8)
    assert not beating.beats.beat(info()).turn
    assert beating.beats.beat(info(problem="hung"), 1.0).turn
