"""The audit trail: what an entry holds, how it is read, and what steering an agent leaves."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import fakeredis
import pytest
from pydantic import SecretStr

from boyd.errors import BadCursor, ConfigError, StoreUnavailable
from boyd.models import Actor, AuditEntry, AuditFilter, AuditHead
from boyd.settings.process_settings import load_settings
from boyd.store import AgentStore, Audit, Sealing, Store
from boyd.store.keys import AGENTS, DEPLOYMENT, Keys
from boyd.store.server.scripts import actor_fields

ANN = Actor(
    principal="ann@example.com", key="k1", address="192.0.2.7", claims="bob", groups=["ops"]
)


@pytest.fixture
def whole() -> Store:
    return Store(fakeredis.FakeRedis(decode_responses=True), "test", sealing=Sealing("secret"))


@pytest.fixture
def store(whole: Store) -> AgentStore:
    return whole.agent("a")


def entries(chain: Audit) -> list[AuditEntry]:
    chain.seal()
    return list(chain.entries())


def fill_chain(chain: Audit, count: int) -> Audit:
    for number in range(1, count + 1):
        chain.append("test", ANN, number=number)
    chain.seal()
    return chain


# Entries


def test_an_actor_is_given_to_scripts_as_pairs_of_what_is_known() -> None:
    assert actor_fields(None) == []
    assert actor_fields(Actor(principal="agent:a")) == ["who", "agent:a"]
    assert actor_fields(ANN) == [
        *("who", "ann@example.com"),
        *("key", "k1"),
        *("from", "192.0.2.7"),
        *("claims", "bob"),
    ]


def test_an_entry_tells_who_what_when_and_from_where(whole: Store) -> None:
    whole.audit_trail.append("key.created", ANN, after="active", target="k2", note=None, empty="")
    (entry,) = entries(whole.audit_trail)

    assert entry.seq == 1
    assert (entry.kind, entry.who, entry.key) == ("key.created", "ann@example.com", "k1")
    assert (entry.address, entry.claims, entry.after) == ("192.0.2.7", "bob", "active")
    assert entry.what == {"target": "k2"}
    assert entry.prev == ""
    assert int(entry.at.timestamp() * 1000) == int(entry.id.split("-")[0])
    assert entry.to_wire()["from"] == "192.0.2.7"


def test_each_entry_carries_the_hash_of_the_one_before_it(whole: Store) -> None:
    first, second, third = entries(fill_chain(whole.audit_trail, 3))

    assert (second.prev, third.prev) == (first.hash, second.hash)
    assert whole.audit_trail.head() == AuditHead(seq=3, hash=third.hash)


def test_nothing_is_open_after_sealing_and_sealing_again_does_nothing(whole: Store) -> None:
    fill_chain(whole.audit_trail, 3)

    assert whole.audit_trail.seal() == 0
    assert whole.audit_trail.verify().waiting == 0


def test_sealing_all_chains_with_nothing_to_do_is_one_round_trip(
    whole: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = []
    pipeline = whole.client.pipeline

    def count_pipeline(*args: Any, **options: Any) -> Any:
        trips.append(args)
        return pipeline(*args, **options)

    monkeypatch.setattr(whole.client, "pipeline", count_pipeline)

    assert whole.seal(["a", "b", "c"]) == 0
    assert len(trips) == 1


def test_chains_are_apart_and_sealed_together(whole: Store, store: AgentStore) -> None:
    whole.audit_trail.append("everywhere", ANN)
    store.audit_trail.append("here", ANN)

    assert whole.seal(["a"]) == 2
    assert [entry.kind for entry in whole.audit_trail.entries()] == ["everywhere"]
    assert [entry.kind for entry in store.audit_trail.entries()] == ["here"]


def test_equal_entries_of_two_chains_have_different_hashes(whole: Store) -> None:
    a, b = whole.agent("a").audit_trail, whole.agent("b").audit_trail
    for chain in (a, b):
        whole.client.xadd(chain.open_stream, {"kind": "test"}, id="1-1")

    assert entries(a)[0].hash != entries(b)[0].hash


# Reading


def test_a_page_is_newest_first_and_leads_to_the_next(whole: Store) -> None:
    chain = fill_chain(whole.audit_trail, 5)
    first = chain.page(2)
    second = chain.page(2, first.next_cursor)
    third = chain.page(2, second.next_cursor)

    assert [e.seq for page in (first, second, third) for e in page.entries] == [5, 4, 3, 2, 1]
    assert third.next_cursor is None


def test_a_page_that_holds_everything_leads_nowhere(whole: Store) -> None:
    assert fill_chain(whole.audit_trail, 2).page(2).next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1-0", "²", "9" * 40])
def test_an_invalid_cursor_is_refused(whole: Store, cursor: str) -> None:
    with pytest.raises(BadCursor):
        whole.audit_trail.page(10, cursor)


def execute_on_hosts(chain: Audit) -> Audit:
    """A trail of executions on two hosts, among other things."""
    bob = Actor(principal="bob")
    for host, action, by in (("a", "p:do", ANN), ("b", "p:do", bob), ("b", "p:tidy", bob)):
        where = {"host": host, "worker": f"{host}.1.ff", "action": action}
        chain.append("action.started", by, **where)
        chain.append("action.succeeded", by, **where)
    chain.append("actions.paused", bob)
    chain.seal()
    return chain


@pytest.mark.parametrize(
    ("expected", "seqs"),
    [
        ({"host": "b"}, [6, 5, 4, 3]),
        ({"worker": "a.1.ff"}, [2, 1]),
        ({"action": "p:tidy"}, [6, 5]),
        ({"kind": "action"}, [6, 5, 4, 3, 2, 1]),
        ({"kind": "action.started", "host": "b"}, [5, 3]),
        ({"by": "ann@example.com"}, [2, 1]),
        ({"by": "bob", "host": "a"}, [2, 1]),  # ann has acted for bob
        ({"host": "c"}, []),
        ({}, [7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_a_page_and_an_export_hold_the_entries_that_fit(
    whole: Store, expected: dict[str, str], seqs: list[int]
) -> None:
    chain, filters = execute_on_hosts(whole.audit_trail), AuditFilter(**expected)

    assert [entry.seq for entry in chain.page(filters=filters).entries] == seqs
    assert [json.loads(line)["seq"] for line in chain.export(filters=filters)] == seqs[::-1]


def test_a_page_of_those_that_fit_leads_to_the_next(whole: Store) -> None:
    chain, filters = execute_on_hosts(whole.audit_trail), AuditFilter(kind="action.started")
    first = chain.page(2, filters=filters)
    second = chain.page(2, first.next_cursor, filters=filters)

    assert [[e.seq for e in page.entries] for page in (first, second)] == [[5, 3], [1]]
    assert second.next_cursor is None


def test_looking_for_what_is_rare_costs_no_more_than_a_bounded_look(
    whole: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd.store.audit_trail.SCANNED", 10)
    monkeypatch.setattr("boyd.store.audit_trail.BATCH", 4)
    chain, filters = fill_chain(execute_on_hosts(whole.audit_trail), 20), AuditFilter(host="a")
    first = chain.page(5, filters=filters)
    second = chain.page(5, first.next_cursor, filters=filters)
    third = chain.page(5, second.next_cursor, filters=filters)

    assert [page.next_cursor for page in (first, second, third)] == ["18", "8", None]
    assert [[e.seq for e in page.entries] for page in (first, second, third)] == [[], [], [2, 1]]


def test_reading_until_a_time_ends_before_the_first_that_is_not_older(whole: Store) -> None:
    for ms in (1000, 2000, 3000, 4000):
        whole.client.xadd(whole.audit_trail.open_stream, {"kind": "test"}, id=f"{ms}-*")
    at = {entry.seq: entry.at for entry in entries(whole.audit_trail)}
    chain = whole.audit_trail

    assert [e.seq for e in chain.page(since=at[2], until=at[4]).entries] == [3, 2]
    assert [json.loads(line)["seq"] for line in chain.export(at[2], at[4])] == [2, 3]
    assert chain.page(until=at[1]).entries == []
    assert [e.seq for e in chain.page(1, "3", until=at[4]).entries] == [2]


def test_reading_since_a_time_begins_with_the_first_that_is_not_older(whole: Store) -> None:
    for ms in (1000, 2000, 2000, 3000):
        whole.client.xadd(whole.audit_trail.open_stream, {"kind": "test"}, id=f"{ms}-*")
    at = {entry.seq: entry.at for entry in entries(whole.audit_trail)}

    def after(moment: Any) -> list[int]:
        seqs = [entry.seq for entry in whole.audit_trail.entries(since=moment)]
        assert sorted(e.seq for e in whole.audit_trail.page(since=moment).entries) == seqs
        return seqs

    assert after(at[1] - timedelta(seconds=1)) == [1, 2, 3, 4]
    assert after(at[1]) == [1, 2, 3, 4]
    assert after(at[2]) == [2, 3, 4]
    assert after(at[4]) == [4]
    assert after(at[4] + timedelta(seconds=1)) == []


def test_an_export_is_a_line_of_json_for_each_entry_oldest_first(whole: Store) -> None:
    lines = list(fill_chain(whole.audit_trail, 3).export())

    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]
    assert not any("\n" in line for line in lines)


# Keys and the cap


def test_without_the_key_a_sealer_leaves_a_keyed_chain_to_those_who_have_it(whole: Store) -> None:
    fill_chain(whole.audit_trail, 1)
    plain = Store(whole.client).audit_trail
    plain.append("test", ANN)

    assert plain.seal() == 0
    assert plain.verify().waiting == 1
    assert whole.audit_trail.seal() == 1
    assert whole.audit_trail.verify().ok


def test_the_cap_leaves_a_checkpoint_from_which_the_rest_is_verified(whole: Store) -> None:
    chain = Store(whole.client, sealing=Sealing("secret", keep=10)).audit_trail
    hashes: dict[int, str] = {}
    for _ in range(4):
        fill_chain(chain, 8)
        hashes |= {entry.seq: entry.hash for entry in chain.entries()}
    result = chain.verify()

    assert [entry.seq for entry in chain.entries()] == list(range(23, 33))
    assert result.ok
    assert result.checked == 10
    assert result.trimmed == AuditHead(seq=22, hash=hashes[22])


def test_more_open_entries_than_the_cap_are_all_chained_on_their_way(whole: Store) -> None:
    chain = fill_chain(Store(whole.client, sealing=Sealing(keep=3)).audit_trail, 20)

    assert [entry.seq for entry in chain.entries()] == [18, 19, 20]
    assert chain.verify().ok


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_sealer_that_dies_around_its_write_loses_and_doubles_nothing(
    whole: Store, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    run = whole.audit_trail._scripts.run

    def dies(name: str, **arguments: Any) -> Any:
        if not before:
            run(name, **arguments)
        raise StoreUnavailable

    for number in range(5):
        whole.audit_trail.append("test", ANN, number=number)
    with monkeypatch.context() as patch:
        patch.setattr(whole.audit_trail._scripts, "run", dies)
        with pytest.raises(StoreUnavailable):
            whole.audit_trail.seal()

    assert [entry.what["number"] for entry in entries(whole.audit_trail)] == list("01234")
    assert whole.audit_trail.verify().ok


def test_the_sealer_that_comes_second_starts_over(
    whole: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = whole.audit_trail._scripts
    run = scripts.run
    fill_chain(whole.audit_trail, 1)
    for number in range(3):
        whole.audit_trail.append("test", ANN, number=number)

    def overtake(name: str, **arguments: Any) -> Any:
        monkeypatch.setattr(scripts, "run", run)
        assert Store(whole.client, sealing=Sealing("secret")).audit_trail.seal() == 3
        whole.audit_trail.append("late", ANN)
        return run(name, **arguments)

    monkeypatch.setattr(scripts, "run", overtake)

    assert whole.audit_trail.seal() == 1
    assert [entry.kind for entry in whole.audit_trail.entries()] == ["test"] * 4 + ["late"]
    assert whole.audit_trail.verify().ok


def test_sealing_goes_on_from_the_end_of_a_chain_that_is_newer_than_its_head(whole: Store) -> None:
    chain, head = fill_chain(whole.audit_trail, 3), Keys(DEPLOYMENT).audit_head
    old = whole.client.hgetall(head)
    fill_chain(chain, 2)
    whole.client.hset(head, mapping=old)
    chain.append("test", ANN)

    assert chain.seal() == 1
    assert [entry.seq for entry in chain.entries()] == [1, 2, 3, 4, 5, 6]
    assert chain.verify().ok


# What steering leaves


def test_pausing_and_resuming_are_in_the_audit(store: AgentStore) -> None:
    store.loop_control.pause("maintenance", ANN)
    store.loop_control.pause("longer", ANN)
    store.loop_control.resume(ANN)
    store.loop_control.resume(ANN)

    rows = [(e.kind, e.before, e.after, e.note, e.who) for e in entries(store.audit_trail)]
    assert rows == [
        ("agent.paused", "running", "paused", "maintenance", ANN.principal),
        ("agent.paused", "paused", "paused", "longer", ANN.principal),
        ("agent.resumed", "paused", "running", None, ANN.principal),
    ]


def test_freezing_some_agents_is_in_their_audit(whole: Store, store: AgentStore) -> None:
    whole.freezes.freeze("incident", "a", ANN)
    whole.freezes.lift("a", ANN)
    whole.freezes.lift("a", ANN)

    rows = [(e.kind, e.before, e.after, e.note, e.what) for e in entries(store.audit_trail)]
    assert rows == [
        ("agent.frozen", "acting", "frozen", "incident", {"scope": "agent"}),
        ("agent.unfrozen", "frozen", "acting", None, {"scope": "agent"}),
    ]
    assert [(e.kind, e.what) for e in entries(whole.audit_trail)] == [
        ("agent.frozen", {"agent": "a"}),
        ("agent.unfrozen", {"agent": "a"}),
    ]


def test_freezing_everywhere_is_in_the_audit_of_the_deployment_and_of_each_agent(
    whole: Store, store: AgentStore
) -> None:
    whole.client.hset(AGENTS, "a", "as announced")
    whole.freezes.freeze("", actor=ANN)
    whole.freezes.lift(actor=ANN)

    rows = [(e.kind, e.before, e.after, e.who) for e in entries(whole.audit_trail)]
    assert rows == [
        ("deployment.frozen", "acting", "frozen", ANN.principal),
        ("deployment.unfrozen", "frozen", "acting", ANN.principal),
    ]
    assert [(e.kind, e.what["scope"]) for e in entries(store.audit_trail)] == [
        ("agent.frozen", "everywhere"),
        ("agent.unfrozen", "everywhere"),
    ]


# The setting


def test_the_audit_key_is_a_secret_that_may_lie_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("a secret of some length\n")
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ, {"BOYD_AUDIT_KEY_FILE": str(file)}):
        settings = load_settings()
    sealing = Sealing.of(settings.audit_key, settings.audit_keep)

    assert settings.audit_key == SecretStr("a secret of some length")
    assert sealing.key == "a secret of some length"
    assert "of some length" not in f"{settings!r} {sealing!r} {settings.model_dump_json()}"


def test_a_short_audit_key_is_refused_without_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOYD_AUDIT_KEY", "hunter2")
    with pytest.raises(ConfigError, match="audit_key") as error:
        load_settings()

    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("text", ["", "5", "5:abc", "0:" + "0" * 64, "x:" + "0" * 64])
def test_an_invalid_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SEQ:HASH"):
        AuditHead.parse(text)
