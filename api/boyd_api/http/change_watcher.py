"""Watches the streams of events and logs in one thread, and wakes the requests that wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from boyd.errors import StoreError
from boyd.store import DEPLOYMENT, Store, Topic

log = logging.getLogger("boyd.api")

_T = TypeVar("_T")

#: The topic of the events of all agents.
EVERYTHING: Topic = (DEPLOYMENT, None)
#: Seconds that one read of the streams waits; as often it looks for new agents.
BLOCK = 1.0
#: Seconds after which a waiting request checks by itself, even if nothing woke it.
LOOK = 0.5


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
