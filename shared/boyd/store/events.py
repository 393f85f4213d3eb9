"""An agent's event stream: a line for every change, written by the script that makes it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from boyd.models import Event, JsonObject, from_ms
from boyd.store.connection import Client, translated
from boyd.store.keys import Keys
from boyd.store.timing import milliseconds

#: How many events are read at once.
PAGE = 200
#: How many events a stream keeps at least, as by `emit` in the scripts.
KEPT = 1000


class Events:
    """The events of several agents, read in order of time."""

    def __init__(self, client: Client, agent_ids: Iterable[str]) -> None:
        """Begin with what happens from now on."""
        self._client = client
        self._streams: dict[str, tuple[str, str]] = {}
        self.follow(agent_ids)

    def follow(self, agent_ids: Iterable[str]) -> bool:
        """Read those agents too, from the next `wait` on; whether any of them is new."""
        known = len(self._streams)
        for agent_id in agent_ids:
            self._streams.setdefault(Keys(agent_id).events, (agent_id, "$"))
        return len(self._streams) > known

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """What has happened since the last call, as (agent id, event); waits for the first."""
        if not self._streams:
            time.sleep(seconds)
            return []
        after = {stream: last for stream, (_, last) in self._streams.items()}
        with translated():
            # `$` means another thing in each call, so it is replaced by a real position first.
            for stream, last in after.items():
                if last == "$":
                    newest = self._client.xrevrange(stream, count=1)
                    after[stream] = newest[0][0] if newest else "0-0"
                    self._streams[stream] = (self._streams[stream][0], after[stream])
            found = self._client.xread(after, count=PAGE, block=max(1, milliseconds(seconds)))
        events = []
        for stream, entries in found or []:
            agent_id = self._streams[stream][0]
            for entry_id, fields in entries:
                self._streams[stream] = (agent_id, entry_id)
                if (event := _event(entry_id, fields)) is not None:
                    events.append((agent_id, event))
        return events


class AgentEvents:
    """The events of one agent, read from wherever the reader is."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._stream = keys.events

    def newest(self) -> str:
        """The id of the last event, to go on from."""
        with translated():
            found = self._client.xrevrange(self._stream, count=1)
        return str(found[0][0]) if found else "0-0"

    def reaches(self, event_id: str) -> bool:
        """Whether everything after that event is still there.

        It is not when that event is later than the newest: then Redis has lost what came last.
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
        # Redis before 7.0 does not count what was added; a stream is cut to no less than KEPT.
        added = kept.get("entries-added")
        return bool(kept["length"] < KEPT if added is None else added == kept["length"])

    def after(self, event_id: str, count: int = PAGE) -> list[Event]:
        """The events after that one, oldest first; none: there are no more."""
        while True:
            with translated():
                rows = self._client.xrange(self._stream, min=f"({event_id}", count=count)
            found = [event for row in rows if (event := _event(*row)) is not None]
            if found or len(rows) < count:
                return found
            event_id = rows[-1][0]  # a whole page of entries that cannot be read


def is_later(event_id: str, other: str) -> bool:
    """Whether an event came after another one."""
    return _position(event_id) > _position(other)


def _position(event_id: str) -> tuple[int, int]:
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number)


def _event(entry_id: str, fields: dict[str, str]) -> Event | None:
    """An entry of the stream; None: it has no kind, so it is no event."""
    if "kind" not in fields:
        return None
    data: JsonObject = {key: value for key, value in fields.items() if key != "kind"}
    at = from_ms(float(entry_id.partition("-")[0]))
    return Event(id=entry_id, kind=fields["kind"], at=at, data=data)


#: What can be waited for: the events of an agent, or the log of one of its investigations.
Topic = tuple[str, str | None]


class StreamWatcher:
    """The streams of several topics, each watched from when it is first followed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: dict[Topic, str] = {}

    def follow(self, topics: Iterable[Topic]) -> set[Topic]:
        """Watch exactly those *topics*; those of them that were not watched before."""
        wanted = set(topics)
        self._last = {topic: last for topic, last in self._last.items() if topic in wanted}
        new = wanted - self._last.keys()
        self._look(new)
        return new

    def wait(self, seconds: float) -> set[Topic]:
        """Those that have grown since they were looked at last; waits for the first."""
        if not self._last:
            time.sleep(seconds)
            return set()
        streams = {_stream(topic): topic for topic in self._last}
        after = {name: self._last[topic] for name, topic in streams.items()}
        with translated():
            found = self._client.xread(after, count=1, block=max(1, milliseconds(seconds)))
        grown = {streams[name] for name, _ in found or []}
        self._look(grown)
        return grown

    def _look(self, topics: set[Topic]) -> None:
        """Note where those streams end."""
        named = list(topics)
        if not named:
            return
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for topic in named:
                pipe.xrevrange(_stream(topic), count=1)
            ends = pipe.execute()
        self._last |= {
            topic: end[0][0] if end else "0-0" for topic, end in zip(named, ends, strict=True)
        }


def _stream(topic: Topic) -> str:
    agent_id, investigation_id = topic
    keys = Keys(agent_id)
    return keys.events if investigation_id is None else keys.log(investigation_id)
