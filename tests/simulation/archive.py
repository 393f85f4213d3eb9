"""The archive of a world: its process, its database, and a client that compares both with Redis."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.copier import Archiving
from boyd.export.archive.database import Database, bodies, metadata, records
from boyd.export.archive.entries import Kind
from boyd.export.archive.merged_history import MergedHistory
from boyd.export.archive.merged_work import MergedWork
from boyd.store import AgentStore, Store
from simulation.world import Process, World

if TYPE_CHECKING:
    from simulation.scenarios import Client

#: Seconds that records are kept, and the most that a list has here.
KEEP, MOST = 86_400.0, 200
KINDS: Sequence[Kind] = ("iteration", "run", "approval", "execution", "audit")
#: Records as JSON by kind and name, in the order of their list, newest first.
Records = Mapping[Kind, Mapping[str, str]]
#: The names of records, in the same order.
Lists = Mapping[Kind, Sequence[str]]


class SimulatedDatabase(Database):
    """The database of the archive process; each of its transactions is a point of the world."""

    world: World

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction; nobody else goes on in it."""
        with self.world.transaction(), super().begin() as connection:
            yield connection


@cache
def _url() -> str:
    """The URL of a database of this process, emptied for each world."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return f"sqlite:///{folder}/archive.db"


@cache
def _database() -> SimulatedDatabase:
    return SimulatedDatabase(_url(), writes=True)


@cache
def _beside() -> Database:
    """The same database for the judge, whom nothing holds up."""
    database = Database(_url(), writes=True)
    database.upgrade()
    return database


def empty_archive(world: World) -> None:
    """Give a world an archive without records."""
    _database().world = world
    with _beside().begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


def start_archive(world: World, process: Process) -> None:
    """Run what `boyd archive` runs, once there is an agent whose events it can follow."""
    stores = (Store(world.client()), Store(world.client()))
    while not stores[0].fleet.agents():
        world.sleep(0.5)
    archiving = Archiving(*stores, _database(), KEEP)
    running = [archiving]

    def drain() -> None:
        archiving.stop()
        while running:
            world.sleep(0.1)

    process.drain = drain
    archiving.run()
    running.clear()


def read_archive(client: Client) -> None:
    """Compare what Redis and the archive list, until all others are content and both agree."""
    latest_of: dict[str, Records] = {"ended": {}, "archived": {}}

    def tell_new(about: str, latest: Records) -> None:
        for kind in KINDS:
            before = latest_of[about].get(kind, {})
            for name, text in latest[kind].items():
                if before.get(name) != text:
                    client.tell(f"{about} {kind} {name}", text)
        latest_of[about] = latest

    while True:
        alone = client.world.is_quiet()
        tell_new("ended", client.insist(partial(_read_redis, client.store)))
        tell_new("archived", _read_archive(client.store.agent_id))
        if alone and latest_of["ended"] == latest_of["archived"]:
            break
        client.world.sleep(1.0)
    client.tell("list archive", (_names(latest_of["archived"]), _names(latest_of["ended"])))
    access = ArchiveAccess(_url())
    client.world.questions.append(
        ("list both", lambda: (_read_both(client.store, access), _names(_read_redis(client.store))))
    )


def _names(latest: Records) -> Lists:
    return {kind: [*each] for kind, each in latest.items()}


def _read_redis(store: AgentStore) -> Records:
    """Read what has ended from Redis."""
    work = MergedWork(store, ArchiveAccess(None))
    audit = {f"{entry.seq}:{entry.hash}": entry.to_json() for entry in store.audit_trail.entries()}
    return {
        "iteration": {r.id.partition(":")[2]: r.to_json() for r in store.history.results(MOST)},
        "run": {run.id: run.to_json() for run in work.runs(MOST).runs if run.completed_at},
        "approval": {item.id: item.to_json() for item in work.approvals(MOST).history},
        "execution": {
            entry.id: entry.to_json()
            for each in work.executions(MOST).executions
            if (entry := store.executions.get(each.id)) is not None and entry.state != "running"
        },
        "audit": dict(reversed(audit.items())),
    }


def _read_archive(agent: str) -> Records:
    """Read all from the archive."""
    query = select(records.c.kind, records.c.name, bodies.c.body).join_from(records, bodies)
    archived: dict[Kind, dict[str, str]] = {kind: {} for kind in KINDS}
    query = query.where(records.c.agent == agent).order_by(records.c.key.desc())
    with _beside().begin() as connection:
        for row in connection.execute(query):
            archived[row.kind][row.name] = row.body
    return archived


def _read_both(store: AgentStore, archive: ArchiveAccess) -> Lists:
    """Read the lists of the API, which merge both."""
    work = MergedWork(store, archive)
    iterations = MergedHistory(store, archive).page(MOST).iterations
    lists: dict[Kind, Sequence[str]] = {
        "iteration": [str(each.id).partition(":")[2] for each in iterations],
        "run": [each.id for each in work.runs(MOST).runs],
        "approval": [each.id for each in work.approvals(MOST).history],
        "execution": [each.id for each in work.executions(MOST).executions],
    }
    return lists
