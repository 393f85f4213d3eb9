"""The connector `postgres` with a real PostgreSQL."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from archive_kit import PostgreSQL, postgresql, postgresql_programs
from boyd_connectors.postgres import postgres_health, postgres_server
from boyd_connectors.postgres.plugin import Postgres
from boyd_connectors.postgres.postgres_server import PostgresError
from connection_kit import ConnectedAgent
from harness import Deployment, wait_until
from plugin_kit import Rig, data_of
from signals import signal_process

pytestmark = [pytest.mark.real, pytest.mark.long]

ROLES = """
CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher;
CREATE ROLE ender LOGIN; GRANT pg_signal_backend, pg_read_all_stats TO ender;
CREATE ROLE owner LOGIN; CREATE ROLE shop LOGIN; CREATE ROLE blind LOGIN;
CREATE ROLE few LOGIN CONNECTION LIMIT 2;
CREATE TABLE orders (id int); ALTER TABLE orders OWNER TO owner; GRANT ALL ON orders TO shop;
CREATE TABLE others (id int);
"""


@pytest.fixture(scope="module")
def database() -> Iterator[PostgreSQL]:
    """A PostgreSQL with a table and roles; missing: skipped here, failed in CI."""
    programs = postgresql_programs()
    if programs is None:
        reason = "PostgreSQL is not installed: there is no initdb"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with postgresql(programs) as server:
        with connect(server, "boyd") as session:
            session.execute(ROLES)
        yield server


def connect(database: PostgreSQL, user: str) -> psycopg.Connection[Any]:
    """A session of a role."""
    return psycopg.connect(
        host="127.0.0.1", port=database.port, dbname="postgres", user=user, autocommit=True
    )


def options(database: PostgreSQL, **more: Any) -> dict[str, Any]:
    """Options of the plugin with every action, each with a role of its own."""
    actions = {
        "cancel_query": {"username": "ender"},
        "terminate_backend": {"username": "ender"},
        "vacuum": {"username": "owner"},
    }
    connection = {"port": database.port, "host": "127.0.0.1", "access": {"username": "watcher"}}
    quick = {"blocked_after": 0, "idle_after": 3600, "samples": 1}
    return {**connection, **quick, "actions": actions, **more}


def rig(database: PostgreSQL, **more: Any) -> Rig:
    return Rig(Postgres(**options(database, **more)))


def session_params(row: dict[str, Any]) -> dict[str, Any]:
    """The parameters that name a session."""
    return {key: row[key] for key in ("pid", "backendStart", "queryStart")}


@contextmanager
def lock_table(database: PostgreSQL) -> Iterator[psycopg.Connection[Any]]:
    """A session that holds a lock, and another one that waits for it."""

    def wait() -> None:
        with suppress(psycopg.Error), connect(database, "shop") as waiting:
            waiting.execute("SELECT count(*) FROM orders WHERE id = 4711")

    with connect(database, "shop") as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        thread = threading.Thread(target=wait)
        thread.start()
        try:
            watching = rig(database)
            wait_until(lambda: data_of(watching.observe(), "blocker"))
            yield holder
        finally:
            holder.close()
            thread.join()


def test_a_blocking_session_is_found_and_can_be_ended(database: PostgreSQL) -> None:
    postgres = rig(database)
    with lock_table(database) as holder:
        [blocker] = data_of(postgres.observe(), "blocker")
        assert blocker["pid"] == holder.info.backend_pid
        assert blocker["state"] == "idle in transaction"
        assert blocker["waiting"] == 1
        waiting = next(
            session
            for session in postgres.host.tools["postgres:list_sessions"].call("run", params=None)
            if session["waitsFor"]
        )
        assert waiting["query"] == "SELECT count(*) FROM orders WHERE id = ?"
        params = session_params(blocker)
        with pytest.raises(PostgresError, match="nothing was done"):
            postgres.act("cancel_query", params)  # it runs none
        result = postgres.act("terminate_backend", params, "dry_run")
        assert result["would end the session"]["waiting"] == 1
        # Approvers are told of every difference, so there must be none without a reason.
        assert postgres.act("terminate_backend", params, "dry_run") == result
        assert data_of(postgres.observe(), "blocker") == [blocker]

        assert postgres.act("terminate_backend", params) == {"signalled": blocker["pid"]}
        is_free = wait_until(lambda: not data_of(postgres.observe(), "blocker"))
    assert is_free
    assert postgres.act("terminate_backend", params, "verify").verdict == "effective"


@pytest.mark.parametrize(
    ("refused", "kind"),
    [("read_connections", "blocker"), ("read_slots", "replica-missing"), ("read_tables", None)],
)
def test_a_refused_part_of_a_check_hides_none_before_it(
    database: PostgreSQL, monkeypatch: pytest.MonkeyPatch, refused: str, kind: str | None
) -> None:
    def refuses(connection: psycopg.Connection[Any], *_: Any) -> Any:
        return connection.execute("SELECT 1/0")

    with lock_table(database):
        monkeypatch.setattr(postgres_health, refused, refuses)
        observations = rig(database, replicas=1).observe()

    [error] = data_of(observations, "server")
    assert "division by zero" in error["error"]
    assert kind is None or data_of(observations, kind)
    assert (
        len(
            [
                observation
                for observation in observations
                if observation.data.get("check") not in (None, error["check"])
            ]
        )
        == 2
    )


def test_another_session_with_the_same_process_id_is_left_alone(database: PostgreSQL) -> None:
    postgres = rig(database, transaction_after=0)
    with connect(database, "shop") as busy:
        busy.execute("BEGIN")
        [session] = data_of(postgres.observe(), "idle-in-transaction") or data_of(
            rig(database, idle_after=0).observe(), "idle-in-transaction"
        )
        earlier = {**session_params(session), "backendStart": "2020-01-01T00:00:00Z"}
        for function in ("dry_run", "execute"):
            with pytest.raises(PostgresError, match="nothing was done"):
                postgres.act("terminate_backend", earlier, function)
        busy.execute("SELECT 1")
        with pytest.raises(PostgresError, match="does something else by now"):
            postgres.act("terminate_backend", session_params(session))
        assert busy.execute("SELECT 2").fetchone() == (2,)


def test_a_query_is_cancelled_and_its_session_lives_on(database: PostgreSQL) -> None:
    postgres = rig(database, transaction_after=0)
    with connect(database, "shop") as busy:
        failed: list[str] = []

        def sleep() -> None:
            try:
                busy.execute("SELECT pg_sleep(600)")
            except psycopg.Error as error:
                failed.append(type(error).__name__)

        thread = threading.Thread(target=sleep)
        thread.start()
        [transaction] = wait_until(lambda: data_of(postgres.observe(), "long-transaction"))
        assert (
            postgres.act("cancel_query", session_params(transaction), "verify").verdict
            == "no effect"
        )
        postgres.act("cancel_query", session_params(transaction))
        thread.join()
        assert failed == ["QueryCanceled"]
        assert busy.execute("SELECT 1").fetchone() == (1,)
    assert (
        postgres.act("cancel_query", session_params(transaction), "verify").verdict == "effective"
    )


def test_a_table_with_dead_rows_is_found_and_vacuumed(database: PostgreSQL) -> None:
    postgres = rig(database, dead_rows=100)
    with connect(database, "owner") as session:
        session.execute("INSERT INTO orders SELECT generate_series(1, 1000)")
        session.execute("DELETE FROM orders")
        session.execute("SELECT pg_stat_force_next_flush()")
    [table] = wait_until(lambda: data_of(postgres.observe(), "dead-rows"))
    assert (table["table"], table["dead"]) == ("public.orders", 1000)
    assert postgres.act("vacuum", {"table": "public.orders"}, "dry_run")["now"]["dead"] == 1000

    output = postgres.act("vacuum", {"table": "public.orders"})
    verdict = postgres.verify("vacuum", {"table": "public.orders"}, output)
    assert (verdict.verdict, verdict.evidence) == ("effective", "1000 dead rows before, 0 now")
    assert not data_of(postgres.observe(), "dead-rows")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("public.others", "others"),
        ("public.missing", "has no table public.missing"),
        ('public.x"; DROP TABLE orders', "has no table"),
    ],
)
def test_a_vacuum_that_did_nothing_has_failed(
    database: PostgreSQL, table: str, message: str
) -> None:
    for function in ("dry_run", "execute"):
        with pytest.raises(PostgresError, match=message):
            rig(database).act("vacuum", {"table": table}, function)


def test_a_table_of_the_catalog_is_vacuumed(database: PostgreSQL) -> None:
    postgres = rig(database, actions={"vacuum": {"username": "boyd"}})
    table = {"table": "pg_catalog.pg_class"}
    assert "dead" in postgres.act("vacuum", table, "dry_run")["now"]
    output = postgres.act("vacuum", table)
    assert output["before"]["dead"] is not None


def test_a_session_of_a_superuser_is_refused_in_the_dry_run_too(database: PostgreSQL) -> None:
    postgres = rig(database, idle_after=0)
    with connect(database, "boyd") as busy:
        busy.execute("BEGIN")
        [session] = data_of(postgres.observe(), "idle-in-transaction")
        for function in ("dry_run", "execute"):
            with pytest.raises(PostgresError, match=r"may not signal|superuser"):
                postgres.act("terminate_backend", session_params(session), function)


def test_full_connections_count_by_role_after_several_samples(database: PostgreSQL) -> None:
    postgres = rig(database, samples=2)
    with connect(database, "few"), connect(database, "few"):
        assert not data_of(postgres.observe(), "connections")
        [connections] = data_of(postgres.observe(), "connections")
    assert (connections["role"], connections["used"], connections["most"]) == ("few", 2, 2)
    assert wait_until(lambda: not data_of(postgres.observe(), "connections"))


def test_old_transaction_ids_are_seen(database: PostgreSQL) -> None:
    data = data_of(rig(database, transaction_ids=1).observe(), "wraparound")
    assert {row["database"] for row in data} >= {"postgres", "template1"}


def test_a_role_without_privileges_is_reported(database: PostgreSQL) -> None:
    blind = rig(database, access={"username": "blind"})
    data = data_of(blind.observe(), "server")
    assert {row["check"] for row in data} == {"sessions", "replication"}
    assert {"the role blind sees only its own sessions" in row["error"] for row in data} == {True}


@pytest.fixture
def replica(database: PostgreSQL) -> Iterator[PostgreSQL]:
    """A replica of the database."""
    programs = postgresql_programs()
    assert programs is not None
    with postgresql(programs, database) as standby:
        yield standby


def test_a_replica_that_lags_or_is_gone_is_seen_on_both_sides(
    database: PostgreSQL, replica: PostgreSQL
) -> None:
    primary = rig(database, lag_bytes=1000, slot_bytes=1000, replicas=1)
    standby = rig(replica, lag_bytes=1000)
    wait_until(lambda: not data_of(primary.observe(), "replica-missing"))
    assert not data_of(standby.observe(), "replica-missing")
    with connect(replica, "boyd") as there, connect(database, "owner") as here:
        there.execute("SELECT pg_wal_replay_pause()")
        here.execute("INSERT INTO orders SELECT generate_series(1, 1000)")
        [late] = wait_until(lambda: data_of(primary.observe(), "replica-lag"))
        assert late["replica"] == "walreceiver"
        assert wait_until(lambda: data_of(standby.observe(), "replica-lag"))
        there.execute("SELECT pg_wal_replay_resume()")
    wait_until(lambda: not data_of(primary.observe(), "replica-lag"))

    replica.stop()
    wait_until(lambda: data_of(primary.observe(), "replica-missing"))
    with connect(database, "owner") as here:
        here.execute("INSERT INTO orders SELECT generate_series(1, 1000)")
    [slot] = wait_until(lambda: data_of(primary.observe(), "unused-slot"))
    assert slot["slot"] == "replica"
    replica.start()
    wait_until(lambda: not data_of(primary.observe(), "replica-missing"))


def test_a_server_killed_midway_leaves_an_unknown_outcome_and_returns(
    database: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres = rig(database, transaction_after=0)
    vacuum = {"table": "public.orders"}
    with closing(connect(database, "owner")) as holder:
        monkeypatch.setattr(postgres_server, "LOCK_TIME", 600.0)
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        outcome: list[Any] = []
        thread = threading.Thread(target=lambda: outcome.append(postgres.act("vacuum", vacuum)))
        thread.start()
        wait_until(lambda: data_of(postgres.observe(), "blocker"))
        database.stop()
        thread.join()
    [result] = outcome
    assert result.unknown
    assert "the connection broke" in result.error
    assert {row["check"] for row in data_of(postgres.observe(), "server")} == {
        "sessions",
        "replication",
        "upkeep",
    }
    with pytest.raises(PostgresError, match=r"cannot be used: .*refused"):
        postgres.act("vacuum", vacuum)
    database.start()
    assert not data_of(postgres.observe(), "server")
    assert postgres.act("vacuum", vacuum)["after"]["dead"] == 0


def test_a_server_that_hangs_is_given_up(
    database: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_server, "GRACE", 0.3)
    settings = Postgres(**options(database)).options

    def hang() -> None:
        with postgres_server.session(settings, settings.access, seconds=0.2) as connection:
            stopped = connection.info.backend_pid
            signal_process(stopped, signal.SIGSTOP)
            try:
                connection.execute("SELECT 1")
            finally:
                signal_process(stopped, signal.SIGCONT)

    with pytest.raises(PostgresError, match="the connection broke"):
        hang()


def test_an_agent_ends_the_blocker_that_a_person_has_approved(
    database: PostgreSQL, deployment: Deployment
) -> None:
    text = f"""
    id = "dba"
    [[plugins]]
    use = "postgres"
    [plugins.options]
    host = "127.0.0.1"
    port = {database.port}
    blocked_after = 0
    access = {{ username = "watcher" }}
    [plugins.options.actions.terminate_backend]
    username = "ender"
    """
    with lock_table(database) as holder:
        agent = ConnectedAgent(deployment, text)
        blocker = agent.observed("postgres/blocker")
        assert blocker["pid"] == holder.info.backend_pid
        item, execution = agent.perform("postgres:terminate_backend", **session_params(blocker))
        assert "would end the session" in item["preview"]["output"]
        assert execution["state"] == "succeeded"
        verified = agent.verified(execution)
    assert verified["verdict"] == "effective"
    assert verified["evidence"] == "the server no longer shows it"
