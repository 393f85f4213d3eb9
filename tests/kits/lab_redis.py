"""Gives labs a real Redis, which runs their scripts in a fraction of the fake one's time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import fakeredis
import redis

from redis_kit import RedisServer

#: Databases, more than the labs of one test.
_DATABASES = 1000


class Database:
    """An empty database; while it is not *connected*, its clients find no server."""

    def __init__(self, socket: str, number: int) -> None:
        self.connected = True
        self._address = {"path": socket, "db": number}

    def client(self, **options: Any) -> redis.Redis:
        """A new client."""
        pool = _Pool(self, **self._address, **options)
        return redis.Redis.from_pool(pool)


class _Pool(redis.ConnectionPool):
    """Connections to a database."""

    def __init__(self, database: Database, **options: Any) -> None:
        super().__init__(connection_class=redis.UnixDomainSocketConnection, **options)
        self._database = database

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """A connection, unless the database is not connected."""
        if not self._database.connected:
            raise redis.ConnectionError("the test has cut the connection")
        return super().get_connection(*args, **options)


class LabRedis:
    """A server for the labs of one process; it takes the place of `fakeredis` in their module."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)
        self._numbers = cycle(range(_DATABASES))
        self._used = False

    def database(self) -> Database:
        """An empty database."""
        self._used = True
        return Database(self._socket, next(self._numbers))

    def FakeRedis(self, **options: Any) -> redis.Redis:  # noqa: N802 - as fakeredis names it
        """A client of an empty database."""
        return self.database().client(**options)

    def empty(self) -> None:
        """Delete what labs have left."""
        if self._used:
            with redis.Redis(unix_socket_path=self._socket) as client:
                client.flushall()
            self._used = False


def client_of(server: Database | fakeredis.FakeServer) -> redis.Redis:
    """A client of a real or an imaginary server, with decoded replies."""
    if isinstance(server, Database):
        return server.client(decode_responses=True)
    return fakeredis.FakeRedis(server=server, decode_responses=True)


@contextmanager
def lab_redis(folder: Path) -> Iterator[LabRedis]:
    """Run the server as long as the context lasts."""
    socket = folder / "redis.sock"
    with RedisServer(folder, "--unixsocket", str(socket), "--databases", str(_DATABASES)):
        yield LabRedis(socket)
