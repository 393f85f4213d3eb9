"""`boyd archive`: a process that copies until it is told to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from boyd.errors import ArchiveUnavailable, StoreError
from boyd.export.archive.copier import Copier
from boyd.export.archive.database import Database
from boyd.export.archive.writer import ArchiveWriter
from boyd.export.work_follower import WorkFollower, process_name
from boyd.models.archived import ArchiveStatus
from boyd.store import Store
from boyd.store.archive_status import announce_archive

log = logging.getLogger("boyd.archive")

#: Seconds between two purges.
PURGE = 600.0


class Archiving(WorkFollower[ArchiveStatus]):
    """The work of one archive process."""

    failures = (StoreError, ArchiveUnavailable)

    def __init__(self, store: Store, announcing: Store, database: Database, keep: float) -> None:
        """Copy from *store*; *announcing* has a connection of its own for announcements."""
        status = ArchiveStatus(name=process_name(), at=store.clock.now())
        super().__init__(store, announcing, status, log)
        self._database = database
        self._copier = Copier(store, ArchiveWriter(database), keep, self._stopping)
        self._purge_at = 0.0
        self._upgraded = False

    def _before_look(self) -> None:
        if not self._upgraded:
            self._database.upgrade()
            self._upgraded = True

    def _work(self, agent_id: str, investigations: Sequence[str] | None) -> int:
        complete = investigations is None
        return self._copier.copy(agent_id, completely=complete, investigations=investigations or ())

    def _on_deployment(self) -> int:
        return self._copier.copy_deployment()

    def _after_round(self) -> None:
        if time.monotonic() >= self._purge_at:
            removed = self._copier.purge()
            log.debug("removed %d records that are too old", removed)
            self._purge_at = time.monotonic() + PURGE

    def _say(self, status: ArchiveStatus) -> None:
        announce_archive(self._announcing.client, status)
