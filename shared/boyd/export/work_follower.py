"""A process that follows the work of all agents by their events, until it is told to stop.

It is about a second behind. It looks at everything regularly, because events may be missed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from boyd.errors import BoydError, StoreError
from boyd.models import Event, from_ms
from boyd.models.loop import FollowerStatus
from boyd.store import Store

_S = TypeVar("_S", bound=FollowerStatus)

#: Seconds to wait for events, and between two rounds while there are some.
FOLLOW = 1.0
PAUSE = 0.25
#: Seconds for which an agent is looked at after an event: its audit is sealed a little later.
AFTERWARDS = 3.0
#: Seconds between two complete looks; and a complete look takes at most this part of the time.
LOOK = 30.0
_PART = 0.02
#: Seconds between two announcements.
ANNOUNCE = 2.0
#: Seconds until a failed round is tried again: doubled from the first to the last while none of
#: them copies anything.
RETRY = (1.0, 30.0)
#: Most seconds to wait for the end of a follower that was stopped.
STOP = 3.0


def process_name() -> str:
    """The name of this process in announcements."""
    return f"{socket.gethostname()}.{os.getpid()}"


class WorkFollower(ABC, Generic[_S]):
    """Follows the ended work of all agents."""

    #: What a round may fail with; anything else is logged with its traceback.
    failures: tuple[type[BoydError], ...] = (StoreError,)

    def __init__(self, store: Store, announcing: Store, status: _S, log: logging.Logger) -> None:
        """Read from *store*; *announcing* has a connection of its own for announcements."""
        self._store = store
        self._announcing = announcing
        self._log = log
        self._name = log.name.rpartition(".")[2]
        self._stopping = threading.Event()
        self._status_lock = threading.Lock()
        self._status = status
        self._events = store.events([])
        self._recent: dict[str, float] = {}
        self._look_at = 0.0

    @property
    @abstractmethod
    def progress(self) -> int:
        """Count the records or spans that this process has copied, in failed rounds as well."""

    @abstractmethod
    def _work(self, agent_id: str, events: Sequence[Event] | None) -> None:
        """Go on with an agent, which has had those *events*; without them check everything."""

    @abstractmethod
    def _say(self, status: _S) -> None:
        """Announce the state."""

    def _before_look(self) -> None:
        """Prepare what a round needs; called before each."""

    def _on_deployment(self) -> None:
        """Go on with what belongs to no agent."""

    def _after_round(self) -> None:
        """Do what a round does besides; called after each."""

    def stop(self) -> None:
        """End `run` after what it is doing."""
        self._stopping.set()

    def run(self) -> None:
        """Follow until `stop`; failures are logged when they begin and end, and tried again."""
        announcer = threading.Thread(target=self._announce, name="announcer", daemon=True)
        announcer.start()
        pause = RETRY[0]
        while not self._stopping.is_set():
            before = self.progress
            try:
                self._round()
                pause = RETRY[0]
            except Exception as error:  # noqa: BLE001 - in a thread, none would start it again
                self._record_failure(error)
                if self.progress > before:  # it answers between its failures
                    pause = RETRY[0]
                self._stopping.wait(pause)
                pause = min(2 * pause, RETRY[1])
        announcer.join(timeout=ANNOUNCE)

    def _round(self) -> None:
        began = self._store.clock.now()
        self._before_look()
        if time.monotonic() >= self._look_at:
            self._look()
        else:
            self._follow()
        if self._status.down_since is not None:
            self._log.warning("%s: it works again", self._name)
        self._report(copied_at=began, down_since=None, error=None, copied=self.progress)
        self._after_round()

    def _look(self) -> None:
        """Look at everything that Redis has."""
        began = time.monotonic()
        agents = list(self._store.fleet.agents())
        # Followed first: what ends during the look is found by its events.
        self._events.follow(agents)
        self._events.wait(0)
        self._on_deployment()
        for agent_id in agents:
            if self._stopping.is_set():
                return
            self._work(agent_id, None)
        now = time.monotonic()
        self._look_at = now + max(LOOK, (now - began) / _PART)

    def _follow(self) -> None:
        """Look at the agents that have had events, and at what is new of the deployment."""
        now = time.monotonic()
        busy = {name for name, until in self._recent.items() if until > now}
        events = self._events.wait(PAUSE if busy else FOLLOW)
        if events:
            self._stopping.wait(PAUSE)  # so that one round has what ends at almost the same time
        until = time.monotonic() + AFTERWARDS
        self._recent = {name: self._recent[name] for name in busy}
        self._recent |= dict.fromkeys({name for name, _ in events}, until)
        self._on_deployment()
        for agent_id in sorted(self._recent):
            self._work(agent_id, [event for name, event in events if name == agent_id])

    def _record_failure(self, error: Exception) -> None:
        self._look_at = 0.0  # afterwards everything is compared again
        is_bug = not isinstance(error, self.failures)
        # Its own text may show what it was working on; the log masks secrets.
        reason = f"an unexpected {type(error).__name__}, see its log" if is_bug else str(error)
        if self._status.error is None:
            text = "%s: %s; nothing is lost while Redis keeps it; trying again"
            self._log.error(text, self._name, reason, exc_info=is_bug)
        since = self._status.down_since or self._store.clock.now()
        self._report(down_since=since, error=reason, copied=self.progress)

    def _report(self, **changes: object) -> None:
        with self._status_lock:
            self._status = self._status.patched(changes)

    def _announce(self) -> None:
        """Announce the state every few seconds, even while a round hangs."""
        while True:
            at = from_ms(self._announcing.clock.seconds() * 1000)
            self._report(at=at)
            try:
                self._say(self._status)
            except StoreError as error:
                self._log.debug("%s: the state could not be announced: %s", self._name, error)
            if self._stopping.wait(ANNOUNCE):
                return


@contextmanager
def run_beside(followers: Sequence[WorkFollower[Any]]) -> Iterator[None]:
    """Run *followers* in threads of their own during the block, and stop them at its end."""
    threads = [threading.Thread(target=it.run, daemon=True) for it in followers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for follower in followers:
            follower.stop()
        for thread in threads:
            thread.join(timeout=STOP)


def subjects(events: Iterable[Event], kind: str, subject: str) -> list[str]:
    """Collect the ids in the field *subject* of all events of a *kind*, without repetitions."""
    return list(dict.fromkeys(str(e.data[subject]) for e in events if e.kind == kind))
