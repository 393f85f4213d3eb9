"""Each agent has a copy of the freeze marks, which counts only where it was compared."""

from __future__ import annotations

import fakeredis
import pytest

from boyd.models import Budget, utc_now
from boyd.models.execution import Concurrency, ExecutionTerms
from boyd.store import AgentEntry, Store, WorkerInfo
from boyd.store.keys import FREEZES, Keys
from kit import execution_request

ENTRY = AgentEntry(
    id="a", name="A", mode="manual", loop_interval=60, plugins=["p"], fingerprint="one"
)
COPY = Keys("a").freezes
#: Long before any freeze of a test, in ms.
EARLY = 1_000


@pytest.fixture
def store() -> Store:
    """A deployment with one agent, whose copy was compared."""
    new_store = Store(fakeredis.FakeRedis(decode_responses=True), "test")
    new_store.fleet.register(ENTRY)
    beat(new_store)
    return new_store


def beat(store: Store) -> None:
    """The process that runs the agent says that it lives."""
    store.fleet.beat(
        WorkerInfo(
            name="w",
            role="worker",
            host="here",
            pid=1,
            queues=["act"],
            agents=["a"],
            version="test",
            started_at=utc_now(),
        )
    )


def claim(store: Store, number: int = 1) -> str:
    """The reply to a claim of that execution."""
    ledger = store.agent("a").executions
    return ledger.claim(execution_request(f"loop:{number}", idempotent=True), "t").outcome


def test_a_claim_needs_nothing_of_the_deployment_once_the_copy_was_compared(store: Store) -> None:
    store.freezes.freeze("incident")
    store.client.delete(*store.client.keys("boyd:{[*]}:*"))
    assert claim(store) == "frozen"

    beat(store)
    beat(store)
    store.freezes.lift()
    assert claim(store) == "claimed"


@pytest.mark.parametrize("scope", ["a", "*", "revoked:a"])
def test_a_copy_that_another_server_has_compared_is_not_believed(store: Store, scope: str) -> None:
    store.client.hset(FREEZES, scope, f"{EARLY} incident")
    assert claim(store) == "claimed"
    store.client.hset(COPY, "+", "another run of a server")

    assert claim(store, 2) == ("revoked" if scope == "revoked:a" else "frozen")


def test_a_comparison_that_comes_late_does_not_undo_a_freeze(store: Store) -> None:
    before = store.client.hgetall(FREEZES)
    store.freezes.freeze("incident", "a")
    store.client.hset(FREEZES, mapping={**before, "a": str(EARLY)})
    store.client.hset(COPY, "+", "another run of a server")

    assert claim(store) == "frozen"


def test_a_heartbeat_brings_the_copies_what_did_not_reach_them(store: Store) -> None:
    store.client.hset(FREEZES, "*", f"{EARLY} incident")
    beat(store)

    assert store.client.hget(COPY, "*") == f"{EARLY} incident"
    assert claim(store) == "frozen"


def test_a_freeze_that_only_a_copy_has_comes_back_with_the_heartbeats(store: Store) -> None:
    store.freezes.freeze("incident")
    store.client.delete(FREEZES)
    started = Store(store.client, "started since")
    started.fleet.register(ENTRY)
    assert started.freezes.everywhere() is None
    beat(started)
    beat(started)

    assert started.freezes.everywhere() == "incident"


def test_a_freeze_holds_whatever_a_clock_ahead_has_written_to_a_copy(store: Store) -> None:
    store.freezes.freeze("the first")
    store.freezes.lift()
    ahead = int(store.client.hget(COPY, "*") or 0) + 3_600_000
    store.client.hset(COPY, "*", ahead)
    store.client.hdel(FREEZES, "*")
    store.freezes.freeze("the second")

    assert claim(store) == "frozen"
    assert store.client.hget(FREEZES, "*") == f"{ahead + 1} the second"
    store.freezes.lift()
    assert claim(store) == "claimed"


@pytest.mark.parametrize("scope", ["a", None])
def test_a_claim_whose_answer_was_lost_does_not_outlive_a_freeze(
    store: Store, scope: str | None
) -> None:
    ledger = store.agent("a").executions
    terms = ExecutionTerms(budget=Budget(limit=1, window=60), concurrency=Concurrency(limit=1))
    lost, following = (execution_request(id, terms=terms) for id in ("loop:1", "loop:2"))
    assert ledger.claim(lost, "t").outcome == "claimed"
    store.freezes.freeze("incident", scope)

    assert ledger.claim(lost, "t").outcome == "frozen"
    assert ledger.get("loop:1") is None
    store.freezes.lift(scope)
    assert ledger.claim(following, "u").outcome == "claimed"


def test_a_repeated_attempt_that_a_freeze_stops_keeps_an_unknown_outcome(store: Store) -> None:
    ledger = store.agent("a").executions
    again = execution_request("loop:1", idempotent=True)
    ledger.claim(again, "t")
    store.client.hset(Keys("a").execution("loop:1"), "leaseUntil", 1)
    assert ledger.claim(again, "u").outcome == "claimed"
    store.freezes.freeze("incident")

    assert ledger.claim(again, "u").outcome == "unknown"


def test_agents_that_a_freeze_has_not_reached_are_named(store: Store) -> None:
    store.fleet.register(ENTRY.patched({"id": "b"}))
    store.client.delete(COPY)
    store.client.set(COPY, "not a hash")

    assert store.freezes.freeze("incident") == ["a"]
    assert store.freezes.freeze("incident", "b") == []
    assert store.freezes.lift("a") == []
