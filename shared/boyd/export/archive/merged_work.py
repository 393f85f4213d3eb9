"""Runs, approvals, executions, investigations and audit, merged from Redis and the archive.

Redis does not have exactly the newest: a run that waits is kept while later ones that have ended
are forgotten. So each page is merged from what both have, in one order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from boyd.errors import ArchiveUnavailable
from boyd.export.archive import entries
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.entries import (
    HIGHEST,
    SLOT,
    Kind,
    Term,
    exact_ms,
    lowest_beside,
    lowest_key,
)
from boyd.models import (
    ApprovalItem,
    ApprovalQueue,
    AuditEntry,
    AuditFilter,
    AuditPage,
    ExecutionEntry,
    ExecutionPage,
    Model,
    Run,
    RunPage,
)
from boyd.models.investigation import Investigation, InvestigationPage
from boyd.models.loop import InvestigationRecord
from boyd.store import DEPLOYMENT, AgentStore, Audit
from boyd.store.audit_trail import ANY_ENTRY
from boyd.store.ended_work import WorkKind
from boyd.store.executions import ANY_EXECUTION, ExecutionFilter
from boyd.store.hashes import Listing, Position, dump_cursor, load_cursor

if TYPE_CHECKING:
    from boyd.export.archive.search import ArchivePage, ArchiveReader

_M = TypeVar("_M", bound=Model)

#: A cursor: places in Redis and, behind a dot, a key of the archive.
_CURSOR = re.compile(r"([^.]*)(?:\.([0-9]{1,19}))?", re.ASCII)
#: A cursor of the audit trail within the archive.
_ARCHIVED = re.compile(r"archived-([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True)
class _Bookmark:
    """The end of a page: a place in Redis, and a key of the archive, if it has come to any."""

    place: Position
    below: int | None

    def cursor(self, *others: Position) -> str:
        """The bookmark as a text for clients, behind the places of *others*."""
        text = dump_cursor(*others, self.place)
        return text if self.below is None else f"{text}.{self.below}"


def _load_bookmark(cursor: str | None, others: int = 0) -> tuple[list[Position], _Bookmark]:
    """The places of so many *others*, and the bookmark.

    Raises:
        BadCursor: *cursor* was not given out by an earlier page.
    """
    parts = _CURSOR.fullmatch(cursor or "")
    *places, place = load_cursor(parts[1] if parts else cursor, others + 1)
    below = min(int(parts[2]), HIGHEST) if parts and parts[2] else None
    return places, _Bookmark(place, below)


@dataclass(frozen=True)
class _Selection:
    """The records of a page: up to *limit* with these *terms*, from a bookmark on, in a period."""

    kind: WorkKind
    begin: _Bookmark
    limit: int
    terms: Sequence[Term] = ()
    since: datetime | None = None
    until: datetime | None = None

    @property
    def before(self) -> int:
        """The upper bound for keys of the archive."""
        before = HIGHEST if self.begin.below is None else self.begin.below
        return before if self.until is None else min(before, lowest_key(exact_ms(self.until)))


@dataclass(frozen=True)
class _Row(Generic[_M]):
    """A record with its place in the order of all, and where it is: in Redis or in the archive."""

    record: _M
    order: int
    place: Position = None
    key: int | None = None


@dataclass(frozen=True)
class _Older(Generic[_M]):
    """Records that only the archive has; the search goes on `before` a key, None at its end."""

    rows: Sequence[_Row[_M]] = ()
    before: int | None = None


@dataclass(frozen=True)
class _Page(Generic[_M]):
    """A page of a list; if there is `more`, it begins `after` a bookmark."""

    records: list[_M]
    after: _Bookmark
    more: bool
    missing: str | None = None

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page."""
        return self.after.cursor() if self.more else None


def _merge(here: Listing[_M], older: _Older[_M], begin: _Bookmark, limit: int) -> _Page[_M]:
    """The newest *limit* records of both; where either goes on, nothing below is shown yet."""
    rows = [_Row(record, lowest_key(place[1]), place) for place, record in here.rows]
    rows = sorted([*rows, *older.rows], key=lambda row: -row.order)
    ends = [lowest_key(here.next[1])] if here.next else []
    ends += [lowest_beside(older.before)] if older.before is not None else []
    cut = max(ends, default=0)
    visible = [row for row in rows if row.order >= cut][:limit]
    if len(visible) == limit:
        cut = visible[-1].order
    return _Page(
        [row.record for row in visible],
        _Bookmark(_place_after(here, visible, begin), _key_after(older, visible, begin, cut)),
        more=bool(ends) or len(visible) < len(rows),
    )


def _place_after(here: Listing[_M], visible: Sequence[_Row[_M]], begin: _Bookmark) -> Position:
    places = [row.place for row in visible if row.place is not None]
    if len(places) == len(here.rows) and here.next is not None:
        return here.next
    return places[-1] if places else begin.place


def _key_after(
    older: _Older[_M], visible: Sequence[_Row[_M]], begin: _Bookmark, cut: int
) -> int | None:
    """The upper bound for keys of the next page, at *cut*: Redis may forget records meanwhile."""
    keys = [row.key for row in visible if row.key is not None and row.order == cut]
    if keys:
        return keys[-1]
    if older.before is not None and lowest_beside(older.before) == cut:
        return older.before
    return min(cut + SLOT if cut else 0, HIGHEST if begin.below is None else begin.below)


class MergedWork:
    """The work of one agent besides iterations, in Redis and archive."""

    def __init__(self, store: AgentStore, archive: ArchiveAccess) -> None:
        self._store = store
        self._archive = archive

    def run(self, id: str) -> Run | None:
        """One run."""
        return self._store.runs.get(id) or self._read("run", id, Run)

    def runs(self, limit: int, cursor: str | None = None, **filters: Any) -> RunPage:
        """Runs that match the filters of `Runs.page`, newest first."""
        _, begin = _load_bookmark(cursor)
        here = self._store.runs.listing(limit, begin.place, **filters)
        terms = entries.terms_for(**filters)
        page = self._page(_Selection("run", begin, limit, terms), Run.from_json, here)
        return RunPage(
            runs=page.records,
            total=len(page.records),
            next_cursor=page.next_cursor,
            missing=page.missing,
        )

    def approval(self, id: str) -> ApprovalItem | None:
        """One approval."""
        return self._store.find_approval(id) or self._read("approval", id, ApprovalItem)

    def approvals(
        self, limit: int, cursor: str | None = None, history: bool = True
    ) -> ApprovalQueue:
        """Pending approvals, and resolved ones, newest first."""
        if not history:
            return self._store.approvals.page(limit, cursor, history)
        [waiting], begin = _load_bookmark(cursor, 1)
        here = self._store.approvals.listing(limit, waiting, begin.place)
        page = self._page(
            _Selection("approval", begin, limit), ApprovalItem.from_json, here.history
        )
        more = here.waits_for_more or page.more
        return ApprovalQueue(
            pending=here.pending,
            history=[*here.overdue, *page.records],
            next_cursor=page.after.cursor(here.waiting) if more else None,
            missing=page.missing,
        )

    def approvals_on(
        self, target: str, since: datetime, limit: int
    ) -> tuple[list[ApprovalItem], str | None]:
        """Approvals on *target* that were resolved since a time or wait, up to *limit* of each.

        With the reason why archived ones are missing, if they are.
        """
        here = self._store.approvals.some(self._store.ended_work.approvals_on(target)[:limit])
        terms = entries.terms_for(target=target)
        selection = _Selection("approval", _Bookmark(None, None), limit, terms, since)
        page = self._page(selection, ApprovalItem.from_json, Listing([]))
        return [*here, *page.records], page.missing

    def execution(self, id: str) -> ExecutionEntry | None:
        """One execution; `loop:12` names that of iteration 12."""
        entry = self._store.executions.get(id)
        if entry is not None:
            return entry
        archived = self._read("execution", self._store.executions.whole(id), ExecutionEntry)
        return _with_final_state(archived) if archived else None

    def executions(
        self,
        limit: int,
        cursor: str | None = None,
        filter: ExecutionFilter = ANY_EXECUTION,
    ) -> ExecutionPage:
        """Executions that match *filter*, without results."""

        def read(text: str) -> ExecutionEntry:
            return _with_final_state(ExecutionEntry.from_json(text))

        _, begin = _load_bookmark(cursor)
        here = self._store.executions.listing(limit, begin.place, filter)
        terms = entries.terms_for(**filter.fields)
        selection = _Selection("execution", begin, limit, terms, filter.since, filter.until)
        page = self._page(selection, read, here)
        return ExecutionPage(
            executions=page.records, next_cursor=page.next_cursor, missing=page.missing
        )

    def investigation(self, id: str) -> InvestigationRecord | None:
        """One archived investigation with its log."""
        return self._read("investigation", id, InvestigationRecord)

    def investigations(self, limit: int, cursor: str | None = None) -> InvestigationPage:
        """Investigations, newest first."""
        _, begin = _load_bookmark(cursor)
        here = self._store.investigations.listing(limit, begin.place)
        page = self._page(_Selection("investigation", begin, limit), Investigation.from_json, here)
        return InvestigationPage(
            investigations=page.records,
            total=len(page.records),
            next_cursor=page.next_cursor,
            missing=page.missing,
        )

    def _page(
        self, selection: _Selection, read: Callable[[str], _M], here: Listing[_M]
    ) -> _Page[_M]:
        """A page of what *here* lists and the archive has besides."""
        begin, limit = selection.begin, selection.limit
        if not self._archive.exists:
            return _merge(here, _Older(), begin, limit)
        times: list[float] = [] if selection.since is None else [exact_ms(selection.since)]
        times += [here.next[1]] if here.next else []
        try:
            page = self._archive.ask(
                lambda reader: reader.page(
                    self._store.agent_id,
                    selection.kind,
                    limit,
                    required=selection.terms,
                    before=selection.before,
                    since=max(times, default=None),
                )
            )
            older = self._only_archived(selection.kind, read, page)
        except ArchiveUnavailable as error:
            after = _Bookmark(here.next or here.last or begin.place, begin.below)
            return _Page(here.records, after, here.next is not None, str(error))
        return _merge(here, older, begin, limit)

    def _only_archived(
        self, kind: WorkKind, read: Callable[[str], _M], page: ArchivePage
    ) -> _Older[_M]:
        """Those of a page of the archive that Redis does not have."""
        there = self._store.ended_work.present(kind, [hit.name for hit in page.hits])
        hits = [hit for hit in page.hits if hit.name not in there]
        texts: Mapping[int, str] = {hit.key: hit.outline for hit in hits if hit.outline}
        whole = [hit.key for hit in hits if not hit.outline]
        if whole:
            texts = {**texts, **self._archive.ask(lambda reader: reader.bodies(whole))}
        rows = [
            _Row(read(texts[hit.key]), lowest_beside(hit.key), key=hit.key)
            for hit in hits
            if hit.key in texts
        ]
        return _Older(rows, page.before)

    def _read(self, kind: Kind, name: str, model: type[_M]) -> _M | None:
        if not self._archive.exists:
            return None
        agent = self._store.agent_id
        text = self._archive.ask(lambda reader: reader.body(agent, kind, name))
        return model.from_json(text) if text else None


class MergedAudit:
    """The audit trail of an agent, or of the deployment, with what only the archive has of it."""

    def __init__(self, audit: Audit, agent_id: str | None, archive: ArchiveAccess) -> None:
        """Read *audit*, the trail of an agent, or without one of the deployment."""
        self._audit = audit
        self._chain = DEPLOYMENT if agent_id is None else agent_id
        self._archive = archive

    def page(
        self,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        filters: AuditFilter = ANY_ENTRY,
    ) -> AuditPage:
        """Entries from *since* until before *until*, newest first.

        A chain has exactly the newest: the archive goes on where it ends.
        """
        within = _ARCHIVED.fullmatch(cursor or "")
        page = AuditPage(entries=[])
        if not within:
            page = self._audit.page(limit, cursor, since, until, filters)
        if page.next_cursor is not None or not self._archive.exists:
            return page
        ends = HIGHEST if until is None else lowest_key(exact_ms(until))
        room = limit - len(page.entries)

        def ask(reader: ArchiveReader) -> tuple[ArchivePage, Mapping[int, str]]:
            begins = int(within[1]) if within else self._end_of_chain(reader)
            hits = reader.page(
                self._chain,
                "audit",
                room,
                required=entries.terms_for(**filters.model_dump()),
                before=min(begins, ends),
                since=None if since is None else exact_ms(since),
            )
            return hits, reader.bodies([hit.key for hit in hits.hits])

        try:
            if room <= 0:
                return page.patched(
                    {"next_cursor": f"archived-{self._archive.ask(self._end_of_chain)}"}
                )
            hits, texts = self._archive.ask(ask)
        except ArchiveUnavailable as error:
            return page.patched({"missing": str(error)})
        older = [AuditEntry.from_json(texts[hit.key]) for hit in hits.hits if hit.key in texts]
        more = None if hits.before is None else f"archived-{hits.before}"
        return page.patched({"entries": [*page.entries, *older], "next_cursor": more})

    def _end_of_chain(self, reader: ArchiveReader) -> int:
        """The key of the oldest entry in Redis: the archive has all older ones."""
        oldest = next(self._audit.entries(), None)
        if oldest is None:
            return HIGHEST
        key = reader.key(self._chain, "audit", entries.audit_name(oldest))
        return entries.audit_key(exact_ms(oldest.at), oldest.seq) if key is None else key


def _with_final_state(entry: ExecutionEntry) -> ExecutionEntry:
    """The outcome of an execution is unknown if Redis lost it while it ran."""
    return entry.patched({"state": "unknown"}) if entry.state == "running" else entry
