"""The iterations of one agent as one history: Redis first, then the archive.

A cursor is the number of the last iteration that was shown, or its number and the time when it
ended: numbers may begin again when Redis has lost its data, times do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from boyd.archive import entries
from boyd.archive.access import ArchiveAccess
from boyd.archive.entries import exact_ms, key_time, lowest_key
from boyd.errors import ArchiveUnavailable
from boyd.models import LoopResult
from boyd.models.archived import HistoryFilter
from boyd.models.responses import IterationList, IterationSummary
from boyd.store import AgentStore
from boyd.store.ended_work import Place, read_iteration
from boyd.store.history import summary_of

CURSOR = r"^(?:[1-9][0-9]{0,15}|[0-9]{1,16}-[0-9]{1,15})$"
#: The name of an iteration: its number, and its timeline if it is not the newest of that number.
NAME = re.compile(r"[1-9][0-9]{0,15}(?:\.[0-9a-f]{1,16})?", re.ASCII)
#: Iterations that one page reads in Redis for a filter.
SCANNED = 500
#: Milliseconds by which a clock may have been set back, so that an iteration was not copied yet.
SLACK = 2000

_ALL = HistoryFilter()


@dataclass(frozen=True)
class _Found:
    """Iterations with the time of each in milliseconds, newest first.

    `floor` is the time down to which the search has come; None: to the end.
    """

    # An agent never ends two iterations at the same time.
    iterations: list[tuple[int, IterationSummary]]
    floor: int | None = None

    @property
    def cursor(self) -> str | None:
        """The cursor that goes on from there."""
        if self.floor is None:
            return None
        at, last = self.iterations[-1] if self.iterations else (None, None)
        return f"{last.iteration if last and at == self.floor else 0}-{self.floor}"


class Past:
    """The ended iterations of one agent."""

    def __init__(self, store: AgentStore, archive: ArchiveAccess) -> None:
        self._store = store
        self._archive = archive
        self._agent = store.agent_id

    def get(self, name: str) -> LoopResult | None:
        """One iteration, by number or by number and timeline; a number means the newest of it.

        Raises:
            ArchiveUnavailable: Redis does not have it, and the archive does not answer.
        """
        number, _, timeline = name.partition(".")
        found = self._store.history.get(int(number))
        if found is not None and (not timeline or found.id == f"{self._agent}:{name}"):
            return found
        if not self._archive.exists:
            return None
        text = self._archive.ask(lambda reader: reader.iteration(self._agent, name))
        return LoopResult.from_json(text) if text else None

    def page(
        self, limit: int, cursor: str | None = None, query: HistoryFilter = _ALL
    ) -> IterationList:
        """Up to *limit* iterations that match *query*, newest first.

        A page may hold fewer, or none, and still have a next cursor.

        Raises:
            TooManyMatches: a word of the search stands for too many words.
        """
        try:
            return self._page(limit, cursor or "", query)
        except ArchiveUnavailable as error:
            return IterationList(iterations=[], missing=str(error))

    def _page(self, limit: int, cursor: str, query: HistoryFilter) -> IterationList:
        number, _, at = cursor.partition("-")
        before = int(at) if at else None
        if query.is_open and before is None:
            return self._newest(limit, int(number) if number else None)
        if before is None and number:
            before = self._ended(int(number))
            if before is None:
                return IterationList(iterations=[])
        return self._search(limit, before, query)

    def _newest(self, limit: int, number: int | None) -> IterationList:
        """Iterations from Redis and, if it has no more, from the archive."""
        page = self._store.history.outlines(limit, number)
        found = page.iterations
        if page.before is not None or not self._archive.exists:
            cursor = str(page.before) if page.before else None
            return IterationList(iterations=found, next_cursor=cursor)
        before = exact_ms(found[-1].ended_at) if found else None
        if number and not found:
            before = self._ended(number)
            if before is None:
                return IterationList(iterations=[])
        room = limit - len(found)
        try:
            older = self._archived(max(1, room), before, _ALL)
        except ArchiveUnavailable as error:
            return IterationList(iterations=found, missing=str(error))
        if room == 0:
            cursor = str(found[-1].iteration) if older.iterations else None
            return IterationList(iterations=found, next_cursor=cursor)
        rest = [one for _, one in older.iterations]
        return IterationList(iterations=[*found, *rest], next_cursor=older.cursor)

    def _search(self, limit: int, before: int | None, query: HistoryFilter) -> IterationList:
        """Matching iterations: those that were not copied yet, and those in the archive."""
        newest, missing = None, None
        older = _Found([])
        if self._archive.exists:
            try:
                newest = self._archive.ask(lambda reader: reader.newest(self._agent, "iteration"))
                older = self._archived(limit, before, query)
            except ArchiveUnavailable as error:
                newest, missing = None, str(error)
        recent = self._uncopied(newest, before, query)
        floor = max((one.floor for one in (older, recent) if one.floor is not None), default=None)
        rows = dict((*older.iterations, *recent.iterations))
        times = sorted((at for at in rows if floor is None or at >= floor), reverse=True)
        if len(times) > limit:
            times = times[:limit]
            floor = times[-1]
        shown = _Found([(at, rows[at]) for at in times], floor)
        return IterationList(
            iterations=[one for _, one in shown.iterations],
            next_cursor=shown.cursor,
            missing=missing,
        )

    def _uncopied(self, newest: int | None, before: int | None, query: HistoryFilter) -> _Found:
        """Matching iterations in Redis that are not in the archive yet."""
        ended = self._store.ended
        since = float("-inf") if newest is None else newest - SLACK
        places = [place for page in ended.pages("iteration", since) for place in page]
        places = [p for p in reversed(places) if before is None or p[1] < before]
        found = self._fitting(places[:SCANNED], query)
        floor = int(places[SCANNED - 1][1]) if len(places) > SCANNED else None
        return _Found([(exact_ms(one.ended_at), summary_of(one)) for one in found], floor)

    def _fitting(self, places: Sequence[Place], query: HistoryFilter) -> list[LoopResult]:
        ended = self._store.ended
        read = ended.fields("iteration", ended.marks("iteration", places))
        results = (read_iteration(self._agent, fields) for _, fields in read)
        return [result for result in results if entries.fits(query, result)]

    def _archived(self, limit: int, before: int | None, query: HistoryFilter) -> _Found:
        """Up to *limit* matching iterations in the archive that ended before a time."""
        until = None if query.until is None else exact_ms(query.until)
        ends = [time for time in (before, until) if time is not None]
        page = self._archive.ask(
            lambda reader: reader.page(
                self._agent,
                "iteration",
                limit,
                required=entries.wanted(query),
                before=lowest_key(min(ends)) if ends else None,
                since=None if query.since is None else exact_ms(query.since),
            )
        )
        found = [(hit.at, IterationSummary.from_json(hit.outline)) for hit in page.hits]
        floor = None if page.before is None else key_time(page.before)
        return _Found(found, floor)

    def _ended(self, number: int) -> int | None:
        """The time below which the iterations before a number ended; None: there are none.

        A number that has never been is above all others.
        """
        there = self._store.history.get(number)
        if there is not None:
            return exact_ms(there.ended_at)
        if not self._archive.exists:
            return _LATEST if self._is_ahead(number) else None
        hit = self._archive.ask(lambda reader: reader.numbered(self._agent, number))
        if hit is not None:
            return hit.at
        return _LATEST if self._is_ahead(number) else None

    def _is_ahead(self, number: int) -> bool:
        outlines = self._store.history.outlines(1).iterations
        return not outlines or number > outlines[0].iteration


#: Later than any iteration, in milliseconds.
_LATEST = 2**42
