"""Follows events and logs in Redis: wakes requests that wait, and keeps hints for open pages."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from boyd.errors import StoreError
from boyd.store import DEPLOYMENT, Events, Store, StreamWatcher, Topic

log = logging.getLogger("boyd.api")

_T = TypeVar("_T")

#: The topic of the events of all agents.
EVERYTHING: Topic = (DEPLOYMENT, None)
#: Seconds that one read of the streams waits; as often it looks for new agents.
BLOCK = 1.0
#: Seconds after which a waiting request checks by itself, even if nothing woke it.
LOOK = 0.5

#: Hints that one process keeps for streams that lag.
_HINTS = 1000
#: The kind of hint that the growth of an investigation's log gives; its steps are no events.
_INVESTIGATION = "investigation"
#: The most open investigations of an agent to look at, and seconds between two looks.
_LOGS = 100
_LOGS_INTERVAL = 1.0


class Slots:
    """A limited number of slots for long requests."""

    def __init__(self, number: int) -> None:
        self._semaphore = threading.BoundedSemaphore(number)
        self.free = self._semaphore.release

    def take(self) -> bool:
        """Take a slot if one is free."""
        return self._semaphore.acquire(blocking=False)


class ChangeSignal:
    """Wakes the threads that wait for a change; `count` is the number of changes so far."""

    def __init__(self, stopping: threading.Event) -> None:
        """Create it; nothing waits once *stopping* is set."""
        self._stopping = stopping
        self._changed = threading.Condition()
        self.count = 0

    def notify(self) -> None:
        """Wake every waiting thread."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int, seconds: float) -> None:
        """Wait until `count` exceeds *count*, at most that many *seconds*."""
        with self._changed:
            self._changed.wait_for(lambda: self.count > count or self._stopping.is_set(), seconds)


class ChangeWatcher:
    """Wakes waiting requests on every event of any agent, and on growth of a topic in use."""

    def __init__(
        self,
        store: Callable[[], Store],
        agents: Callable[[], Iterable[str]],
        slots: int,
        stopping: threading.Event,
    ) -> None:
        """Create it for at most so many waiting requests; its thread starts with the first.

        *store* opens the store to read from, with a time limit well above `BLOCK`; *agents* returns
        the ids of all agents. Nothing waits once *stopping* is set.
        """
        self._open = store
        self._agents = agents
        self._slots = Slots(slots)
        self._stopping = stopping
        self._lock = threading.Lock()
        self._events = ChangeSignal(stopping)
        self._signals: dict[Topic, tuple[ChangeSignal, int]] = {}
        self._thread: threading.Thread | None = None
        #: Called after each change.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def count(self) -> int:
        """The number of events so far."""
        return self._events.count

    def until(
        self,
        check: Callable[[], _T | None],
        seconds: float,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> _T | None:
        """Wait until *check* returns a value; None when it has not within *seconds*.

        It is called after each event, and at least every `LOOK` seconds, until the client is
        *is_gone*. When too many requests wait already, it is called once.
        """
        allowed = self._slots.take()
        try:
            deadline = time.monotonic() + (seconds if allowed else 0.0)
            self.start()
            while True:
                count = self.count
                value = check()
                left = deadline - time.monotonic()
                if value is not None or left <= 0 or self._stopping.is_set() or is_gone():
                    return value
                self._events.wait(count, min(left, LOOK))
        finally:
            if allowed:
                self._slots.free()

    @contextmanager
    def following(self, topic: Topic) -> Iterator[ChangeSignal]:
        """Yield a signal of each growth of *topic*.

        The first may take up to `BLOCK` seconds: callers have to look by themselves until then.
        """
        self.start()
        with self._lock:
            signal, users = self._signals.get(topic, (ChangeSignal(self._stopping), 0))
            self._signals[topic] = (signal, users + 1)
        try:
            yield signal
        finally:
            with self._lock:
                signal, users = self._signals.pop(topic)
                if users > 1:
                    self._signals[topic] = (signal, users - 1)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Wake everything that waits."""
        self._events.notify()
        for signal in self._signals_by_topic().values():
            signal.notify()

    def _signals_by_topic(self) -> dict[Topic, ChangeSignal]:
        with self._lock:
            return {topic: signal for topic, (signal, _) in self._signals.items()}

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except StoreError as error:
                log.debug("cannot follow events: %s", error)
            except Exception:  # without this thread all requests only poll
                log.exception("cannot follow events")
            self._stopping.wait(LOOK)

    def _follow(self) -> None:
        watcher = self._open().stream_watcher()
        while not self._stopping.is_set():
            events: set[Topic] = {(agent_id, None) for agent_id in self._agents()}
            new = watcher.follow((events | self._signals_by_topic().keys()) - {EVERYTHING})
            # Events before our first position in a new stream are missed: waiting requests have to
            # look once.
            self._notify(watcher.wait(0 if new else BLOCK) | new)

    def _notify(self, grown: set[Topic]) -> None:
        if any(investigation_id is None for _, investigation_id in grown):
            self._events.notify()
            grown = grown | {EVERYTHING}
        for topic, signal in self._signals_by_topic().items():
            if topic in grown:
                signal.notify()
        self.on_change()


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
        self._kept: deque[Hint] = deque(maxlen=_HINTS)
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
        if time.monotonic() < self._looked + _LOGS_INTERVAL:
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
