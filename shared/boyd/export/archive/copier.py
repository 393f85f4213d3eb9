"""Copies ended work of one deployment from Redis into the archive.

Each kind of record has an index in Redis, ordered by time. What was copied and the place in the
index that it reaches are written in one transaction, so a killed copier goes on where it stopped. A
complete look compares the whole index with the archive: it finds records that changed later, and
those that a restored or replaced Redis has put before that place.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from boyd.errors import ArchiveUnavailable, StoreError
from boyd.export.archive import entries
from boyd.export.archive.database import Database
from boyd.export.archive.entries import ArchiveEntry
from boyd.export.archive.writer import CHUNK, ArchiveWriter
from boyd.export.work_follower import WorkFollower, process_name, subjects
from boyd.models import AuditEntry, Event
from boyd.models.loop import ArchiveStatus, InvestigationRecord
from boyd.store import DEPLOYMENT, AgentStore, Audit, Store, read_investigation, read_item
from boyd.store.ended_work import (
    WorkKind,
    WorkMark,
    announce_archive,
    read_ended_run,
    read_iteration,
)
from boyd.store.executions import read_ledger_entry
from boyd.store.hashes import Place

log = logging.getLogger("boyd.archive")

KINDS: Sequence[WorkKind] = ("iteration", "run", "approval", "execution", "investigation")
#: Kinds whose records may change after they were copied first, in ways that no index shows.
_CHANGING: Sequence[WorkKind] = ("approval", "execution")
#: Events that tell of a change of a record which may have ended before, and its kind.
_NEWS: Mapping[str, WorkKind] = {
    "investigation.ended": "investigation",
    "execution.verified": "execution",
    "approval.notified": "approval",
}
#: Records in one transaction, so that other writers and readers of the database wait little.
BATCH = 50
#: Unreadable records to report.
_UNREADABLE = 1000


class Copier:
    """Copies the work of all agents, and the audit."""

    def __init__(
        self, store: Store, writer: ArchiveWriter, keep: float, stopping: threading.Event
    ) -> None:
        """Copy from *store* to *writer* what is not older than *keep* seconds, until *stopping*."""
        self._store = store
        self._writer = writer
        self._keep_ms = keep * 1000
        self._stopping = stopping
        #: Records that cannot be read, so that each is reported once.
        self._unreadable: set[tuple[str, str, str]] = set()

    def copy(
        self, agent_id: str, *, completely: bool = False, events: Sequence[Event] = ()
    ) -> None:
        """Copy what has ended since the last time.

        *events* tell what has changed after it had ended. *completely* compares everything that
        Redis has.
        """
        agent = self._store.agent(agent_id)
        for kind in KINDS:
            self._kind(agent, kind, completely)
        for event, kind in _NEWS.items():
            if names := subjects(events, event, kind):
                self._places(agent, kind, agent.ended_work.places(kind, names))
        self._audit(agent_id, agent.audit_trail)

    def copy_deployment(self) -> None:
        """Copy the audit of the deployment."""
        self._audit(DEPLOYMENT, self._store.audit_trail)

    def purge(self) -> int:
        """Remove what is older than the archive keeps; return the number of records."""
        oldest, removed = int(self._oldest()), 0
        while not self._stopping.is_set() and (done := self._writer.purge(oldest)):
            removed += done
        if removed:
            self._writer.purge_terms(oldest)
        return removed

    def _oldest(self) -> float:
        return self._store.clock.seconds() * 1000 - self._keep_ms

    def _kind(self, agent: AgentStore, kind: WorkKind, completely: bool) -> None:
        place = self._writer.place(agent.agent_id, kind)
        since = self._oldest()
        if place is not None and not completely:
            since = max(since, float(place))
        reached = float(place or 0)
        for page in agent.ended_work.pages(kind, since):
            if self._stopping.is_set():
                return
            # After a clock was set back, the place stays: complete looks find what is before it.
            reached = max(reached, page[-1][1])
            self._places(agent, kind, page, repr(reached))
        if kind in _CHANGING:
            self._open(agent, kind)

    def _open(self, agent: AgentStore, kind: WorkKind) -> None:
        """Copy those that had not ended when they were copied."""
        names = self._writer.open_names(agent.agent_id, kind)
        places = agent.ended_work.places(kind, names)
        missing = set(names) - {member for member, _ in places}
        self._writer.close(agent.agent_id, kind, sorted(missing))
        self._places(agent, kind, places)

    def _places(
        self, agent: AgentStore, kind: WorkKind, places: Sequence[Place], reached: str = ""
    ) -> None:
        """Copy those that are new or have changed; the last transaction notes *reached*."""
        name = agent.agent_id
        marks = agent.ended_work.marks(kind, places)
        stamps = self._writer.stamps(name, kind, [mark.name for mark in marks])
        changed = [mark for mark in marks if stamps.get(mark.name) != mark.stamp]
        last = reached if reached != self._writer.place(name, kind) else ""
        while changed or last:
            some, changed = changed[:BATCH], changed[BATCH:]
            read = list(self._read(agent, kind, some))
            self._writer.write(name, kind, read, "" if changed else last)
            last = last if changed else ""

    def _read(
        self, agent: AgentStore, kind: WorkKind, marks: Sequence[WorkMark]
    ) -> Iterator[ArchiveEntry]:
        oldest = self._oldest()
        times = agent.ended_work.times(kind, marks)
        for mark, fields in agent.ended_work.fields(kind, marks):
            try:
                entry = _entry(agent, kind, mark, times[mark.member], fields)
            except (ValidationError, ValueError, KeyError, StoreError) as error:
                self._report(agent.agent_id, kind, mark.name, error)
                continue
            if entry.at >= oldest:
                yield entry

    def _report(self, agent_id: str, kind: str, name: str, error: Exception) -> None:
        """Log a record that cannot be read, for example because a later release wrote it."""
        if (agent_id, kind, name) not in self._unreadable and len(self._unreadable) < _UNREADABLE:
            self._unreadable.add((agent_id, kind, name))
            text = str(error).partition("\n")[0]
            log.warning("%s %s of agent %s cannot be read: %s", kind, name, agent_id, text)

    def _audit(self, whose: str, audit: Audit) -> None:
        oldest = self._oldest()
        for some in _batches(self._new_audit_entries(whose, audit)):
            if self._stopping.is_set():
                return
            recent = [entries.of_audit(whose, e) for e in some if e.at.timestamp() * 1000 >= oldest]
            place = f"{some[-1].seq}:{some[-1].hash}"
            self._writer.write(whose, "audit", recent, place)

    def _new_audit_entries(self, whose: str, audit: Audit) -> Iterator[AuditEntry]:
        """The sealed entries that were not copied yet."""
        number, _, digest = (self._writer.place(whose, "audit") or "0:").partition(":")
        last = int(number)
        if last and not _is_same_chain(audit, last, digest):
            last = 0  # another chain is in its place: Redis was emptied or replaced
        return audit.entries(after=last)


def _is_same_chain(audit: Audit, seq: int, digest: str) -> bool:
    """Report whether the chain is still the one whose entry *seq* has that hash."""
    first = next(audit.entries(after=seq - 1), None)
    if first is None:
        return False
    # A later entry: the cap has removed that one.
    return first.hash == digest if first.seq == seq else first.seq > seq


def _entry(
    agent: AgentStore, kind: WorkKind, mark: WorkMark, at: float, fields: Mapping[str, str]
) -> ArchiveEntry:
    name, stamp = agent.agent_id, mark.stamp
    if kind == "iteration":
        return entries.of_iteration(read_iteration(name, fields), at, stamp)
    if kind == "run":
        return entries.of_run(name, read_ended_run(fields), at, stamp)
    if kind == "approval":
        return entries.of_approval(name, read_item(fields), at, stamp)
    if kind == "execution":
        return entries.of_execution(name, read_ledger_entry(mark.name, fields), at, stamp)
    log = [line for line in agent.investigations.log(mark.name) if line.entry is not None]
    record = InvestigationRecord(investigation=read_investigation(fields), log=log)
    return entries.of_investigation(name, record, at, stamp)


def _batches(items: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    some: list[AuditEntry] = []
    for item in items:
        some.append(item)
        if len(some) == CHUNK:
            yield some
            some = []
    if some:
        yield some


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
        self._writer = ArchiveWriter(database)
        self._copier = Copier(store, self._writer, keep, self._stopping)
        self._purge_at = 0.0
        self._upgraded = False
        #: Whether it continues where it failed before it compares everything: the comparison would
        #: never end where a database keeps losing connections.
        self._catches_up = False

    @property
    def progress(self) -> int:
        """Count the new and changed records that this process has written."""
        return self._writer.written

    def run(self) -> None:
        """Copy until `stop`, and then close the database."""
        super().run()
        self._database.close()

    def _before_look(self) -> None:
        if not self._upgraded:
            self._database.upgrade()
            self._upgraded = True
        if time.monotonic() >= self._purge_at:  # first: copies may take the room that it makes
            self._purge_at = time.monotonic() + PURGE
            log.debug("removed %d records that are too old", self._copier.purge())

    def _after_round(self) -> None:
        if self._catches_up:
            self._catches_up, self._look_at = False, 0.0

    def _record_failure(self, error: Exception) -> None:
        self._upgraded = False  # afterwards it may be an empty database
        self._catches_up = True
        super()._record_failure(error)

    def _work(self, agent_id: str, events: Sequence[Event] | None) -> None:
        complete = events is None and not self._catches_up
        self._copier.copy(agent_id, completely=complete, events=events or ())

    def _on_deployment(self) -> None:
        self._copier.copy_deployment()

    def _say(self, status: ArchiveStatus) -> None:
        announce_archive(self._announcing.client, status)
