"""Follows the events of all agents in one thread, and wakes the requests that wait for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from boyd.errors import StoreError
from boyd.store import Store

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


class Tail:
    """Wakes those who wait, each time anything happens to any agent."""

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
        self._changed = threading.Condition()
        self._count = 0
        self._thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """How often something has happened; grows."""
        return self._count

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
                self.wait(seen, min(left, LOOK))

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until `count` is beyond *seen*, or for that many *seconds*."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > seen or self._stopping.is_set(), seconds)

    def start(self) -> None:
        """Begin to follow, unless that has begun."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Let everybody who waits look."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

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
        store = self._open()
        events = store.events([])
        while not self._stopping.is_set():
            new = events.follow(self._agents())
            # What happened before we had our position in a new stream is behind it: whoever waits
            # has to look once.
            if events.wait(0 if new else BLOCK) or new:
                self.wake()
