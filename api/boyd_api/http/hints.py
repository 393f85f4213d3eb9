"""Hints: which agent had an event of which kind, so that open pages know what to read again."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from boyd.errors import StoreError
from boyd.store import Events, Store, StreamWatcher, Topic
from boyd_api.http.change_watcher import EVERYTHING
from boyd_api.http.event_streams import EventFeed, ServerSentEvent

#: Hints that one process keeps for streams that lag.
_KEPT = 1000
#: The kind of hint that the growth of an investigation's log gives; its steps are no events.
_INVESTIGATION = "investigation"
#: The most open investigations of an agent to look at, and seconds between two looks.
_LOGS = 100
_LOOK = 1.0


@dataclass(frozen=True)
class Hint:
    """An event in short: its kind is the first word of the event's."""

    number: int
    agent_id: str
    kind: str


class Hints:
    """The latest hints of all agents, read once for all streams of this process."""

    def __init__(self, store: Callable[[], Store], agents: Callable[[], Iterable[str]]) -> None:
        self._store = store
        self._agents = agents
        self._lock = threading.Lock()
        self._events: Events | None = None
        self._logs: StreamWatcher | None = None
        self._topics: dict[str, set[Topic]] = {}
        self._looked = 0.0
        self._kept: deque[Hint] = deque(maxlen=_KEPT)
        self._number = 0
        #: False while Redis does not answer.
        self.answers = True

    def newest(self) -> int:
        """The number of the newest hint."""
        with self._lock:
            self._read()
            return self._number

    def after(self, number: int) -> Sequence[Hint]:
        """Hints after that number, oldest first."""
        with self._lock:
            self._read()
            return [hint for hint in self._kept if hint.number > number]

    def _read(self) -> None:
        try:
            agents = list(self._agents())
            if self._events is None:
                self._events = self._store().events(agents)
            self._events.follow(agents)
            for agent_id, event in self._events.wait(0):
                self._keep(agent_id, event.kind.partition(".")[0])
            self._look_at_logs(agents)
            self.answers = True
        except StoreError:
            self.answers = False
            raise

    def _keep(self, agent_id: str, kind: str) -> None:
        self._number += 1
        self._kept.append(Hint(self._number, agent_id, kind))
        if kind == _INVESTIGATION:
            self._topics.pop(agent_id, None)  # another one is open now, or one less

    def _look_at_logs(self, agents: list[str]) -> None:
        """Hint at new entries in the logs of open investigations."""
        if time.monotonic() < self._looked + _LOOK:
            return
        self._looked = time.monotonic()
        store = self._store()
        self._logs = self._logs or store.stream_watcher()
        for agent_id in agents:
            if agent_id not in self._topics:
                ids = store.agent(agent_id).investigations.open(_LOGS)
                self._topics[agent_id] = {(agent_id, id) for id in ids}
        self._logs.follow(topic for agent_id in agents for topic in self._topics[agent_id])
        for agent_id in {agent_id for agent_id, _ in self._logs.wait(0)}:
            self._number += 1
            self._kept.append(Hint(self._number, agent_id, _INVESTIGATION))


class HintFeed(EventFeed):
    """The hints about some agents."""

    topic = EVERYTHING

    def __init__(self, hints: Hints, agents: frozenset[str]) -> None:
        self._hints = hints
        self._agents = agents

    @property
    def interval(self) -> float:
        """Seconds between two signs of life: a page that misses two is out of date."""
        return 5.0

    @property
    def group(self) -> Hashable:
        """Readers who may see the same agents share what is read."""
        return (self.topic, self._agents)

    @property
    def sign_of_life(self) -> str:
        """An event that tells whether Redis answers."""
        return f"event: alive\ndata: {json.dumps({'redis': self._hints.answers})}\n\n"

    def newest(self) -> str:
        """The id of the newest hint."""
        return f"{self._hints.newest()}-0"

    def first(self) -> str:
        """The id after which a new page starts."""
        return self.newest()

    def reaches(self, id: str) -> bool:
        """True: pages read everything again after each new connection."""
        return True

    def after(self, id: str) -> list[ServerSentEvent]:
        """One event for each agent and kind that had any since."""
        hints = self._hints.after(int(id.partition("-")[0]))
        latest = {
            (hint.agent_id, hint.kind): hint for hint in hints if hint.agent_id in self._agents
        }
        events = [
            ServerSentEvent(f"{hint.number}-0", "hint", f"{hint.kind} {hint.agent_id}")
            for hint in sorted(latest.values(), key=lambda hint: hint.number)
        ]
        # Those of other agents only advance the position.
        last = f"{hints[-1].number}-0" if hints else id
        return (
            events
            if not hints or (events and events[-1].id == last)
            else [*events, ServerSentEvent(last)]
        )

    def over(self) -> bool:
        """False: it has no end."""
        return False
