"""Databases, a copier and a private PostgreSQL for tests of the archive."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pytest
from sqlalchemy import text

from boyd.errors import ArchiveUnavailable
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.copier import Copier
from boyd.export.archive.database import Database
from boyd.export.archive.merged_history import MergedHistory
from boyd.export.archive.merged_work import MergedWork
from boyd.export.archive.writer import ArchiveWriter
from boyd.models.loop import ArchiveStatus, HistoryFilter, TraceStatus
from boyd.store import Store
from boyd.store.ended_work import parse_status
from boyd.store.keys import ARCHIVE, TRACES
from boyd.store.server.connection import Client
from harness import free_port, wait_until
from signals import signal_process

#: Seconds that records are kept.
KEEP = 86_400.0


class Archive:
    """An archive of one agent at a URL."""

    def __init__(
        self, url: str, store: Store, keep: float = KEEP, *, agent_id: str = "test"
    ) -> None:
        self.url = url
        self.agent_id = agent_id
        self.store = store
        self.database = Database(url, writes=True)
        self.database.upgrade()
        self.writer = ArchiveWriter(self.database)
        self.copier = Copier(store, self.writer, keep, threading.Event())
        self._opened: list[ArchiveAccess] = []

    def copy(self, completely: bool = False) -> int:
        """Copy what is new; the number of records."""
        self.store.seal([self.agent_id])
        before = self.writer.written
        self.copier.copy(self.agent_id, completely=completely)
        self.copier.copy_deployment()
        return self.writer.written - before

    @property
    def past(self) -> MergedHistory:
        """The history, read by somebody who has read nothing yet."""
        return MergedHistory(self.store.agent(self.agent_id), self.access())

    @property
    def work(self) -> MergedWork:
        """The other lists, likewise."""
        return MergedWork(self.store.agent(self.agent_id), self.access())

    def access(self) -> ArchiveAccess:
        """An access that nobody has used yet; it is closed with the archive."""
        self._opened.append(ArchiveAccess(self.url))
        return self._opened[-1]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._opened:
            connection.close()
        self.database.close()

    def count(self, kind: str) -> int:
        """The number of records of a kind."""
        with self.database.begin() as connection:
            result = connection.execute(
                text("SELECT count(*) FROM records WHERE kind = :kind"), {"kind": kind}
            )
            return int(result.scalar_one())

    def plans(self, statements: list[tuple[str, Any]]) -> list[str]:
        """SQLite's query plans of statements."""
        with self.database.begin() as connection:
            return [
                " ".join(map(str, row))
                for statement, values in statements
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            ]


def list_numbers(past: MergedHistory, limit: int = 50, **query: Any) -> list[int]:
    """The numbers of all matching iterations, page by page."""
    numbers: list[int] = []
    cursor: str | None = None
    while True:
        page = past.page(limit, cursor, HistoryFilter(**query))
        numbers += [iteration.iteration for iteration in page.iterations]
        cursor = page.next_cursor
        if cursor is None:
            return numbers


def wait_for_copies(store: Store) -> None:
    """Wait until everything that has ended by now was archived."""
    begins = store.clock.now()

    def is_copied() -> bool:
        status = read_archive_status(store.client)
        return bool(status and status.copied_at and status.copied_at > begins)

    wait_until(is_copied, 60)


def sqlite(folder: Path) -> str:
    """The URL of an SQLite file in *folder*."""
    return f"sqlite:///{folder}/archive.db"


class PostgreSQL:
    """A private PostgreSQL on a loopback port; as root it runs as another user."""

    def __init__(self, programs: Path, folder: Path, primary: PostgreSQL | None = None) -> None:
        """Make its files in *folder*, which belongs to the user that it runs as.

        It becomes a replica of *primary*, with a slot there that is called `replica`.
        """
        self._programs = programs
        self._user = folder.owner() if os.geteuid() == 0 else None
        self._data = folder / "data"
        self.port = free_port()
        self.url = f"postgresql://boyd@127.0.0.1:{self.port}/postgres"
        if primary is None:
            self._run("initdb", "-D", str(self._data), "-U", "boyd", "-A", "trust", "-N")
        else:
            source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "boyd"]
            self._run("pg_basebackup", *source, "-D", str(self._data), "-RCS", "replica", "-cfast")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        more = " -c fsync=off -c full_page_writes=off -c synchronous_commit=off"
        self._run("pg_ctl", "-D", str(self._data), "-o", options + more, "-w", "start")

    def stop(self) -> None:
        """Stop it at once, as a crash does."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def pause(self, number: int = signal.SIGSTOP) -> None:
        """Send a signal to the server process."""
        pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        signal_process(pid, number)

    def create(self, encoding: str) -> str:
        """The URL of a new database with that encoding."""
        name = encoding.lower()
        for statement in (
            f"DROP DATABASE IF EXISTS {name}",
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'",
        ):
            command = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "boyd", "-d", "postgres"]
            self._run("psql", *command, "-qc", statement)
        return f"{self.url.rpartition('/')[0]}/{name}"

    def empty(self) -> None:
        """Remove all tables."""
        database = Database(self.url, writes=True)
        with database.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        database.close()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            user=self._user,
            cwd="/",
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


@contextmanager
def postgresql(programs: Path, primary: PostgreSQL | None = None) -> Iterator[PostgreSQL]:
    """A PostgreSQL, or a replica of *primary*, until the end of the block."""
    # Not below the folder of pytest, where only root may look.
    with TemporaryDirectory(prefix="boyd-postgresql-") as directory:
        if os.geteuid() == 0:
            shutil.chown(directory, "postgres")
        server = PostgreSQL(programs, Path(directory), primary)
        try:
            wait_until(lambda: answers(server.url))
            yield server
        finally:
            server.stop()


@contextmanager
def bouncer(server: PostgreSQL) -> Iterator[str]:
    """The URL of a PgBouncer in front of *server*, with its strict defaults and a pool of two."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(program).exists():
        _skip("PgBouncer is not installed: there is no pgbouncer")
    port = free_port()
    with TemporaryDirectory(prefix="boyd-pgbouncer-") as directory:
        folder = Path(directory)
        (folder / "users.txt").write_text('"boyd" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder}/users.txt\n"
            "pool_mode = transaction\ndefault_pool_size = 2\n"
        )
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        process = subprocess.Popen(
            [program, str(folder / "pgbouncer.ini")],
            user="postgres" if os.geteuid() == 0 else None,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"postgresql://boyd@127.0.0.1:{port}/postgres"
            wait_until(lambda: answers(url))
            yield url
        finally:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    database = Database(url)
    try:
        with database.begin() as connection:
            return bool(connection.scalar(text("SELECT true")))
    except ArchiveUnavailable:
        return False
    finally:
        database.close()


def require_postgresql() -> Path:
    """The folder of the PostgreSQL programs; missing: the test is skipped here, failed in CI."""
    programs = postgresql_programs()
    if programs is None:
        _skip("PostgreSQL is not installed: there is no initdb")
    return programs


def _skip(reason: str) -> NoReturn:
    """Skip the test here, and fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def postgresql_programs() -> Path | None:
    """The folder of the PostgreSQL programs, if it is installed."""
    initdb = shutil.which("initdb")
    folders = [Path(initdb).resolve().parent] if initdb else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


def read_archive_status(client: Client) -> ArchiveStatus | None:
    """Read the last announcement of the archive."""
    return parse_status(ArchiveStatus, client.get(ARCHIVE))


def read_trace_status(client: Client) -> TraceStatus | None:
    """Read the last announcement of the process that exports traces."""
    return parse_status(TraceStatus, client.get(TRACES))
