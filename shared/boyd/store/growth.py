"""Which streams have grown, without reading what was added: that is read by who waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from boyd.store.client import Client, translated
from boyd.store.keys import Keys
from boyd.store.timing import milliseconds

#: What can be waited for: the events of an agent, or the log of one of its investigations.
Topic = tuple[str, str | None]


class Growth:
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
