"""The plugin `postgres`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from boyd.errors import PluginError
from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.models.base import Severity, Timestamp
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.results import uncertain
from boyd_connectors.connector_parts import names_in_alarm
from boyd_connectors.postgres import postgres_health as health
from boyd_connectors.postgres import postgres_server as server
from boyd_connectors.postgres.postgres_health import (
    ServerSession,
    blockers,
    check_sight,
    read_sessions,
)
from boyd_connectors.postgres.postgres_server import (
    ConnectionBroke,
    PostgresAccess,
    PostgresError,
    PostgresOptions,
)

if TYPE_CHECKING:
    from boyd_connectors.postgres.postgres_server import Connection

#: Seconds that a vacuum may take at most.
VACUUM_TIME = 1700.0

_SIGNAL = """
SELECT {function}(pid) AS sent FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s AND query_start = %s AND backend_type = 'client backend'
  AND (state = 'active' OR {idle})
"""
_ALIVE = "SELECT backend_start, query_start, state FROM pg_stat_activity WHERE pid = %s"
_TABLE = """
SELECT c.relkind, s.n_live_tup AS live, s.n_dead_tup AS dead, c.relpages AS pages,
  s.vacuum_count AS vacuums, greatest(last_vacuum, last_autovacuum)::text AS vacuumed
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid WHERE n.nspname = %s AND c.relname = %s
"""

_MAY_SIGNAL = """
SELECT own.rolname AS role, own.rolsuper OR (NOT r.rolsuper
  AND (pg_has_role(r.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE'))) AS may
FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid, pg_roles own
WHERE pid = %s AND own.rolname = current_user
"""
_MAY_VACUUM = """
SELECT current_user AS role, pg_has_role(c.relowner, 'USAGE') OR pg_has_role(datdba, 'USAGE')
  OR {maintain} AS may
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_database
WHERE nspname = %s AND relname = %s AND datname = current_database()
"""
#: The version of the server that knows the privilege MAINTAIN.
_MAINTAIN = 170_000

Table = Annotated[str, Field(pattern=r"^[^.\x00]{1,63}\.[^.\x00]{1,63}$")]


class SessionParams(Model):
    """A session, and the query that it runs or has run last.

    Another session with the same process id, or another query of the session, is left alone.
    """

    pid: int = Field(gt=0)
    backend_start: Timestamp = Field(description="when the session began")
    query_start: Timestamp = Field(description="when its query began")


class VacuumParams(Model):
    """A table as `schema.table`, and whether its statistics are renewed too."""

    table: Table
    analyze: bool = False


class TablesParams(Model):
    """The least number of dead rows of a table."""

    dead: int = Field(default=0, ge=0)


class VacuumAccess(PostgresAccess):
    """A role that may vacuum the tables.

    Attributes:
        max_seconds: how long a vacuum may take.
    """

    max_seconds: float = Field(default=600.0, gt=0, le=VACUUM_TIME)


class PostgresActions(BaseModel):
    """The actions that are enabled.

    Attributes:
        vacuum: the role to vacuum with.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cancel_query: PostgresAccess | None = None
    terminate_backend: PostgresAccess | None = None
    vacuum: VacuumAccess | None = None


class PostgresThresholds(PostgresOptions):
    """The thresholds beyond which something is reported; times in seconds.

    Attributes:
        blocked_after: how long a session may wait for a lock.
        transaction_after: how long a transaction may last.
        idle_after: how long a session may be idle in a transaction.
        connections: the share of connections that may be in use.
        replicas: how many replicas must be connected.
        lag_seconds: how far a replica may be behind in time.
        lag_bytes: how far a replica may be behind in the log.
        slot_bytes: how much log may be kept for a slot that nobody uses.
        dead_rows: how many dead rows a table must have to be reported.
        dead_share: the share of its rows that must be dead, too.
        transaction_ids: how old transaction ids may be; the server stops at 2.1 billion.
    """

    blocked_after: float = Field(default=30.0, ge=0)
    transaction_after: float = Field(default=600.0, ge=0)
    idle_after: float = Field(default=300.0, ge=0)
    connections: float = Field(default=0.85, gt=0, le=1)
    replicas: int = Field(default=0, ge=0)
    lag_seconds: float = Field(default=30.0, gt=0)
    lag_bytes: float = Field(default=67_108_864, gt=0)
    slot_bytes: float = Field(default=1_073_741_824, gt=0)
    dead_rows: int = Field(default=10_000, ge=1)
    dead_share: float = Field(default=0.2, gt=0, le=1)
    transaction_ids: float = Field(default=1_000_000_000, gt=0)


class Postgres(Connector):
    """Watches a PostgreSQL server, and ends queries and sessions that harm others."""

    id = "postgres"

    class Options(PostgresThresholds):
        """The plugin's options; times in seconds.

        Attributes:
            interval: between two checks of sessions and replicas.
            upkeep_interval: between two checks of dead rows and transaction ids.
        """

        interval: float = Field(default=30.0, gt=0)
        upkeep_interval: float = Field(default=300.0, gt=0)
        queue: str | None = None
        samples: int = Field(default=2, ge=1, le=100)
        max_items: int = Field(default=20, ge=1, le=200)
        actions: PostgresActions = PostgresActions()

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not server.is_installed():
            raise PluginError(self.id, "it needs psycopg: run `pip install 'boyd[postgresql]'`")
        self.components = (
            self._observer("sessions", "Look for sessions that harm others.", self.sessions),
            self._observer("replication", "Look at replicas.", self.replication),
            self._observer(
                "upkeep",
                "Look for dead rows and old transaction ids.",
                self.upkeep,
                self.options.upkeep_interval,
            ),
        )

    def sessions(self, ctx: Context) -> list[Observation]:
        """Observe who blocks others, long transactions, and the share of connections in use."""
        return self._look("sessions", lambda connection: self._sessions(connection, ctx))

    def replication(self, ctx: Context) -> list[Observation]:
        """Observe replicas that lag, are missing, or no longer fetch what is kept for them."""
        return self._look("replication", lambda connection: self._replication(connection, ctx))

    def upkeep(self) -> list[Observation]:
        """Observe tables with many dead rows, and databases whose transaction ids are old."""
        return self._look("upkeep", self._upkeep)

    @action(
        risk="medium",
        reversibility="irreversible",
        autonomy="approval-required",
        target="pid",
        timeout=30,
    )
    def cancel_query(self, params: SessionParams) -> JsonObject | ActionResult:
        """Cancel the query that a session runs; its transaction is rolled back."""
        return self._signal("cancel_query", "pg_cancel_backend", params)

    @cancel_query.dry_run
    def _would_cancel(self, params: SessionParams) -> JsonObject:
        return {"would cancel the query of": self._session("cancel_query", params)}

    @cancel_query.verify(within=30, every=2)
    def _is_cancelled(self, params: SessionParams) -> EffectVerdict:
        row = self._alive(params)
        runs = row is not None and row["query_start"] == params.query_start
        return _verdict(not (runs and row and row["state"] == "active"), "the query runs")

    @action(
        risk="high",
        reversibility="irreversible",
        autonomy="approval-required",
        target="pid",
        timeout=30,
    )
    def terminate_backend(self, params: SessionParams) -> JsonObject | ActionResult:
        """End a session; its transaction is rolled back, and its client has to connect anew."""
        return self._signal("terminate_backend", "pg_terminate_backend", params)

    @terminate_backend.dry_run
    def _would_terminate(self, params: SessionParams) -> JsonObject:
        return {"would end the session": self._session("terminate_backend", params)}

    @terminate_backend.verify(within=30, every=2)
    def _is_terminated(self, params: SessionParams) -> EffectVerdict:
        return _verdict(self._alive(params) is None, "the session exists")

    @action(
        risk="low",
        reversibility="irreversible",
        target="table",
        timeout=VACUUM_TIME + 60,
        idempotent=True,
    )
    def vacuum(self, params: VacuumParams) -> JsonObject | ActionResult:
        """Vacuum a table, not FULL: others may read and write it meanwhile."""
        from psycopg import sql

        options = self.options
        access = self.access_of("vacuum", options.access)
        seconds = options.actions.vacuum.max_seconds if options.actions.vacuum else VACUUM_TIME
        before = self._table(params.table)
        warnings: list[str] = []
        name = sql.Identifier(*params.table.split("."))
        analyze = sql.SQL("(ANALYZE)" if params.analyze else "")
        try:
            with server.session(options, access, writes=True, seconds=seconds) as connection:
                connection.add_notice_handler(
                    lambda notice: warnings.append(str(notice.message_primary))
                )
                connection.execute(sql.SQL("VACUUM {} {}").format(analyze, name))
        except ConnectionBroke as error:
            return uncertain(error)
        if warnings:
            # Without the right to do it, the server warns and skips the table.
            raise PostgresError(f"{options.where}: {'; '.join(warnings)[:500]}")
        return {"before": before, "after": self._table(params.table)}

    @vacuum.dry_run
    def _would_vacuum(self, params: VacuumParams) -> JsonObject:
        table, names = self._table(params.table), params.table.split(".")
        access = self.access_of("vacuum", self.options.access)
        with server.session(self.options, access) as connection:
            knows = connection.info.server_version >= _MAINTAIN
            maintain = "has_table_privilege(c.oid, 'MAINTAIN')" if knows else "false"
            row = connection.execute(_MAY_VACUUM.format(maintain=maintain), names).fetchone()
        self._check_right(row, f"vacuum {params.table}")
        return {"would vacuum": params.table, "now": table}

    @vacuum.verify(within=30, every=5)
    def _is_vacuumed(self, params: VacuumParams, result: ActionResult) -> EffectVerdict:
        before: Any = result.output["before"] if isinstance(result.output, dict) else {}
        now: Any = self._table(params.table)
        if not before:
            return EffectVerdict(verdict="cannot tell", evidence=f"{now['dead']} dead rows now")
        evidence = f"{before['dead']} dead rows before, {now['dead']} now"
        fewer = now["dead"] < before["dead"] or now["dead"] == 0
        held = "" if fewer else "; an old transaction, slot or replica may still need them"
        return EffectVerdict(
            verdict="effective" if fewer else "no effect", evidence=evidence + held, final=fewer
        )

    @tool()
    def list_sessions(self) -> list[JsonObject]:
        """List the sessions that are not idle, and whom they wait for; queries without literals."""
        with server.session(self.options, self.options.access) as connection:
            sessions = read_sessions(connection)
        most = self.options.max_items
        return [
            {**session.data(), "waitsFor": list(session.blocked_by)} for session in sessions[:most]
        ]

    @tool()
    def list_tables(self, params: TablesParams) -> list[JsonObject]:
        """List the tables with the most dead rows, their sizes, and when they were vacuumed."""
        with server.session(self.options, self.options.access) as connection:
            return health.read_tables(connection, params.dead)[: self.options.max_items]

    def _observer(
        self, name: str, about: str, observe: Callable[..., Any], interval: float | None = None
    ) -> Observer:
        return Observer(
            name=name,
            description=about,
            interval=interval or self.options.interval,
            observe=observe,
        )

    def _look(
        self, check: str, read: Callable[[Connection], Iterable[Observation]]
    ) -> list[Observation]:
        """The observations of a check; a server that cannot be asked is one.

        What it said before it refused something is kept.
        """
        observations: list[Observation] = []
        try:
            with server.session(self.options, self.options.access) as connection:
                observations.extend(read(connection))
        except PostgresError as error:
            data: JsonObject = {"server": self.options.where, "check": check, "error": str(error)}
            observations.append(
                self._observation("server", "error" if observations else "critical", data)
            )
        return observations

    def _sessions(self, connection: Connection, ctx: Context) -> Iterator[Observation]:
        options = self.options
        sessions = read_sessions(connection)
        yield from self._harmful(sessions)
        used = health.read_connections(connection)
        shares = health.shares(used, options.connections)
        full = names_in_alarm(ctx, "connections", shares, options.samples)
        yield from self._observations(
            "connections", "error", [r for r in used if r["role"] in full]
        )
        in_use = next(row["used"] for row in used if row["role"] == "")
        yield self._summary("sessions", busy=len(sessions), connections=in_use)

    def _harmful(self, sessions: list[ServerSession]) -> Iterator[Observation]:
        """The sessions in the way of others, each once for the worst that it does."""
        options = self.options
        by_pid = {session.pid: session for session in sessions}
        blocking = blockers(sessions, options.blocked_after)
        first = sorted(blocking, key=lambda pid: (-blocking[pid], pid))
        unseen: JsonObject = {
            "pid": 0,
            "state": "a prepared transaction, or a session that is not shown",
        }
        rows: list[JsonObject] = [
            {**(by_pid[pid].data() if pid in by_pid else unseen), "waiting": blocking[pid]}
            for pid in first
        ]
        yield from self._observations("blocker", "error", rows)
        others = [
            session for session in sessions if session.is_client and session.pid not in blocking
        ]
        idle = [
            session for session in others if (session.state or "").startswith("idle in transaction")
        ]
        long = [session for session in others if session not in idle]
        idle = [session for session in idle if (session.state_seconds or 0) >= options.idle_after]
        long = [
            session
            for session in long
            if (session.transaction_seconds or 0) >= options.transaction_after
        ]
        yield from self._observations(
            "idle-in-transaction", "warning", [session.data() for session in idle]
        )
        yield from self._observations(
            "long-transaction", "warning", [session.data() for session in long]
        )

    def _replication(self, connection: Connection, ctx: Context) -> Iterator[Observation]:
        options = self.options
        check_sight(connection)
        rows: list[health.Row]
        down: list[health.Row] = []
        standby = health.is_standby(connection)
        if standby:
            rows = [{"replica": options.where, **health.read_standby(connection)}]
            down = [row for row in rows if row["state"] != "streaming"]
        else:
            rows = health.read_replicas(connection)
            if len(rows) < options.replicas:
                down = [{"connected": len(rows), "expected": options.replicas}]
        lags = health.lags(rows, options.lag_seconds, options.lag_bytes)
        late = names_in_alarm(ctx, "replication", lags, options.samples)
        yield from self._observations("replica-missing", "error", down)
        yield from self._observations(
            "replica-lag", "error", [r for r in rows if r["replica"] in late]
        )
        slots = [] if standby else health.read_slots(connection)
        unused = [row for row in slots if row["bytes"] >= options.slot_bytes]
        yield from self._observations("unused-slot", "warning", unused)
        yield self._summary("replication", replicas=len(rows))

    def _upkeep(self, connection: Connection) -> Iterator[Observation]:
        options = self.options
        ages = health.read_ages(connection)
        old = [row for row in ages if row["age"] >= options.transaction_ids]
        yield from self._observations("wraparound", "critical", old)
        tables = health.read_tables(connection, options.dead_rows)
        dead = [row for row in tables if row["share"] >= options.dead_share]
        yield from self._observations("dead-rows", "warning", dead)
        yield self._summary("upkeep", tables=len(tables), databases=len(ages))

    def _observations(
        self, kind: str, severity: Severity, rows: Sequence[JsonObject]
    ) -> Iterator[Observation]:
        """An observation of each row, and of the number of those beyond `max_items`."""
        most = self.options.max_items
        for row in rows[:most]:
            yield self._observation(kind, severity, {"server": self.options.where, **row})
        if len(rows) > most:
            yield self._observation(kind, severity, {"more": len(rows) - most})

    def _summary(self, check: str, **numbers: int) -> Observation:
        data: JsonObject = {"server": self.options.where, "check": check, **numbers}
        return self._observation("summary", "info", data)

    def _observation(self, kind: str, severity: Severity, data: JsonObject) -> Observation:
        return Observation(source=f"{self.id}/{kind}", type="state", severity=severity, data=data)

    def _signal(
        self, action: str, function: str, params: SessionParams
    ) -> JsonObject | ActionResult:
        """Check and signal in one statement, so that nothing happens in between."""
        idle = "true" if action == "terminate_backend" else "false"
        query = _SIGNAL.format(function=function, idle=idle)
        access = self.access_of(action, self.options.access)
        try:
            with server.session(self.options, access, writes=True) as connection:
                check_sight(connection)
                values = (params.pid, params.backend_start, params.query_start)
                row = connection.execute(query, values).fetchone()
        except ConnectionBroke as error:
            return uncertain(error)
        if row is None:
            raise self._no_session_error(params)
        if not row["sent"]:
            raise PostgresError(f"{self.options.where} could not signal process {params.pid}")
        return {"signalled": params.pid}

    def _session(self, action: str, params: SessionParams) -> JsonObject:
        """The session as it is, and how many wait for it."""
        running = action == "cancel_query"
        access = self.access_of(action, self.options.access)
        with server.session(self.options, access) as connection:
            sessions = read_sessions(connection, params.pid)
            may = connection.execute(_MAY_SIGNAL, (params.pid,)).fetchone()
        waiting = blockers(sessions, 0.0).get(params.pid, 0)
        for session in sessions:
            identity = (session.pid, session.backend_start, session.query_start)
            if identity == (params.pid, params.backend_start, params.query_start) and (
                session.is_client and (session.state == "active" or not running)
            ):
                self._check_right(may, f"signal session {params.pid}")
                return {**session.data(), "waiting": waiting}
        raise self._no_session_error(params)

    def _check_right(self, row: Mapping[str, Any] | None, operation: str) -> None:
        """Refuse in a dry run what the server would refuse to the role of the action."""
        if row is not None and not row["may"]:
            raise PostgresError(f"{self.options.where}: the role {row['role']} may not {operation}")

    def _no_session_error(self, params: SessionParams) -> PostgresError:
        return PostgresError(
            f"{self.options.where}: session {params.pid} has ended, or does something else by now: "
            "nothing was done"
        )

    def _alive(self, params: SessionParams) -> Mapping[str, Any] | None:
        """The session, if it exists."""
        with server.session(self.options, self.options.access) as connection:
            check_sight(connection)
            row = connection.execute(_ALIVE, (params.pid,)).fetchone()
        return row if row and row["backend_start"] == params.backend_start else None

    def _table(self, table: str) -> JsonObject:
        """The table in numbers."""
        with server.session(self.options, self.options.access) as connection:
            row = connection.execute(_TABLE, table.split(".")).fetchone()
        if row is None or row.pop("relkind") not in ("r", "m"):
            raise PostgresError(f"{self.options.where} has no table {table}")
        return row


def _verdict(done: bool, otherwise: str) -> EffectVerdict:
    evidence = "the server no longer shows it" if done else otherwise
    return EffectVerdict(
        verdict="effective" if done else "no effect", evidence=evidence, final=done
    )
