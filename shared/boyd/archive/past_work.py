"""Runs, approvals, executions, investigations and audit of the past: Redis first, then the archive.

What Redis keeps is listed first. What only the archive has follows, newest first; the cursor says
that the list has come to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from boyd.archive import entries
from boyd.archive.access import ArchiveAccess
from boyd.archive.entries import HIGHEST, Kind, Term, exact_ms, lowest_key
from boyd.errors import ArchiveUnavailable
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
from boyd.models.archived import InvestigationRecord
from boyd.models.investigation import Investigation, InvestigationPage
from boyd.store import DEPLOYMENT, AgentStore, Audit
from boyd.store.ended_work import WorkKind

_M = TypeVar("_M", bound=Model)
_P = TypeVar("_P", RunPage, ApprovalQueue, ExecutionPage, InvestigationPage, AuditPage)

#: A cursor within the archive.
_ARCHIVED = re.compile(r"archived-([0-9]{1,19})", re.ASCII)


class PastWork:
    """The past work of one agent."""

    def __init__(self, store: AgentStore, archive: ArchiveAccess) -> None:
        self._store = store
        self._archive = archive

    def run(self, id: str) -> Run | None:
        """One run."""
        return self._store.runs.get(id) or self._read("run", id, Run)

    def runs(self, limit: int, cursor: str | None = None, **filters: Any) -> RunPage:
        """Runs that match the filters of `Runs.page`, newest first."""

        def older(before: int, room: int, page: RunPage) -> RunPage:
            found, more = self._archived("run", Run, room, before, entries.needed(**filters))
            runs = [*page.runs, *found]
            return page.patched({"runs": runs, "total": len(runs), "next_cursor": more})

        return self._continued(
            cursor,
            limit,
            lambda: self._store.runs.page(limit, cursor, **filters),
            RunPage(runs=[], total=0),
            lambda page: len(page.runs),
            older,
        )

    def approval(self, id: str) -> ApprovalItem | None:
        """One approval."""
        return self._store.approvals.get(id) or self._read("approval", id, ApprovalItem)

    def approvals(
        self, limit: int, cursor: str | None = None, history: bool = True
    ) -> ApprovalQueue:
        """Pending approvals, and resolved ones, newest first."""
        if not history:
            return self._store.approvals.page(limit, cursor, history)

        def older(before: int, room: int, page: ApprovalQueue) -> ApprovalQueue:
            found, more = self._archived("approval", ApprovalItem, room, before)
            return page.patched({"history": [*page.history, *found], "next_cursor": more})

        return self._continued(
            cursor,
            limit,
            lambda: self._store.approvals.page(limit, cursor, history),
            ApprovalQueue(pending=[], history=[]),
            lambda page: len(page.history),
            older,
            "approval",
        )

    def execution(self, id: str) -> ExecutionEntry | None:
        """One execution; `loop:12` names that of iteration 12."""
        found = self._store.ledger.get(id)
        if found is not None:
            return found
        archived = self._read("execution", self._store.ledger.whole(id), ExecutionEntry)
        return _settled(archived) if archived else None

    def executions(
        self,
        limit: int,
        cursor: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        **filters: Any,
    ) -> ExecutionPage:
        """Executions that match the filters of `ActionLedger.page`, without results."""
        terms = entries.needed(**filters)

        def older(before: int, room: int, page: ExecutionPage) -> ExecutionPage:
            found, more = self._archived(
                "execution", ExecutionEntry, room, before, terms, since, until
            )
            rows = [*page.executions, *map(_settled, found)]
            return page.patched({"executions": rows, "next_cursor": more})

        return self._continued(
            cursor,
            limit,
            lambda: self._store.ledger.page(limit, cursor, since=since, until=until, **filters),
            ExecutionPage(executions=[]),
            lambda page: len(page.executions),
            older,
            "execution",
        )

    def investigation(self, id: str) -> InvestigationRecord | None:
        """One archived investigation with its log."""
        return self._read("investigation", id, InvestigationRecord)

    def investigations(self, limit: int, cursor: str | None = None) -> InvestigationPage:
        """Investigations, newest first."""

        def older(before: int, room: int, page: InvestigationPage) -> InvestigationPage:
            found, more = self._archived("investigation", Investigation, room, before)
            every = [*page.investigations, *found]
            return page.patched({"investigations": every, "total": len(every), "next_cursor": more})

        return self._continued(
            cursor,
            limit,
            lambda: self._store.investigations.page(limit, cursor),
            InvestigationPage(investigations=[], total=0),
            lambda page: len(page.investigations),
            older,
        )

    def _continued(
        self,
        cursor: str | None,
        limit: int,
        first: Callable[[], _P],
        empty: _P,
        size: Callable[[_P], int],
        older: Callable[[int, int, _P], _P],
        ordered: WorkKind | None = None,
    ) -> _P:
        """A page; with *ordered*, Redis has exactly the newest records of that kind."""

        def start() -> int | None:
            oldest = self._store.ended.oldest(ordered) if ordered else None
            return None if oldest is None else lowest_key(int(oldest) + 1)

        return continued(self._archive, cursor, limit, first, empty, size, older, start)

    def _read(self, kind: Kind, name: str, model: type[_M]) -> _M | None:
        if not self._archive.exists:
            return None
        agent = self._store.agent_id
        text = self._archive.ask(lambda reader: reader.body(agent, kind, name))
        return model.from_json(text) if text else None

    def _archived(
        self,
        kind: WorkKind,
        model: type[_M],
        limit: int,
        before: int,
        terms: Sequence[Term] = (),
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> tuple[list[_M], str | None]:
        """Up to *limit* archived records that Redis does not have, and the cursor after them."""
        agent = self._store.agent_id
        if until is not None:
            before = min(before, lowest_key(exact_ms(until)))
        oldest = None if since is None else exact_ms(since)

        def ask(reader: Any) -> tuple[Any, Mapping[int, str]]:
            page = reader.page(agent, kind, limit, required=terms, before=before, since=oldest)
            shown = {hit.key: hit.outline for hit in page.hits if hit.outline}
            whole = [hit.key for hit in page.hits if not hit.outline]
            return page, shown | (reader.bodies(whole) if whole else {})

        page, texts = self._archive.ask(ask)
        there = self._store.ended.present(kind, [hit.name for hit in page.hits])
        found = [
            model.from_json(texts[hit.key])
            for hit in page.hits
            if hit.name not in there and hit.key in texts
        ]
        return found, None if page.before is None else f"archived-{page.before}"


def continued(
    archive: ArchiveAccess,
    cursor: str | None,
    limit: int,
    first: Callable[[], _P],
    empty: _P,
    size: Callable[[_P], int],
    older: Callable[[int, int, _P], _P],
    start: Callable[[], int | None],
) -> _P:
    """A page of a list that goes on in the archive.

    Args:
        archive: the archive.
        cursor: where the page begins.
        limit: the most records of a page.
        first: reads the page from Redis.
        empty: a page without records.
        size: the number of records of a page.
        older: adds records from the archive, below a key and up to a number, to a page.
        start: the key below which the archive goes on; None: from its newest record.
    """
    within = _ARCHIVED.fullmatch(cursor or "")
    page = empty if within else first()
    if page.next_cursor is not None or not archive.exists:
        return page
    number = size(page)
    begins = min(int(within[1]), HIGHEST) if within else start() or HIGHEST
    if number >= limit:
        return page.patched({"next_cursor": f"archived-{begins}"})
    try:
        return older(begins, limit - number, page)
    except ArchiveUnavailable as error:
        return page.patched({"missing": str(error)})


def audit_page(
    audit: Audit,
    agent_id: str | None,
    archive: ArchiveAccess,
    limit: int,
    cursor: str | None,
    since: datetime | None,
    until: datetime | None,
    wanted: AuditFilter,
) -> AuditPage:
    """Audit entries of an agent, or of the deployment without one, newest first."""
    whose = DEPLOYMENT if agent_id is None else agent_id
    terms = entries.needed(**wanted.model_dump())

    def older(before: int, room: int, page: AuditPage) -> AuditPage:
        ends = before if until is None else min(before, lowest_key(exact_ms(until)))
        oldest = None if since is None else exact_ms(since)

        def ask(reader: Any) -> tuple[Any, Mapping[int, str]]:
            hits = reader.page(whose, "audit", room, required=terms, before=ends, since=oldest)
            return hits, reader.bodies([hit.key for hit in hits.hits])

        hits, texts = archive.ask(ask)
        found = [AuditEntry.from_json(texts[hit.key]) for hit in hits.hits if hit.key in texts]
        more = None if hits.before is None else f"archived-{hits.before}"
        return page.patched({"entries": [*page.entries, *found], "next_cursor": more})

    def start() -> int | None:
        oldest = next(audit.entries(), None)
        return None if oldest is None else entries.audit_key(oldest)

    return continued(
        archive,
        cursor,
        limit,
        lambda: audit.page(limit, cursor, since, until, wanted),
        AuditPage(entries=[]),
        lambda page: len(page.entries),
        older,
        start,
    )


def _settled(entry: ExecutionEntry) -> ExecutionEntry:
    """An archived execution: one that Redis has lost while it ran never told its outcome."""
    return entry.patched({"state": "unknown"}) if entry.state == "running" else entry
