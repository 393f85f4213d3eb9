"""Sessions of a PostgreSQL server: who waits for whom, and since when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from boyd.models import JsonObject
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
    for one in sessions:
        waits[one.pid] = one.blocked_by
        if one.blocked_by and (one.waited or 0) >= after:
            stuck.append(one)
    return Counter(root for one in stuck for root in _roots(one.pid, waits))


def _roots(pid: int, waits: Mapping[int, Sequence[int]]) -> set[int]:
    found: set[int] = set()
    seen, next_ones = {pid}, set(waits.get(pid, ()))
    while next_ones:
        found |= {one for one in next_ones if not waits.get(one)}
        seen |= next_ones
        next_ones = {two for one in next_ones for two in waits.get(one, ())} - seen
    return found


def without_literals(query: str) -> str:
    """The beginning of a query, whose literals may be secret, in one line without them."""

    def hide(found: re.Match[str]) -> str:
        return found["keep"] or (" " if found[0].startswith(("--", "/*")) else "?")

    text = " ".join(_TOKEN.sub(hide, query).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _text(moment: datetime | None) -> Any:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None
