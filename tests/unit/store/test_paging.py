"""Pages hold everything once, whatever the scores and whatever goes meanwhile."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boyd.errors import BadCursor
from boyd.models import Decision, Proposal
from boyd.store import ItemAnswer, Retention, Store
from boyd.store.hashes import Position, dump_cursor, load_cursor, read_page
from boyd.store.keys import Keys
from boyd.store.server.scripts import Scripts
from boyd.testing import TESTER
from kit import LAX

SERVER = fakeredis.FakeServer()
CLIENT = fakeredis.FakeRedis(server=SERVER, decode_responses=True)
SCRIPTS = Scripts(CLIENT).of(Keys("a"))

#: Few different ones, so that many are the same.
scores = st.sampled_from([0.0, 1.0, 1.5, 1_763_000_000_000.0, math.inf])
members = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=3)
indexes = st.dictionaries(members, scores, max_size=30)
quickly = settings(max_examples=60, deadline=None)


def store_index(index: dict[str, float]) -> None:
    """Store an index."""
    CLIENT.delete("index")
    if index:
        CLIENT.zadd("index", index)


def in_order(index: dict[str, float], newest_first: bool) -> list[str]:
    """The members as the index has them."""
    ordered = sorted(index, key=lambda name: (index[name], name.encode()))
    return ordered[::-1] if newest_first else ordered


@quickly
@given(index=indexes, limit=st.integers(1, 12), newest_first=st.booleans())
def test_pages_hold_every_entry_once_and_in_order(
    index: dict[str, float], limit: int, newest_first: bool
) -> None:
    store_index(index)
    names: list[str] = []
    position: Position = None
    while page := read_page(SCRIPTS, "index", position, limit, newest_first):
        assert len(page) <= limit
        names += [name for name, _ in page]
        (position,) = load_cursor(dump_cursor(page[-1]), 1)

    assert names == in_order(index, newest_first)


@quickly
@given(
    index=indexes,
    limit=st.integers(1, 12),
    newest_first=st.booleans(),
    leave=st.lists(st.sets(st.integers(0, 29))),
    last=st.booleans(),
)
def test_removals_between_pages_neither_hide_nor_repeat_entries(
    index: dict[str, float],
    limit: int,
    newest_first: bool,
    leave: list[set[int]],
    last: bool,
) -> None:
    store_index(index)
    names: list[str] = []
    left: set[str] = set()
    position: Position = None
    ordered = in_order(index, newest_first)
    while page := read_page(SCRIPTS, "index", position, limit, newest_first):
        names += [name for name, _ in page]
        position = page[-1]
        chosen = {ordered[n] for n in (leave.pop() if leave else ()) if n < len(ordered)}
        leaving = chosen | ({position[0]} if last else set())
        if leaving:
            CLIENT.zrem("index", *leaving)
            left |= leaving - set(names)

    assert names == [name for name in ordered if name not in left]


@quickly
@given(index=indexes, more=indexes, limit=st.integers(1, 12))
def test_additions_between_pages_repeat_no_entries(
    index: dict[str, float], more: dict[str, float], limit: int
) -> None:
    store_index(index)
    names: list[str] = []
    position: Position = None
    while page := read_page(SCRIPTS, "index", position, limit):
        names += [name for name, _ in page]
        position = page[-1]
        for name in list(more)[:1]:
            CLIENT.zadd("index", {name: more.pop(name)}, nx=True)

    assert len(names) == len(set(names))
    assert set(index) <= set(names)


@quickly
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: base64.b64encode(b).decode()))
def test_a_cursor_that_is_none_of_ours_is_refused(text: str) -> None:
    try:
        cursor = load_cursor(text, 1)
    except BadCursor:
        return
    assert cursor == [None] or not text


@pytest.mark.parametrize(
    "positions",
    [
        *("null", "1", "{}", '"x"', "[1]", "[[1,2]]", '[["a",true]]', '[["a",null]]', '[["",1]]'),
        *('[["a",NaN]]', '[["a",1,2]]', '[["\\ud800",1]]', '[["a",1],null]', "[]", '[{"a":1}]'),
        '[["a",1' + "0" * 400 + "]]",
        "[" * 100_000,
    ],
)
def test_a_cursor_that_was_tampered_with_is_refused(positions: str) -> None:
    text = base64.urlsafe_b64encode(positions.encode()).decode().rstrip("=")
    with pytest.raises(BadCursor):
        load_cursor(text, 1)


def test_a_cursor_that_was_made_up_reads_no_more_than_a_page() -> None:
    store_index({f"m{n}": float(n) for n in range(9)})
    made_up: list[Any] = [["zzz", 4.0]]
    text = base64.urlsafe_b64encode(json.dumps(made_up).encode()).decode()
    (position,) = load_cursor(text, 1)

    assert [name for name, _ in read_page(SCRIPTS, "index", position, 2)] == ["m4", "m3"]


def proposal(number: int) -> Proposal:
    """One of many."""
    decision = Decision(action="p:do", rationale="x", confidence=1.0)
    return Proposal(
        decision=decision, action_id="p:do", params={"n": number}, loop_iteration=number
    )


@pytest.mark.parametrize("ttl", [None, 3600.0])
def test_answering_page_by_page_reaches_every_pending_item(ttl: float | None) -> None:
    """The last one of a page is gone when the next one is read."""
    store = Store(fakeredis.FakeRedis(decode_responses=True)).agent("a")
    retention = Retention(ttl=ttl)
    ids = {store.approvals.enqueue(proposal(n), retention) for n in range(25)}
    met: list[str] = []
    cursor = None
    while True:
        page = store.approvals.page(4, cursor, history=False)
        for item in page.pending:
            met.append(item.id)
            store.approvals.resolve(item.id, ItemAnswer("denied", TESTER), LAX, retention)
        cursor = page.next_cursor
        if cursor is None:
            break

    assert sorted(met) == sorted(ids)
    assert store.approvals.page(50).pending == []


def test_pending_and_history_are_paged_side_by_side() -> None:
    store = Store(fakeredis.FakeRedis(decode_responses=True)).agent("a")
    retention = Retention()
    ids = [store.approvals.enqueue(proposal(n), retention) for n in range(12)]
    for name in ids[:5]:
        store.approvals.resolve(name, ItemAnswer("denied", TESTER), LAX, retention)
    waits: list[str] = []
    past: list[str] = []
    cursor = None
    while True:
        page = store.approvals.page(3, cursor)
        waits += [item.id for item in page.pending]
        past += [item.id for item in page.history]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert sorted(waits) == sorted(ids[5:])
    assert sorted(past) == sorted(ids[:5])


def test_history_is_capped_by_count_and_age() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    store = Store(client).agent("a")
    retention = Retention(max_count=3, max_age=60.0)
    for number in range(8):
        name = store.approvals.enqueue(proposal(number), retention)
        store.approvals.resolve(name, ItemAnswer("denied", TESTER), LAX, retention)
    approvals = store.approvals.page(50).history

    assert len(approvals) == 3
    assert len(list(client.scan_iter("boyd:{a}:approval:*"))) == 3
    assert all(0 < client.ttl(f"boyd:{{a}}:approval:{item.id}") <= 60 for item in approvals)
    client.zadd("boyd:{a}:approvals:history", {approvals[0].id: 1})
    name = store.approvals.enqueue(proposal(99), retention)
    store.approvals.resolve(name, ItemAnswer("denied", TESTER), LAX, retention)
    assert approvals[0].id not in {item.id for item in store.approvals.page(50).history}
