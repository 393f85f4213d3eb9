"""Sessions of PostgreSQL: who keeps whom waiting, and what of a query is shown."""

from __future__ import annotations

import pytest

from boyd_connectors.postgres.postgres_health import ServerSession, blockers, lags, without_literals


def session(pid: int, *blocked_by: int, waited: float = 10.0) -> ServerSession:
    return ServerSession(
        pid=pid,
        backend_start=None,
        query_start=None,
        backend_type="client backend",
        state="active",
        username="shop",
        database="shop",
        application="",
        query="",
        blocked_by=blocked_by,
        transaction_start=None,
        transaction_seconds=waited,
        state_seconds=waited,
        waited=waited if blocked_by else None,
    )


def test_only_the_end_of_a_queue_is_a_blocker() -> None:
    queue = [session(1), session(2, 1), session(3, 2, 1), session(4, 3)]
    assert blockers(queue, 5) == {1: 3}


def test_of_replicas_with_the_same_name_the_worst_counts() -> None:
    rows = [{"replica": "walreceiver", "seconds": late, "bytes": 0.0} for late in (90.0, 0.0)]
    assert lags(rows, 30, 1000)["walreceiver"].value == 3


def test_a_short_wait_blames_nobody() -> None:
    assert blockers([session(1), session(2, 1, waited=4)], 5) == {}


def test_unseen_blockers_count_and_circular_waits_have_none() -> None:
    assert blockers([session(2, 0)], 5) == {0: 1}
    assert blockers([session(1, 2), session(2, 1)], 5) == {}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT * FROM t1 WHERE a = 'secret' AND b = 17.5",
            "SELECT * FROM t1 WHERE a = ? AND b = ?",
        ),
        ("ALTER ROLE x PASSWORD 'it''s' -- secret\n;", "ALTER ROLE x PASSWORD ? ;"),
        (r"SELECT E'it\'s secret', 'more'", "SELECT ?, ?"),
        ("SELECT $$secret$$, $a$secret $$ secret$a$ /* secret */", "SELECT ?, ?"),
        ("SELECT \"it's\", 'secret'", 'SELECT "it\'s", ?'),
        ("SELECT 'cut off sec", "SELECT ?"),
        ("SELECT " + "a," * 200, "SELECT " + "a," * 96 + "a…"),
    ],
)
def test_queries_are_shown_without_their_literals(query: str, expected: str) -> None:
    assert without_literals(query) == expected
