"""An agent's event stream: an event for every change, written by the script that makes it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import redis

from boyd.models import Event, JsonObject, from_ms
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, replies_of_some, translated
from boyd.store.stream_tail import open_tail

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
        known = len(self._streams)
        for agent_id in agent_ids:
            self._streams.setdefault(Keys(agent_id).events, (agent_id, "$"))
        return len(self._streams) > known

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """Wait for events since the last call; return pairs of agent id and event."""
        if not self._streams:
            time.sleep(seconds)
            return []
        with translated():
            self._resolve()
            after = {stream: last for stream, (_, last) in self._streams.items() if last != "$"}
            found = self._tail.read(after, PAGE, seconds)
        events = []
        for stream, entries in found:
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
        with translated():
            found = self._client.xrevrange(self._stream, count=1)
        return str(found[0][0]) if found else "0-0"

    def reaches(self, event_id: str) -> bool:
        """Tell whether all events after *event_id* are still stored.

        They are not when *event_id* is later than the newest event: then Redis has lost data.
        """
        with translated():
            oldest = self._client.xrange(self._stream, count=1)
            if not oldest:
                return _position(event_id) == (0, 0)
            if is_later(event_id, self.newest()):
                return False
            if not is_later(oldest[0][0], event_id):
                return True
            kept = self._client.xinfo_stream(self._stream)
        # Redis before 7.0 does not count added entries; trimming leaves at least KEPT.
        added = kept.get("entries-added")
        return bool(kept["length"] < KEPT if added is None else added == kept["length"])

    def after(self, event_id: str, count: int = PAGE) -> list[Event]:
        """Up to *count* events after *event_id*, oldest first; empty at the end."""
        while True:
            with translated():
                rows = self._client.xrange(self._stream, min=f"({event_id}", count=count)
            found = [event for row in rows if (event := _event(*row)) is not None]
            if found or len(rows) < count:
                return found
            event_id = rows[-1][0]  # the whole page was unreadable


def is_later(event_id: str, other: str) -> bool:
    """Tell whether an event is later than another."""
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
        wanted = set(topics)
        self._last = {topic: last for topic, last in self._last.items() if topic in wanted}
        new = wanted - self._last.keys()
        self._note_ends(new)
        return new

    def wait(self, seconds: float) -> set[Topic]:
        """Wait for new entries; return the topics that have some since the last call."""
        if not self._last:
            time.sleep(seconds)
            return set()
        streams = {_stream(topic): topic for topic in self._last}
        after = {name: self._last[topic] for name, topic in streams.items()}
        with translated():
            found = self._tail.read(after, 1, seconds)
        grown = {streams[name] for name, _ in found}
        self._note_ends(grown)
        return grown

    def _note_ends(self, topics: set[Topic]) -> None:
        """Record the current ends of these streams."""
        streams = {_stream(topic): topic for topic in topics}
        with translated():
            ends = _ends(self._client, list(streams))
        self._last |= {streams[stream]: end for stream, end in ends.items()}


def _ends(client: Client, streams: Sequence[str]) -> dict[str, str]:
    """The current end of each stream, without those whose server is away."""
    pipe = client.pipeline(transaction=False)
    for stream in streams:
        pipe.xrevrange(stream, count=1)
    found = zip(streams, replies_of_some(pipe), strict=True)
    return {
        stream: rows[0][0] if rows else "0-0"
        for stream, rows in found
        if not isinstance(rows, redis.RedisError)
    }


def _stream(topic: Topic) -> str:
    agent_id, investigation_id = topic
    keys = Keys(agent_id)
    return keys.events if investigation_id is None else keys.log(investigation_id)
