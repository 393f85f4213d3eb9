"""Follows events and logs in one thread, and wakes the requests that wait for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from boyd.errors import StoreError
from boyd.store import Store, Topic

log = logging.getLogger("boyd.api")

_T = TypeVar("_T")

#: Seconds that one read of the streams waits; as often it looks for new agents.
BLOCK = 1.0
#: Seconds after which a waiting request looks by itself, whatever it was told.
LOOK = 0.5


class Places:
    """A limited number of places for requests that stay long."""

    def __init__(self, number: int) -> None:
        self._semaphore = threading.BoundedSemaphore(number)

    def take(self) -> bool:
        """Take a place if one is free."""
        return self._semaphore.acquire(blocking=False)

    def free(self) -> None:
        """Give a place back."""
        self._semaphore.release()

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Hold a place while the block runs; False when none was free."""
        taken = self.take()
        try:
            yield taken
        finally:
            if taken:
                self.free()


class Bell:
    """Wakes those who wait for it."""

    def __init__(self, stopping: threading.Event) -> None:
        """Ring later; nobody waits once *stopping* is set."""
        self._stopping = stopping
        self._changed = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        """How often it has rung; grows."""
        return self._count

    def ring(self) -> None:
        """Let everybody who waits look."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until `count` is beyond *seen*, or for that many *seconds*."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > seen or self._stopping.is_set(), seconds)


class Tail:
    """Wakes those who wait, each time anything happens to any agent, or to what they listen to."""

    def __init__(
        self,
        store: Callable[[], Store],
        agents: Callable[[], Iterable[str]],
        places: int,
        stopping: threading.Event,
    ) -> None:
        """Follow later, when somebody waits.

        Args:
            store: opens the store to read from, with a time limit well above `BLOCK`.
            agents: the ids of the agents that there are.
            places: how many requests may wait at once.
            stopping: set when the process is to end; nobody waits from then on.
        """
        self._open = store
        self._agents = agents
        self._places = Places(places)
        self._stopping = stopping
        self._lock = threading.Lock()
        self._events = Bell(stopping)
        self._bells: dict[Topic, tuple[Bell, int]] = {}
        self._thread: threading.Thread | None = None
        #: Called whenever a bell has rung.
        self.on_ring: Callable[[], None] = lambda: None

    @property
    def count(self) -> int:
        """How often something has happened; grows."""
        return self._events.count

    def until(
        self,
        check: Callable[[], _T | None],
        seconds: float,
        gone: Callable[[], bool] = lambda: False,
    ) -> _T | None:
        """What *check* gives, once it gives something; None when it has not within *seconds*.

        It is asked after each event, and at least every `LOOK` seconds, until the client is *gone*.
        Where too many wait already, it is asked once.
        """
        with self._places.place() as allowed:
            deadline = time.monotonic() + (seconds if allowed else 0.0)
            self.start()
            while True:
                seen = self.count
                found = check()
                left = deadline - time.monotonic()
                if found is not None or left <= 0 or self._stopping.is_set() or gone():
                    return found
                self._events.wait(seen, min(left, LOOK))

    @contextmanager
    def listening(self, topic: Topic) -> Iterator[Bell]:
        """What rings each time that *topic* grows; first once it is followed.

        That takes up to `BLOCK` seconds: whoever listens has to look by themselves until then.
        """
        self.start()
        with self._lock:
            bell, users = self._bells.get(topic, (Bell(self._stopping), 0))
            self._bells[topic] = (bell, users + 1)
        try:
            yield bell
        finally:
            with self._lock:
                bell, users = self._bells.pop(topic)
                if users > 1:
                    self._bells[topic] = (bell, users - 1)

    def start(self) -> None:
        """Begin to follow, unless that has begun."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Let everybody who waits look."""
        self._events.ring()
        for bell in self._listened().values():
            bell.ring()

    def _listened(self) -> dict[Topic, Bell]:
        with self._lock:
            return {topic: bell for topic, (bell, _) in self._bells.items()}

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except StoreError as error:
                log.debug("cannot follow events: %s", error)
            except Exception:  # without this thread everybody only polls
                log.exception("cannot follow events")
            self._stopping.wait(LOOK)

    def _follow(self) -> None:
        growth = self._open().growth()
        while not self._stopping.is_set():
            events: set[Topic] = {(agent_id, None) for agent_id in self._agents()}
            new = growth.follow(events | self._listened().keys())
            # What happened before we had our position in a new stream is behind it: whoever waits
            # has to look once.
            self._ring(growth.wait(0 if new else BLOCK) | new)

    def _ring(self, grown: set[Topic]) -> None:
        if any(investigation_id is None for _, investigation_id in grown):
            self._events.ring()
        for topic, bell in self._listened().items():
            if topic in grown:
                bell.ring()
        self.on_ring()
