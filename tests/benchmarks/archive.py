"""Lag of the archive, and the cost of a filter over a million iterations."""

from __future__ import annotations

import statistics
import time
from typing import Any

from sqlalchemy import Connection, text

from archive_kit import Archive
from boyd.export.archive.entries import SLOT, STEPS
from boyd.models import from_ms
from boyd.models.loop import HistoryFilter
from boyd.store import AgentStore
from boyd.store.keys import Keys
from harness import Deployment

#: Iterations that are copied, and those that the archive then has.
COPIED, MANY = 5000, 1_000_000
#: How often each filter is asked for.
RUNS = 40
#: The agent whose iterations are copied, with ten observers.
AGENT = "trivial10"
#: Milliseconds between two iterations, and the first one.
EVERY, FIRST = 2000, 1_700_000_000_000
#: The values of each field: how often, and in which iterations, as a condition on the number.
_VALUES: dict[str, dict[str, str]] = {
    "host": {"host-a": "true", "host-b": "n % 3 > 0", "host-c": "n < 500000", "rare": "n = 7"},
    "worker": {"w1": "n % 2 = 0", "w2": "n % 2 = 1"},
    "action": {"no-op": "n % 10 > 0", "p:fix": "n % 10 = 0", "p:old": "n < 400000"},
    "source": {f"p:o{number}": "true" for number in range(6)},
    "trigger": {"beat": "n % 100 > 0", "ann": "n % 100 = 0"},
    "status": {"ok": "n % 50 > 0", "failed": "n % 50 = 0"},
    "word": {
        **dict.fromkeys(("all", "endpoints", "are"), "true"),
        "healthy": "n % 10 > 0",
        "broken": "n % 10 = 0",
        "timeout": "n % 1000 = 0",
        **{f"shard{number}": f"n % 10 = {number}" for number in range(10)},
    },
}
#: What people look for; the last ones share no iteration, or none in the period.
QUERIES: list[dict[str, Any]] = [
    {},
    {"host": "host-b"},
    {"host": "rare"},
    {"host": "nowhere"},
    {"worker": "w2"},
    {"action": "p:fix"},
    {"source": "p:o3"},
    {"trigger": "ann"},
    {"status": "ok"},
    {"status": "failed"},
    {"q": "healthy"},
    {"q": "timeout"},
    {"q": "shard"},
    {"q": "endpoints broken"},
    {"q": "nonsense"},
    {"host": "host-b", "action": "p:fix", "status": "failed"},
    {"host": "host-a", "source": "p:o1", "worker": "w1", "q": "all end"},
    {"host": "host-c", "since": 900_000},
    {"action": "p:old", "q": "broken", "until": 200_000},
    {"host": "host-c", "action": "p:fix"},
    {"status": "ok", "since": 100_000, "until": 100_500},
    {"action": "p:fix", "q": "shard1"},
    {"worker": "w1", "q": "shard3"},
]


def rate(deployment: Deployment, url: str) -> float:
    """Iterations per second that the copier writes; each is a copy of a real one in Redis."""
    store = deployment.agent(AGENT)
    iteration = deployment.launcher(AGENT).trigger("bench").iteration
    deployment.ended(AGENT, iteration)
    _copy_many(store, deployment.store.client, iteration)
    archive = Archive(url, deployment.store)
    began = time.perf_counter()
    archive.copier.copy(AGENT)
    seconds = time.perf_counter() - began
    assert archive.count("iteration") >= COPIED
    archive.close()
    return COPIED / seconds


def _copy_many(store: AgentStore, client: Any, iteration: int) -> None:
    keys = Keys(store.agent_id)
    fields = client.hgetall(keys.past_iteration(iteration))
    at = int(float(fields["endedAt"]))
    pipe = client.pipeline(transaction=False)
    for number in range(iteration + 1, iteration + COPIED):
        changed = {"iteration": number, "endedAt": at + number}
        pipe.hset(keys.past_iteration(number), mapping={**fields, **changed})
        pipe.zadd(keys.history, {str(number): at + number})
        if number % 500 == 0:
            pipe.execute()
    pipe.execute()


def fill(archive: Archive) -> None:
    """Give the archive `MANY` iterations of the agent `test`, without their bodies."""
    numbers = (
        f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {MANY})"
        if archive.database.is_sqlite
        else f"WITH s AS (SELECT n FROM generate_series(1, {MANY}) n)"
    )
    at = f"({FIRST} + CAST(n AS BIGINT) * {EVERY})"
    key = f"({at} * {STEPS * SLOT})"
    outline = """'{"id":"test:' || n || '.a","iteration":' || n || ','
        || '"trigger":"beat","success":true,'
        || '"situation":"All 3 endpoints are healthy","decision":"no-op","observations":10,'
        || '"actionResults":1,"runs":[],"startedAt":"2026-01-01T00:00:00Z",'
        || '"endedAt":"2026-01-01T00:00:01Z","duration":1000.0}'"""
    with archive.database.begin() as connection:
        connection.execute(
            text(
                _escape(
                    "INSERT INTO records (key, agent, kind, name, at, stamp, open, outline)"
                    f" {numbers} SELECT {key}, 'test', 'iteration', n || '.a', {at}, '1', false,"
                    f" {outline} FROM s"
                )
            )
        )
    for field, values in _VALUES.items():
        for value, condition in values.items():
            with archive.database.begin() as connection:
                _post(connection, f"test\x1fiteration\x1f{field}\x1f{value}", condition)
    if not archive.database.is_sqlite:
        with archive.database.begin() as connection:
            connection.execute(text("ANALYZE"))


def _post(connection: Connection, term: str, condition: str) -> None:
    """Give a term to the iterations with numbers that fit."""
    connection.execute(text("INSERT INTO terms (term) VALUES (:term)"), {"term": term})
    number = f"((at - {FIRST}) / {EVERY})"
    condition = condition.replace("n ", f"{number} ")
    connection.execute(
        text(
            "INSERT INTO postings (term, key)"
            f" SELECT (SELECT id FROM terms WHERE term = :term), key FROM records WHERE {condition}"
        ),
        {"term": term},
    )


def _escape(statement: str) -> str:
    """Colons in literals are no parameters."""
    return statement.replace(":", "\\:").replace("\\:\\:", "::")


def latencies(archive: Archive) -> dict[str, list[float]]:
    """Milliseconds of each query of `QUERIES`, first pages and later ones."""
    past = archive.past
    times: dict[str, list[float]] = {}
    for query in QUERIES:
        name = " ".join(f"{key}={value}" for key, value in query.items()) or "no filter"
        filters = HistoryFilter(**{key: _value(key, value) for key, value in query.items()})
        for run in range(RUNS):
            # From everywhere in history.
            at = FIRST + EVERY * (MANY - run * MANY // RUNS) + 1
            began = time.perf_counter()
            past.page(50, f"0-{at}", filters)
            times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    return times


def _value(key: str, value: Any) -> Any:
    return from_ms(FIRST + value * EVERY) if key in ("since", "until") else value


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]
