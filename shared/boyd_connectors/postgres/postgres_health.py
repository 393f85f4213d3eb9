"""Trouble of a PostgreSQL server: sessions, connections, replicas, dead rows, transaction ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from boyd.models import JsonObject
from boyd_connectors.connector_parts import Sample
from boyd_connectors.postgres.postgres_server import PostgresError

if TYPE_CHECKING:
    from boyd_connectors.postgres.postgres_server import Connection


#: The most sessions that are read; those that wait come first, then the oldest transactions.
MAX_SESSIONS = 1000
#: The most characters of a query that are shown.
SHOWN = 200

_SESSIONS = f"""
SELECT pid, backend_start, query_start, backend_type, state,
  usename AS username, datname AS database, application_name AS application,
  left(query, 2000) AS query,
  CASE WHEN wait_event_type = 'Lock' THEN pg_blocking_pids(pid) ELSE '{{}}' END AS blocked_by,
  xact_start AS transaction_start,
  extract(epoch FROM clock_timestamp() - xact_start)::float AS transaction_seconds,
  extract(epoch FROM clock_timestamp() - state_change)::float AS state_seconds,
  CASE WHEN wait_event_type = 'Lock' THEN (
    SELECT extract(epoch FROM clock_timestamp() - min(waitstart))::float
    FROM pg_locks l WHERE l.pid = a.pid AND NOT granted) END AS waited
FROM pg_stat_activity a
WHERE pid <> pg_backend_pid()
  AND (xact_start IS NOT NULL OR state <> 'idle' OR pid = %(pid)s)
ORDER BY pid = %(pid)s DESC, (wait_event_type IS NOT DISTINCT FROM 'Lock') DESC, xact_start
LIMIT {MAX_SESSIONS}
"""  # noqa: S608 - a constant
_VISIBLE = "SELECT current_user AS role, pg_has_role('pg_read_all_stats', 'USAGE') AS sees"
#: Literals and comments of SQL, and what looks like one within names.
_TOKEN = re.compile(
    r"""(?P<keep>"(?:[^"]|"")*(?:"|$))|[eE]'(?:\\.|[^'\\]|'')*(?:'|$)|'(?:[^']|'')*(?:'|$)"""
    r"""|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|$)|--[^\n]*|/\*.*?(?:\*/|$)|\b\d[\w.]*""",
    re.DOTALL,
)


@dataclass(frozen=True)
class ServerSession:
    """A session that is in a transaction or runs a query.

    Attributes:
        blocked_by: the process ids of those it waits for; 0 is a prepared transaction.
        transaction_start: when its transaction began.
        transaction_seconds: since then.
        state_seconds: since it is in its state.
        waited: seconds that it has waited for a lock.
    """

    pid: int
    backend_start: datetime | None
    query_start: datetime | None
    backend_type: str
    state: str | None
    username: str | None
    database: str | None
    application: str | None
    query: str | None
    blocked_by: Sequence[int]
    transaction_start: datetime | None
    transaction_seconds: float | None
    state_seconds: float | None
    waited: float | None

    @property
    def is_client(self) -> bool:
        """True if it is the session of a client, which can be ended without harm to the server."""
        return self.backend_type == "client backend"

    def data(self) -> JsonObject:
        """The session as observations and tools show it; the query without its literals."""
        return {
            "pid": self.pid,
            "backendStart": _text(self.backend_start),
            "queryStart": _text(self.query_start),
            "user": self.username,
            "database": self.database,
            "application": self.application,
            "state": self.state or self.backend_type,
            "query": without_literals(self.query or ""),
            # Not its age, which would make every preview differ from the one before.
            "transactionStart": _text(self.transaction_start),
        }


def check_sight(connection: Connection) -> None:
    """Check that the role sees the sessions of others; raises `PostgresError`."""
    role = connection.execute(_VISIBLE).fetchone() or {}
    if not role.get("sees"):
        raise PostgresError(
            f"the role {role.get('role')} sees only its own sessions: "
            "GRANT pg_read_all_stats, or pg_monitor, TO it"
        )


def read_sessions(connection: Connection, pid: int = 0) -> list[ServerSession]:
    """The sessions that are not idle, and that of *pid*.

    Raises:
        PostgresError: the role does not see the sessions of others.
    """
    check_sight(connection)
    return [ServerSession(**row) for row in connection.execute(_SESSIONS, {"pid": pid})]


def blockers(sessions: Iterable[ServerSession], after: float) -> Mapping[int, int]:
    """The number of those that each pid keeps waiting for *after* seconds, itself not waiting."""
    waits: dict[int, Sequence[int]] = {}
    stuck: list[ServerSession] = []
    for session in sessions:
        waits[session.pid] = session.blocked_by
        if session.blocked_by and (session.waited or 0) >= after:
            stuck.append(session)
    return Counter(root for session in stuck for root in _roots(session.pid, waits))


def _roots(pid: int, waits: Mapping[int, Sequence[int]]) -> set[int]:
    roots: set[int] = set()
    visited, next_ones = {pid}, set(waits.get(pid, ()))
    while next_ones:
        roots |= {current for current in next_ones if not waits.get(current)}
        visited |= next_ones
        next_ones = {two for current in next_ones for two in waits.get(current, ())} - visited
    return roots


def without_literals(query: str) -> str:
    """The beginning of a query, whose literals may be secret, in one line without them."""

    def hide(match: re.Match[str]) -> str:
        return match["keep"] or (" " if match[0].startswith(("--", "/*")) else "?")

    text = " ".join(_TOKEN.sub(hide, query).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _text(moment: datetime | None) -> Any:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None


Row = dict[str, Any]

_CONNECTIONS = """
SELECT '' AS role, count(*) AS used,
  current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0) AS most
FROM pg_stat_activity WHERE backend_type = 'client backend'
UNION ALL
SELECT rolname, count(a.pid), rolconnlimit FROM pg_roles r
LEFT JOIN pg_stat_activity a ON a.usesysid = r.oid AND a.backend_type = 'client backend'
WHERE rolconnlimit > 0 AND NOT rolsuper GROUP BY rolname, rolconnlimit
"""
_REPLICAS = """
SELECT coalesce(nullif(application_name, ''), host(client_addr), 'pid ' || pid) AS replica, state,
  coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0)::float AS bytes,
  coalesce(extract(epoch FROM replay_lag), 0)::float AS seconds
FROM pg_stat_replication WHERE state <> 'backup' ORDER BY bytes DESC LIMIT 100
"""
_SLOTS = """
SELECT slot_name AS slot, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float AS bytes
FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL
ORDER BY bytes DESC LIMIT 100
"""
_STANDBY = """
SELECT coalesce((SELECT status FROM pg_stat_wal_receiver), 'disconnected') AS state,
  coalesce(pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), 0)::float AS bytes,
  CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
    ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
  END::float AS seconds
"""
#: Nothing that waits for a lock: the size of a table does, its pages do not.
_TABLES = """
SELECT schemaname || '.' || s.relname AS table, n_live_tup AS live, n_dead_tup AS dead,
  (n_dead_tup::float / greatest(n_live_tup + n_dead_tup, 1)) AS share,
  relpages AS pages, vacuum_count + autovacuum_count AS vacuums,
  greatest(last_vacuum, last_autovacuum)::text AS vacuumed
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = relid
WHERE n_dead_tup >= %s ORDER BY n_dead_tup DESC LIMIT 100
"""
_AGES = """
SELECT datname AS database, age(datfrozenxid)::float AS age
FROM pg_database WHERE datallowconn ORDER BY 2 DESC LIMIT 100
"""


def read_connections(connection: Connection) -> list[Row]:
    """The connections `used`, and how many there may be at `most`: of the server, and by role."""
    return list(connection.execute(_CONNECTIONS))


def is_standby(connection: Connection) -> bool:
    """True if the server is a replica."""
    row = connection.execute("SELECT pg_is_in_recovery() AS standby").fetchone()
    return bool(row and row["standby"])


def read_replicas(connection: Connection) -> list[Row]:
    """The replicas that are connected, with what they have not replayed yet."""
    return list(connection.execute(_REPLICAS))


def read_slots(connection: Connection) -> list[Row]:
    """The slots that nobody uses, with the log that is kept for them."""
    return list(connection.execute(_SLOTS))


def read_standby(connection: Connection) -> Row:
    """The state of this replica, and what it has not replayed yet."""
    row = connection.execute(_STANDBY).fetchone()
    assert row is not None
    return row


def read_tables(connection: Connection, dead: int = 0) -> list[Row]:
    """The tables of the database with at least so many *dead* rows, as statistics estimate them."""
    return list(connection.execute(_TABLES, (dead,)))


def read_ages(connection: Connection) -> list[Row]:
    """The age of the oldest transaction id of each database."""
    return list(connection.execute(_AGES))


def shares(rows: list[Row], limit: float) -> Mapping[str, Sample]:
    """The share of connections that are used, by role."""
    return {
        str(row["role"]): Sample(row["used"] / max(row["most"], 1), limit, 0.9 * limit)
        for row in rows
    }


def lags(rows: list[Row], seconds: float, size: float) -> Mapping[str, Sample]:
    """The lag of replicas as a share of what is permitted, in seconds or bytes.

    All that do not name themselves have the same name, of which the worst counts.
    """
    worst: dict[str, float] = {}
    for row in rows:
        lag = max(row["seconds"] / seconds, row["bytes"] / size)
        worst[row["replica"]] = max(lag, worst.get(row["replica"], 0.0))
    return {name: Sample(lag, 1.0, 0.5) for name, lag in worst.items()}
