"""The knowledge of a process about the others, and the reads that it costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import fakeredis
import pytest

from boyd.errors import StoreUnavailable
from boyd.models import Actor, utc_now
from boyd.store import AgentEntry, Fleet, Store, WorkerInfo
from boyd.store.fleet import ALIVE
from boyd.store.keys import FREEZES, REGISTERED, WORKERS


class Counting:
    """A deployment whose announcements are counted as they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.fleet = Store(self.client, "test").fleet
        self.read: list[str] = []
        hmget: Any = self.client.hmget

        def count_reads(key: str, names: Sequence[str]) -> list[str | None]:
            self.read += names
            texts: list[str | None] = hmget(key, names)
            return texts

        monkeypatch.setattr(self.client, "hmget", count_reads)

    def names(self) -> set[str]:
        """The names of the live processes, as read now."""
        return {worker.name for worker in self.fleet.recent(fresh=True)}


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


STARTED = utc_now()


def process(name: str, problem: str | None = None) -> WorkerInfo:
    """The announcement of a worker."""
    return WorkerInfo(
        name=name,
        role="worker",
        host="here",
        pid=1,
        queues=["observe"],
        agents=["a"],
        version="test",
        started_at=STARTED,
        problem=problem,
    )


def announce(fleet: Fleet, name: str, problem: str | None = None) -> list[str]:
    """A process says that it lives; the agents that it had to register again."""
    return fleet.beat(process(name, problem))


def test_the_announcement_of_a_process_is_read_once(deployment: Counting) -> None:
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one"}
    announce(deployment.fleet, "one")
    announce(deployment.fleet, "two")

    assert deployment.names() == {"one", "two"}
    assert deployment.names() == {"one", "two"}
    assert deployment.read == ["one", "two"]
    assert deployment.fleet.of("a").serving("observe") == 2


def test_silent_and_leaving_processes_disappear_until_they_announce_again(
    deployment: Counting,
) -> None:
    for name in ("one", "two", "three"):
        announce(deployment.fleet, name)
    assert deployment.names() == {"one", "two", "three"}
    deployment.client.zincrby(WORKERS, -(ALIVE + 1) * 1000, "one")
    deployment.fleet.leave("two")

    assert deployment.names() == {"three"}
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one", "three"}
    assert deployment.read.count("one") == 2


def test_a_killed_process_does_not_outlive_the_others_after_the_clock_has_stepped_back(
    deployment: Counting,
) -> None:
    announce(deployment.fleet, "killed")
    deployment.client.zincrby(WORKERS, 60_000, "killed")
    announce(deployment.fleet, "alive")

    assert "alive" in deployment.names()
    assert deployment.fleet.of("a").serving("observe", fresh=True) == 2  # it died just now
    beats = dict(deployment.client.zrange(WORKERS, 0, -1, withscores=True))
    assert beats["killed"] <= beats["alive"]
    deployment.client.zincrby(WORKERS, -(ALIVE + 1) * 1000, "killed")
    announce(deployment.fleet, "alive")
    assert deployment.names() == {"alive"}


class Reader:
    """A worker that keeps its list of live processes fresh with each heartbeat."""

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(client, "reader")
        self._throttle = self.store.throttle(["a"])
        self.reads = 0
        zrange = client.zrange

        def count(*arguments: Any, **options: Any) -> Any:
            self.reads += 1
            return zrange(*arguments, **options)

        monkeypatch.setattr(client, "zrange", count)
        self.names()

    def names(self) -> set[str]:
        """The names of the live processes, as it has them after a heartbeat."""
        fleet = self.store.fleet
        fleet.refresh(self._throttle.beat(process("reader")).live)
        return {worker.name for worker in fleet.recent()}


def test_heartbeats_read_the_others_only_after_one_has_joined_left_or_died(
    deployment: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(deployment.client, monkeypatch)
    reader.names()
    others = {name: Store(deployment.client, name).throttle(["a"]) for name in ("one", "two")}
    for name, throttle in others.items():
        throttle.beat(process(name))
    assert reader.names() == {"reader", "one", "two"}
    before = reader.reads
    for _ in range(20):
        for name, throttle in others.items():
            throttle.beat(process(name))
        assert reader.names() == {"reader", "one", "two"}
    assert reader.reads == before

    # One leaves and another joins between two heartbeats: there are as many as before.
    deployment.fleet.leave("two")
    announce(deployment.fleet, "three")
    assert reader.names() == {"reader", "one", "three"}
    deployment.client.zincrby(WORKERS, -(ALIVE + 1) * 1000, "one")
    assert reader.names() == {"reader", "three"}
    assert reader.reads == before + 2


@pytest.mark.parametrize("seed", range(8))
def test_a_worker_knows_after_each_heartbeat_who_is_alive(
    seed: int, deployment: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    reader = Reader(deployment.client, monkeypatch)
    others = {name: Store(deployment.client, name).throttle(["a"]) for name in "abcde"}
    for _ in range(60):
        for name in draw.sample("abcde", draw.randint(0, 3)):
            match draw.choice(["beat", "leave", "fall silent"]):
                case "beat":
                    others[name].beat(process(name))
                case "leave":
                    deployment.fleet.leave(name)
                case "fall silent" if deployment.client.zscore(WORKERS, name):
                    deployment.client.zincrby(WORKERS, -(ALIVE + 1) * 1000, name)
        assert reader.names() == deployment.names()


def test_a_worker_that_could_not_read_the_others_reads_them_with_its_next_heartbeat(
    deployment: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(deployment.client, monkeypatch)
    reader.names()
    announce(deployment.fleet, "one")
    with monkeypatch.context() as patched:
        patched.setattr(reader.store.fleet, "_infos", fail)
        with pytest.raises(StoreUnavailable):
            reader.names()

    assert reader.names() == {"reader", "one"}


def fail(*_: object) -> None:
    """Redis does not answer."""
    raise StoreUnavailable("gone")


def test_workers_are_listed_with_their_current_problem(deployment: Counting) -> None:
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one"}
    announce(deployment.fleet, "one", problem="17 hung threads; restarting")
    (worker,) = deployment.fleet.workers()

    assert worker.problem == "17 hung threads; restarting"
    assert worker.last_beat is not None


ENTRY = AgentEntry(
    id="a", name="A", mode="manual", loop_interval=60, plugins=["p"], fingerprint="one"
)


@pytest.fixture
def store() -> Store:
    return Store(fakeredis.FakeRedis(decode_responses=True), "test")


@pytest.mark.parametrize("lost", ["boyd:{*}:agents", REGISTERED, "everything"])
def test_a_heartbeat_registers_agents_again_that_redis_has_lost(store: Store, lost: str) -> None:
    store.fleet.register(ENTRY)
    assert announce(store.fleet, "one") == []
    if lost == "everything":
        store.client.flushall()
    store.client.delete(lost)

    assert announce(store.fleet, "one") == ["a"]
    assert store.fleet.agents() == {"a": ENTRY}
    assert announce(store.fleet, "one") == []


def test_an_agent_that_was_retired_while_a_process_runs_it_is_registered_again(
    store: Store,
) -> None:
    other = Store(store.client, "other").fleet
    store.fleet.register(ENTRY)
    other.retire(ENTRY, utc_now())
    assert store.fleet.agents()["a"].retired_at is not None

    assert announce(other, "starts no agent") == []
    assert announce(store.fleet, "one") == ["a"]
    assert store.fleet.agents() == {"a": ENTRY}
    assert announce(store.fleet, "one") == []


def test_retiring_an_agent_does_not_say_that_no_freeze_was_lost(store: Store) -> None:
    store.fleet.register(ENTRY)
    assert store.client.hexists(FREEZES, "+")
    store.client.flushall()
    store.fleet.retire(ENTRY, utc_now())

    assert not store.client.hexists(FREEZES, "+")


def test_an_agent_that_is_retired_twice_is_back_when_a_process_starts_it(store: Store) -> None:
    store.fleet.retire(ENTRY, utc_now())
    store.fleet.retire(ENTRY, utc_now())
    store.fleet.register(ENTRY)

    assert store.fleet.agents() == {"a": ENTRY}
    assert announce(store.fleet, "one") == []


def test_a_heartbeat_leaves_alone_what_another_process_has_registered_later(
    store: Store,
) -> None:
    other = Store(store.client, "other").fleet
    later = ENTRY.patched({"fingerprint": "two"})
    store.fleet.register(ENTRY)
    other.register(later)

    assert announce(store.fleet, "one") == []
    assert store.fleet.agents() == {"a": later}


@pytest.mark.parametrize("agent_id", ["a", None])
def test_a_process_restores_a_freeze_that_redis_has_lost(
    store: Store, agent_id: str | None
) -> None:
    store.freezes.freeze("incident", agent_id)
    announce(store.fleet, "one")
    store.client.flushall()
    assert store.freezes.of("a") is None
    announce(store.fleet, "one")

    assert store.freezes.of("a") == "incident"
    store.audit_trail.seal()
    [entry] = store.audit_trail.entries()
    assert (entry.kind, entry.note) == ("freeze.restored", "incident")


def test_a_lifted_freeze_is_not_restored_by_a_process_that_was_away(store: Store) -> None:
    away = Store(store.client, "away").fleet
    store.freezes.freeze("incident")
    announce(away, "away")
    store.freezes.lift(actor=Actor(principal="ann"))
    announce(away, "away")
    announce(store.fleet, "one")

    assert store.freezes.everywhere() is None


def test_a_freeze_is_not_undone_by_one_that_a_clock_ahead_has_lifted(store: Store) -> None:
    slow = Store(store.client, "slow").fleet
    store.freezes.freeze("the first")
    store.freezes.lift()
    lifted = int(store.client.hget(FREEZES, "*") or 0) + 3_600_000
    store.client.hset(FREEZES, "*", lifted)
    announce(store.fleet, "one")
    announce(slow, "slow")
    store.client.flushall()
    store.freezes.freeze("the second")
    announce(store.fleet, "one")

    assert store.freezes.everywhere() == "the second"
    # The other process remembers the same, and speaks after the time at which it was lifted.
    assert int((store.client.hget(FREEZES, "*") or "0").split()[0]) > lifted
    announce(slow, "slow")
    assert store.freezes.everywhere() == "the second"
    store.freezes.lift()
    announce(slow, "slow")
    assert store.freezes.everywhere() is None


def test_the_mark_of_a_lifted_freeze_is_forgotten_after_a_day(store: Store) -> None:
    store.client.hset(FREEZES, mapping={"a": "1", "b": "1 still frozen"})
    announce(store.fleet, "one")

    assert store.client.hgetall(FREEZES) == {"b": "1 still frozen", "+": "0"}


def test_a_freeze_mark_that_cannot_be_read_freezes(store: Store) -> None:
    store.client.hset(FREEZES, "a", "garbage")

    assert store.freezes.of("a") == "the freeze mark cannot be read"
    assert store.freezes.of("b") is None
