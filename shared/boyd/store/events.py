"""An agent's event stream, written by the scripts that make the changes, and waits for entries."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import redis
from redis.crc import key_slot

from boyd.models import Event, JsonObject, from_ms
from boyd.store.keys import Keys
from boyd.store.server.cluster_client import PAUSE, ClusterClient
from boyd.store.server.connection import Client, replies_of_some, translate_errors
from boyd.store.server.scripts import milliseconds
from boyd.store.server.slot_map import Server

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
        streams = self._client.xread(dict(after), count=count, block=max(1, milliseconds(seconds)))
        return list(streams or [])


@dataclass
class _Line:
    """A connection that waits for entries of one slot.

    Attributes:
        asked: by stream, the entry after which it waits for others, while it does.
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
        if rest and (streams := self._look(rest, count)):
            return streams
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


#: Events to read at once.
PAGE = 200
#: The fewest events that a full stream keeps; `emit` in the scripts trims it.
KEPT = 1000


class Events:
    """Follows the events of several agents."""

    def __init__(self, client: Client, agent_ids: Iterable[str]) -> None:
        """Begin with events from now on."""
        self._client = client
        self._tail = open_tail(client)
        self._streams: dict[str, tuple[str, str]] = {}
        self.follow(agent_ids)

    def follow(self, agent_ids: Iterable[str]) -> bool:
        """Follow these agents too, from the next `wait` on; True when any of them is new."""
        before = len(self._streams)
        for agent_id in agent_ids:
            self._streams.setdefault(Keys(agent_id).events, (agent_id, "$"))
        return len(self._streams) > before

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """Wait for events since the last call; return pairs of agent id and event."""
        if not self._streams:
            time.sleep(seconds)
            return []
        with translate_errors():
            self._resolve()
            after = {stream: last for stream, (_, last) in self._streams.items() if last != "$"}
            streams = self._tail.read(after, PAGE, seconds)
        events = []
        for stream, entries in streams:
            agent_id = self._streams[stream][0]
            for entry_id, fields in entries:
                self._streams[stream] = (agent_id, entry_id)
                if (event := _event(entry_id, fields)) is not None:
                    events.append((agent_id, event))
        return events

    def _resolve(self) -> None:
        """Replace each `$` by a position, because it would mean another one in each call."""
        new = [stream for stream, (_, last) in self._streams.items() if last == "$"]
        for stream, end in _ends(self._client, new).items():
            self._streams[stream] = (self._streams[stream][0], end)


class AgentEvents:
    """The events of one agent, read from any position."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._stream = keys.events

    def newest(self) -> str:
        """The id of the newest event; `0-0` without any."""
        with translate_errors():
            rows = self._client.xrevrange(self._stream, count=1)
        return str(rows[0][0]) if rows else "0-0"

    def reaches(self, event_id: str) -> bool:
        """Check whether all events after *event_id* are still stored.

        They are not when *event_id* is later than the newest event: then Redis has lost data.
        """
        with translate_errors():
            oldest = self._client.xrange(self._stream, count=1)
            if not oldest:
                return _position(event_id) == (0, 0)
            if is_later(event_id, self.newest()):
                return False
            if not is_later(oldest[0][0], event_id):
                return True
            info = self._client.xinfo_stream(self._stream)
        # Redis before 7.0 does not count added entries; trimming leaves at least KEPT.
        added = info.get("entries-added")
        return bool(info["length"] < KEPT if added is None else added == info["length"])

    def after(self, event_id: str, count: int = PAGE) -> list[Event]:
        """Up to *count* events after *event_id*, oldest first; empty at the end."""
        while True:
            with translate_errors():
                rows = self._client.xrange(self._stream, min=f"({event_id}", count=count)
            events = [event for row in rows if (event := _event(*row)) is not None]
            if events or len(rows) < count:
                return events
            event_id = rows[-1][0]  # the whole page was unreadable


def is_later(event_id: str, other: str) -> bool:
    """Check whether an event is later than another."""
    return _position(event_id) > _position(other)


def _position(event_id: str) -> tuple[int, int]:
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number)


def _event(entry_id: str, fields: dict[str, str]) -> Event | None:
    """The event in a stream entry; None for an entry without a kind."""
    if "kind" not in fields:
        return None
    data: JsonObject = {key: value for key, value in fields.items() if key != "kind"}
    at = from_ms(float(entry_id.partition("-")[0]))
    return Event(id=entry_id, kind=fields["kind"], at=at, data=data)


#: An agent id and None for its events, or an investigation's id for its log.
Topic = tuple[str, str | None]


class StreamWatcher:
    """Watches the streams of several topics for new entries."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tail = open_tail(client)
        self._last: dict[Topic, str] = {}

    def follow(self, topics: Iterable[Topic]) -> set[Topic]:
        """Watch exactly these *topics* from now on; return the new ones."""
        watched = set(topics)
        self._last = {topic: last for topic, last in self._last.items() if topic in watched}
        new = watched - self._last.keys()
        self._note_ends(new)
        return new

    def wait(self, seconds: float) -> set[Topic]:
        """Wait for new entries; return the topics that have some since the last call."""
        if not self._last:
            time.sleep(seconds)
            return set()
        streams = {_stream(topic): topic for topic in self._last}
        after = {name: self._last[topic] for name, topic in streams.items()}
        with translate_errors():
            replies = self._tail.read(after, 1, seconds)
        grown = {streams[name] for name, _ in replies}
        self._note_ends(grown)
        return grown

    def _note_ends(self, topics: set[Topic]) -> None:
        """Record the current ends of these streams."""
        streams = {_stream(topic): topic for topic in topics}
        with translate_errors():
            ends = _ends(self._client, list(streams))
        self._last |= {streams[stream]: end for stream, end in ends.items()}


def _ends(client: Client, streams: Sequence[str]) -> dict[str, str]:
    """The current end of each stream, without those whose server is away."""
    pipe = client.pipeline(transaction=False)
    for stream in streams:
        pipe.xrevrange(stream, count=1)
    pairs = zip(streams, replies_of_some(pipe), strict=True)
    return {
        stream: rows[0][0] if rows else "0-0"
        for stream, rows in pairs
        if not isinstance(rows, redis.RedisError)
    }


def _stream(topic: Topic) -> str:
    agent_id, investigation_id = topic
    keys = Keys(agent_id)
    return keys.events if investigation_id is None else keys.log(investigation_id)
