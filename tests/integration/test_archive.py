"""`boyd archive` as a process: killed, without its database, with another Redis, beside another."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from archive_kit import PostgreSQL, postgresql, read_archive_status, require_postgresql, sqlite
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.merged_history import MergedHistory
from boyd.models.loop import ArchiveStatus, HistoryFilter
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

AGENT = "agents.queue:agent"
TICKING = "agents.traced:ticking"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """A PostgreSQL for the tests of this module."""
    with postgresql(require_postgresql()) as database:
        yield database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    database: PostgreSQL = request.getfixturevalue("server")
    database.empty()
    return database.url


@pytest.fixture
def world(deployment: Deployment, url: str) -> Deployment:
    """A worker, and the URL of the archive for what is started later."""
    deployment.environment["BOYD_ARCHIVE_URL"] = url
    deployment.worker("worker", AGENT)
    return deployment


def iterate(world: Deployment, times: int) -> list[str]:
    """Run iterations; the ids of their results."""
    launcher = world.launcher("queue")
    return [world.ended("queue", launcher.trigger("test").iteration).id for _ in range(times)]


def archive_ids(world: Deployment, url: str) -> list[str]:
    """The ids of all iterations that only the archive has to tell, newest first."""
    access = ArchiveAccess(url)
    past = MergedHistory(world.agent("queue"), access)
    ids, cursor = [], None
    while True:
        page = past.page(7, cursor, HistoryFilter(status="ok"))
        assert page.missing is None
        ids += [str(iteration.id) for iteration in page.iterations]
        cursor = page.next_cursor
        if cursor is None:
            access.close()
            return ids


def start(world: Deployment, name: str = "archive") -> None:
    """Start an archive process."""
    world.start(name, "archive", ready=False)


def wait_for_status(world: Deployment, fits: Callable[[ArchiveStatus], Any]) -> ArchiveStatus:
    """The announcement of the archive, once it fits."""

    def look() -> ArchiveStatus | None:
        status = read_archive_status(world.store.client)
        return status if status is not None and fits(status) else None

    archive_status: ArchiveStatus = wait_until(look, 30)
    return archive_status


def wait_for_copy(world: Deployment) -> None:
    """Wait until everything that has ended by now was copied."""
    now = world.store.clock.now()
    wait_for_status(world, lambda status: status.copied_at is not None and status.copied_at > now)


def test_archived_iterations_outlive_an_emptied_redis(world: Deployment, url: str) -> None:
    start(world)
    ids = iterate(world, 3)
    wait_for_copy(world)
    world.store.client.flushall()
    wait_until(lambda: world.store.fleet.agents())
    later = iterate(world, 2)

    assert archive_ids(world, url) == [*reversed(later), *reversed(ids)]
    wait_for_copy(world)
    world.store.client.flushall()
    assert archive_ids(world, url) == [*reversed(later), *reversed(ids)]
    assert world.stop("archive") == 0


@pytest.mark.long
def test_killed_at_any_moment_it_copies_everything_once(world: Deployment, url: str) -> None:
    ids: list[str] = []
    chance = random.Random(1)
    for turn in range(8):
        name = f"archive-{turn}"
        start(world, name)
        ids += iterate(world, chance.randrange(1, 12))
        if turn % 2:
            wait_until(lambda: "archive" in world.log(name))  # noqa: B023 - used at once
        world.kill(name)
    start(world)
    wait_for_copy(world)
    world.store.client.flushall()

    assert archive_ids(world, url) == ids[::-1]


@pytest.mark.long
def test_two_processes_at_once_copy_everything_once(world: Deployment, url: str) -> None:
    start(world, "first")
    start(world, "second")
    ids = iterate(world, 30)
    wait_for_copy(world)
    world.kill("first")
    ids += iterate(world, 5)
    wait_for_copy(world)
    world.store.client.flushall()

    assert archive_ids(world, url) == ids[::-1]


@pytest.mark.long
@pytest.mark.parametrize("way", ["stopped", "paused"])
def test_without_its_database_it_says_so_and_then_copies_what_it_has_missed(
    way: str, server: PostgreSQL, deployment: Deployment
) -> None:
    server.empty()
    deployment.environment["BOYD_ARCHIVE_URL"] = server.url
    deployment.worker("worker", AGENT)
    start(deployment)
    api = deployment.api("api")
    ids = iterate(deployment, 3)
    wait_for_copy(deployment)
    headers = deployment.key("ann", "read")
    server.stop() if way == "stopped" else server.pause()
    try:
        ids += iterate(deployment, 3)
        if way == "stopped":
            wait_for_status(
                deployment, lambda status: status.down_since is not None and status.error
            )
        page = requests.get(
            f"{api}/api/v0/loop/history?q=nothing", headers=headers, timeout=60
        ).json()
        assert page["missing"]
        assert page["iterations"] == []
        listed = requests.get(f"{api}/api/v0/loop/history?limit=5", headers=headers, timeout=60)
        assert len(listed.json()["iterations"]) == 5
    finally:
        server.start() if way == "stopped" else server.pause(signal.SIGCONT)
    wait_for_status(deployment, lambda status: status.down_since is None)
    wait_for_copy(deployment)
    deployment.store.client.flushall()

    assert archive_ids(deployment, server.url) == ids[::-1]
    assert deployment.log("archive").count("trying again") <= 1


def test_a_busy_database_only_delays_it(deployment: Deployment, tmp_path: Path) -> None:
    deployment.environment["BOYD_ARCHIVE_URL"] = sqlite(tmp_path)
    deployment.worker("worker", AGENT)
    start(deployment)
    ids = iterate(deployment, 1)
    wait_for_copy(deployment)
    with sqlite3.connect(tmp_path / "archive.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        ids += iterate(deployment, 2)
        other.execute("ROLLBACK")
    wait_for_copy(deployment)
    deployment.store.client.flushall()

    assert archive_ids(deployment, sqlite(tmp_path)) == ids[::-1]


def test_beat_ticks_while_the_archive_in_its_process_waits_for_a_busy_database(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.environment["BOYD_ARCHIVE_URL"] = sqlite(tmp_path)
    deployment.worker("worker", TICKING)
    deployment.start("beat", "beat", "--agent", TICKING, "--also", "archive")
    history = deployment.agent("ticking").history
    wait_until(lambda: history.get(1), 30)
    wait_for_copy(deployment)
    with sqlite3.connect(tmp_path / "archive.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        last = deployment.agent("ticking").loop_control.status().iteration + 10
        wait_until(lambda: history.get(last), 30)
        other.execute("ROLLBACK")
    wait_for_copy(deployment)
    assert deployment.stop("beat") == 0
    deployment.store.client.flushall()

    past = MergedHistory(deployment.agent("ticking"), ArchiveAccess(sqlite(tmp_path)))
    assert past.get(str(last)) is not None


@pytest.mark.long
def test_beat_ticks_and_drains_while_a_statement_of_its_archive_never_ends(
    server: PostgreSQL, deployment: Deployment
) -> None:
    server.empty()
    deployment.environment["BOYD_ARCHIVE_URL"] = server.url
    deployment.worker("worker", TICKING)
    deployment.start("beat", "beat", "--agent", TICKING, "--also", "archive")
    wait_for_copy(deployment)
    history = deployment.agent("ticking").history
    server.pause()
    try:
        last = deployment.agent("ticking").loop_control.status().iteration + 20
        wait_until(lambda: history.get(last), 60)
        assert deployment.stop("beat") == 0
    finally:
        server.pause(signal.SIGCONT)
