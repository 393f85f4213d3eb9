"""Waits for entries in any of several streams, which may lie on several servers."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import redis
from redis.crc import key_slot

from boyd.store.server.cluster_client import PAUSE, ClusterClient
from boyd.store.server.connection import Client, replies_of_some
from boyd.store.server.slot_map import Server
from boyd.store.timing import milliseconds

#: Seconds for which a server waits before it replies that there is nothing.
WAIT = 60.0
#: The most slots in which to wait; the others are looked at each `ROUND` seconds.
MOST = 256
ROUND = 0.5
#: Of each stream its name and its new entries.
Found = list[tuple[str, list[tuple[str, dict[str, str]]]]]


def open_tail(client: Client) -> StreamTail:
    """A tail for one thread."""
    return ClusterTail(client) if isinstance(client, ClusterClient) else StreamTail(client)


class StreamTail:
    """Waits for entries of streams on one server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, after: Mapping[str, str], count: int, seconds: float) -> Found:
        """Wait for entries after the given ones, by stream; empty when there are none in time.

        Raises:
            redis.RedisError: the server did not answer.
        """
        found = self._client.xread(dict(after), count=count, block=max(1, milliseconds(seconds)))
        return list(found or [])


@dataclass
class _Line:
    """A connection that waits for entries of one slot.

    Attributes:
        asked: the entries after which it waits for others; None: it does not wait.
    """

    server: Server
    connection: Any
    asked: Mapping[str, str] | None = None


class ClusterTail(StreamTail):
    """Waits for entries of streams in several slots at once.

    One command can only wait in one slot, so each slot has a connection, which goes on waiting
    until the next call. A server that is away delays no entries of the others.
    """

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client)
        self._cluster = client
        self._lines: dict[int, _Line] = {}

    def __del__(self) -> None:
        for slot in list(self._lines):
            self._drop(slot)

    def read(self, after: Mapping[str, str], count: int, seconds: float) -> Found:
        """Wait for entries after the given ones, by stream; empty when there are none in time.

        Raises:
            redis.RedisError: no server answered.
        """
        parts: dict[int, dict[str, str]] = {}
        for stream, last in after.items():
            parts.setdefault(key_slot(stream.encode()), {})[stream] = last
        if not seconds:
            return self._look(parts.values(), count)
        rest = list(parts.values())[MOST:]
        if rest and (found := self._look(rest, count)):
            return found
        self._ask(dict(islice(parts.items(), MOST)), count)
        return self._replies(min(seconds, ROUND) if rest else seconds)

    def _look(self, parts: Iterable[Mapping[str, str]], count: int) -> Found:
        """The entries that there are now."""
        pipe: Client = self._cluster.pipeline(transaction=False)
        for part in parts:
            pipe.xread(dict(part), count=count)
        replies = replies_of_some(pipe)
        good = [reply for reply in replies if not isinstance(reply, redis.RedisError)]
        return [entry for reply in good for entry in reply or []]

    def _ask(self, parts: Mapping[int, Mapping[str, str]], count: int) -> None:
        """Let a line wait in each slot."""
        for slot in self._lines.keys() - parts.keys():
            self._drop(slot)
        failed: redis.RedisError | None = None
        for slot, after in parts.items():
            try:
                line = self._line(slot, after)
                if line.asked is None:
                    line.connection.send_command(*_question(after, count))
                    line.asked = after
            except redis.RedisError as error:
                failed = error
                self._lose(slot, error)
        if failed and not self._lines:
            raise failed

    def _line(self, slot: int, after: Mapping[str, str]) -> _Line:
        """The line of a slot, which waits for nothing else."""
        server = self._cluster.slots.server(slot)
        line = self._lines.get(slot)
        if line and (line.server is not server or server.away or line.asked not in (None, after)):
            self._drop(slot)
            line = None
        if line is None:
            server.check()
            pool = server.client.connection_pool
            line = _Line(server, pool.connection_class(**pool.connection_kwargs))
            self._lines[slot] = line
            line.connection.connect()
        return line

    def _replies(self, seconds: float) -> Found:
        """The entries that come first."""
        with selectors.DefaultSelector() as selector:
            for slot, line in self._lines.items():
                selector.register(line.connection._sock, selectors.EVENT_READ, slot)  # noqa: SLF001
            ready = [key.data for key, _ in selector.select(seconds)]
        return [entry for slot in ready for entry in self._reply(slot)]

    def _reply(self, slot: int) -> Found:
        line = self._lines[slot]
        try:
            reply = line.server.client.parse_response(line.connection, "XREAD")
        except redis.RedisError as error:
            self._lose(slot, error)
            time.sleep(PAUSE)  # it may say the same at once again, while the slot is moved
        else:
            line.asked = None
            return list(reply or [])
        return []

    def _lose(self, slot: int, error: redis.RedisError) -> None:
        if slot in self._lines:
            self._cluster.note(self._lines[slot].server, error)
            self._drop(slot)

    def _drop(self, slot: int) -> None:
        self._lines.pop(slot).connection.disconnect()


def _question(after: Mapping[str, str], count: int) -> list[Any]:
    """The command that waits for entries."""
    wait = milliseconds(WAIT)
    return ["XREAD", "BLOCK", wait, "COUNT", count, "STREAMS", *after.keys(), *after.values()]
