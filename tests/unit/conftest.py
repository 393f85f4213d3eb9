"""Fixtures for unit tests: a Redis for labs, an office with a desk, archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_kit import Desk, Site, make_desk
from archive_kit import PostgreSQL, bouncer, postgresql, require_postgresql, sqlite
from boyd.testing import lab
from lab_redis import Database, LabRedis, lab_redis


@pytest.fixture(scope="session")
def lab_server(redis_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRedis]:
    """A Redis for the labs of this process."""
    with lab_redis(tmp_path_factory.mktemp("labs")) as server:
        yield server


@pytest.fixture(autouse=True)
def _labs_on_redis(lab_server: LabRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Labs that are given no client run on a real Redis."""
    monkeypatch.setattr(lab, "fakeredis", lab_server)
    yield
    lab_server.empty()


@pytest.fixture
def server(lab_server: LabRedis) -> Database:
    """The Redis of a test."""
    return lab_server.database()


@pytest.fixture
def office(server: Any) -> Iterator[tuple[Site, Desk]]:
    """An API over the agent `desk`, and its plugin."""
    lab, plugin = make_desk(server)
    site = Site(lab, server, max_wait=10)
    yield site, plugin
    site.services.stop()


@pytest.fixture
def desk(office: tuple[Site, Desk]) -> Site:
    """The API of the office."""
    return office[0]


@pytest.fixture
def done(office: tuple[Site, Desk]) -> list[str]:
    """The effects of the office's plugin."""
    return office[1].done


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQL]:
    """A PostgreSQL."""
    with postgresql(require_postgresql()) as server:
        yield server


@pytest.fixture(scope="session")
def bounced_url(postgresql_server: PostgreSQL) -> Iterator[str]:
    """The URL of the same database behind PgBouncer."""
    with bouncer(postgresql_server) as url:
        yield url


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.long),
        pytest.param("pgbouncer", marks=pytest.mark.long),
    ]
)
def archive_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    server: PostgreSQL = request.getfixturevalue("postgresql_server")
    server.empty()
    if request.param == "postgresql":
        return server.url
    url: str = request.getfixturevalue("bounced_url")
    return url
