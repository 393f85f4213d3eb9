"""Gives labs a real Redis, which runs their scripts in a fraction of the fake one's time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import redis

from redis_kit import RedisServer

#: Databases, more than the labs of one test.
_DATABASES = 1000


class LabRedis:
    """A server for the labs of one process; it takes the place of `fakeredis` in their module."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)
        self._numbers = cycle(range(_DATABASES))
        self._used = False

    def FakeRedis(self, **options: Any) -> redis.Redis:  # noqa: N802 - as fakeredis names it
        """A client of an empty database."""
        self._used = True
        return redis.Redis(unix_socket_path=self._socket, db=next(self._numbers), **options)

    def empty(self) -> None:
        """Delete what labs have left."""
        if self._used:
            with redis.Redis(unix_socket_path=self._socket) as client:
                client.flushall()
            self._used = False


@contextmanager
def lab_redis(folder: Path) -> Iterator[LabRedis]:
    """Run the server as long as the context lasts."""
    socket = folder / "redis.sock"
    with RedisServer(folder, "--unixsocket", str(socket), "--databases", str(_DATABASES)):
        yield LabRedis(socket)
