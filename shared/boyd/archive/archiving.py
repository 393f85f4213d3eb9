"""`boyd archive`: a process that copies until it is told to stop.

It follows the events of all agents, so that it is about a second behind, and looks at everything
regularly, because events may be missed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable

from boyd.archive.copier import Copier
from boyd.archive.database import Database
from boyd.archive.writer import ArchiveWriter
from boyd.errors import ArchiveUnavailable, StoreError
from boyd.models import Event, from_ms
from boyd.models.archived import ArchiveStatus
from boyd.store import Store
from boyd.store.archive_status import announce_archive

log = logging.getLogger("boyd.archive")

#: Seconds to wait for events, and between two rounds while there are some.
FOLLOW = 1.0
PAUSE = 0.25
#: Seconds for which an agent is looked at after an event: its audit is sealed a little later.
AFTERWARDS = 3.0
#: Seconds between two complete looks; and a complete look takes at most this part of the time.
LOOK = 30.0
_PART = 0.02
#: Seconds between two purges, and between two announcements.
PURGE = 600.0
ANNOUNCE = 2.0
#: Seconds until a failed round is tried again: doubled from the first to the last.
RETRY = (1.0, 30.0)


class Archiving:
    """The work of one archive process."""

    def __init__(self, store: Store, announcing: Store, database: Database, keep: float) -> None:
        """Copy from *store*; *announcing* has a connection of its own for announcements."""
        self._store = store
        self._announcing = announcing
        self._database = database
        self._stopping = threading.Event()
        self._copier = Copier(store, ArchiveWriter(database), keep, self._stopping)
        self._status_lock = threading.Lock()
        name = f"{socket.gethostname()}.{os.getpid()}"
        self._status = ArchiveStatus(name=name, at=store.clock.now())
        self._events = store.events([])
        self._recent: dict[str, float] = {}
        self._look_at = 0.0
        self._purge_at = 0.0
        self._upgraded = False

    def stop(self) -> None:
        """End `run` after what it is doing."""
        self._stopping.set()

    def run(self) -> None:
        """Copy until `stop`; failures are logged when they begin and end, and tried again."""
        announcer = threading.Thread(target=self._announce, name="announcer", daemon=True)
        announcer.start()
        pause = RETRY[0]
        while not self._stopping.is_set():
            try:
                self._round()
                pause = RETRY[0]
            except (StoreError, ArchiveUnavailable) as error:
                self._failed(error)
                self._stopping.wait(pause)
                pause = min(2 * pause, RETRY[1])
        announcer.join(timeout=ANNOUNCE)

    def _round(self) -> None:
        began = self._store.clock.now()
        if not self._upgraded:
            self._database.upgrade()
            self._upgraded = True
        done = self._look() if time.monotonic() >= self._look_at else self._follow()
        status = self._status
        if status.down_since is not None:
            log.warning("the archive goes on: %s", self._database.shown)
        self._report(copied_at=began, down_since=None, error=None, copied=status.copied + done)
        if time.monotonic() >= self._purge_at:
            removed = self._copier.purge()
            log.debug("removed %d records that are too old", removed)
            self._purge_at = time.monotonic() + PURGE

    def _look(self) -> int:
        """Look at everything that Redis has."""
        began = time.monotonic()
        agents = list(self._store.fleet.agents())
        # Followed first: what ends during the look is found by its events.
        self._events.follow(agents)
        self._events.wait(0)
        done = self._copier.copy_deployment()
        for agent_id in agents:
            if self._stopping.is_set():
                return done
            done += self._copier.copy(agent_id, completely=True)
        now = time.monotonic()
        self._look_at = now + max(LOOK, (now - began) / _PART)
        return done

    def _follow(self) -> int:
        """Look at the agents that have had events, and at what is new of the deployment."""
        now = time.monotonic()
        busy = {name for name, until in self._recent.items() if until > now}
        events = self._events.wait(PAUSE if busy else FOLLOW)
        if events:
            self._stopping.wait(PAUSE)  # so that one round copies what ends at almost the same time
        until = time.monotonic() + AFTERWARDS
        self._recent = {name: self._recent[name] for name in busy}
        self._recent |= dict.fromkeys({name for name, _ in events}, until)
        done = self._copier.copy_deployment()
        for agent_id in sorted(self._recent):
            ended = _ended_investigations(event for name, event in events if name == agent_id)
            done += self._copier.copy(agent_id, investigations=ended)
        return done

    def _failed(self, error: Exception) -> None:
        self._look_at = 0.0  # afterwards everything is compared again
        if self._status.error is None:
            log.error("%s; nothing is lost while Redis keeps it; trying again", error)
        since = self._status.down_since or self._store.clock.now()
        self._report(down_since=since, error=str(error))

    def _report(self, **changes: object) -> None:
        with self._status_lock:
            self._status = self._status.patched(changes)

    def _announce(self) -> None:
        """Announce the state every few seconds, even while the database hangs."""
        while True:
            at = from_ms(self._announcing.clock.seconds() * 1000)
            self._report(at=at)
            try:
                announce_archive(self._announcing.client, self._status)
            except StoreError as error:
                log.debug("the state could not be announced: %s", error)
            if self._stopping.wait(ANNOUNCE):
                return


def _ended_investigations(events: Iterable[Event]) -> list[str]:
    ended = (e for e in events if e.kind == "investigation.ended")
    return list(dict.fromkeys(str(e.data["investigation"]) for e in ended))
