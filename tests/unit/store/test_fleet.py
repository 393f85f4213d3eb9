"""The knowledge of a process about the others, and the reads that it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakeredis
import pytest

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

        def counted(key: str, names: Sequence[str]) -> list[str | None]:
            self.read += names
            found: list[str | None] = hmget(key, names)
            return found

        monkeypatch.setattr(self.client, "hmget", counted)

    def names(self) -> set[str]:
        """The names of the live processes, as read now."""
        return {worker.name for worker in self.fleet.recent(fresh=True)}


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def announce(fleet: Fleet, name: str, problem: str | None = None) -> list[str]:
    """A process says that it lives; the agents that it had to register again."""
    return fleet.beat(
        WorkerInfo(
            name=name,
            role="worker",
            host="here",
            pid=1,
            queues=["observe"],
            agents=["a"],
            version="test",
            started_at=utc_now(),
            problem=problem,
        )
    )


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


def test_workers_are_listed_with_their_current_problem(deployment: Counting) -> None:
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one"}
    announce(deployment.fleet, "one", problem="17 hung threads; restarting")
    (found,) = deployment.fleet.workers()

    assert found.problem == "17 hung threads; restarting"
    assert found.last_beat is not None


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
