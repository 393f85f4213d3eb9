"""Slower troubles of a PostgreSQL server: connections, replicas, dead rows, transaction ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from boyd_connectors.hysteresis import Sample

if TYPE_CHECKING:
    from boyd_connectors.postgres.postgres_server import Connection

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
    """Tell whether the server is a replica."""
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
