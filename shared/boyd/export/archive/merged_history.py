"""The iterations of one agent as one history: Redis first, then the archive.

A cursor is the number of the last iteration that was shown, or its number and the key that it has
in the archive: numbers may begin again when Redis has lost its data, keys do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boyd.errors import ArchiveUnavailable
from boyd.export.archive import entries
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.entries import HIGHEST, exact_ms, lowest_beside, lowest_key
from boyd.models import LoopResult
from boyd.models.loop import HistoryFilter
from boyd.models.responses import IterationList, IterationSummary
from boyd.store import AgentStore
from boyd.store.ended_work import read_iteration
from boyd.store.hashes import Place
from boyd.store.iteration_record import summary_of

CURSOR = r"^(?:[1-9][0-9]{0,15}|[0-9]{1,16}-[0-9]{16,19})$"
#: The name of an iteration: its number, and its timeline if it is not the newest of that number.
NAME = re.compile(r"[1-9][0-9]{0,15}(?:\.[0-9a-f]{1,16})?", re.ASCII)
#: Iterations that one page reads in Redis for a filter.
SCANNED = 500
#: Milliseconds by which a clock may have been set back, so that an iteration was not copied yet.
SLACK = 2000

_ALL = HistoryFilter()


@dataclass(frozen=True)
class _Found:
    """Iterations with the lowest key that each may have in the archive, newest first.

    `floor` is the lowest key that was searched, or None if the search came to the end.
    """

    iterations: list[tuple[int, IterationSummary]]
    floor: int | None = None

    @property
    def cursor(self) -> str | None:
        """The cursor that goes on from there."""
        if self.floor is None:
            return None
        key, last = self.iterations[-1] if self.iterations else (None, None)
        return f"{last.iteration if last and key == self.floor else 0}-{self.floor}"


class MergedHistory:
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
        result = self._store.history.get(int(number))
        if result is not None and (not timeline or result.id == f"{self._agent}:{name}"):
            return result
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
        number, _, key = cursor.partition("-")
        before = min(int(key), HIGHEST) if key else None
        if query.is_open and before is None:
            return self._newest(limit, int(number) if number else None)
        if before is None and number:
            before = self._key(int(number))
            if before is None:
                return IterationList(iterations=[])
        return self._search(limit, before, query)

    def _newest(self, limit: int, number: int | None) -> IterationList:
        """Iterations from Redis and, if it has no more, from the archive."""
        page = self._store.history.summaries(limit, number)
        iterations = page.iterations
        if page.before is not None or not self._archive.exists:
            cursor = str(page.before) if page.before else None
            return IterationList(iterations=iterations, next_cursor=cursor)
        last = iterations[-1].iteration if iterations else number
        room = limit - len(iterations)
        try:
            before = None if last is None else self._key(last)
            if last is not None and before is None:
                return IterationList(iterations=iterations)
            older = self._search_archive(max(1, room), before, _ALL)
        except ArchiveUnavailable as error:
            return IterationList(iterations=iterations, missing=str(error))
        if room == 0:
            cursor = str(iterations[-1].iteration) if older.iterations else None
            return IterationList(iterations=iterations, next_cursor=cursor)
        rest = [summary for _, summary in older.iterations]
        return IterationList(iterations=[*iterations, *rest], next_cursor=older.cursor)

    def _search(self, limit: int, before: int | None, query: HistoryFilter) -> IterationList:
        """Matching iterations: those that were not copied yet, and those in the archive."""
        newest, missing = None, None
        older = _Found([])
        if self._archive.exists:
            try:
                newest = self._archive.ask(lambda reader: reader.newest(self._agent, "iteration"))
                older = self._search_archive(limit, before, query)
            except ArchiveUnavailable as error:
                newest, missing = None, str(error)
        recent = self._search_redis(newest, before, query)
        floor = max(
            (item.floor for item in (older, recent) if item.floor is not None), default=None
        )
        both = {item.id: (key, item) for key, item in (*older.iterations, *recent.iterations)}
        rows = sorted(
            (row for row in both.values() if floor is None or row[0] >= floor),
            key=lambda row: -row[0],
        )
        if len(rows) > limit:
            rows = rows[:limit]
            floor = rows[-1][0]
        result = _Found(rows, floor)
        return IterationList(
            iterations=[item for _, item in result.iterations],
            next_cursor=result.cursor,
            missing=missing,
        )

    def _search_redis(self, newest: int | None, before: int | None, query: HistoryFilter) -> _Found:
        """Matching iterations in Redis that are not in the archive yet."""
        work = self._store.ended_work
        since = float("-inf") if newest is None else newest - SLACK
        places = [place for page in work.pages("iteration", since) for place in page]
        places = [p for p in reversed(places) if before is None or lowest_key(p[1]) < before]
        rows = list(self._fitting(places[:SCANNED], query))
        floor = lowest_key(places[SCANNED - 1][1]) if len(places) > SCANNED else None
        return _Found(rows, floor)

    def _fitting(
        self, places: Sequence[Place], query: HistoryFilter
    ) -> Iterator[tuple[int, IterationSummary]]:
        work = self._store.ended_work
        for mark, fields in work.fields("iteration", work.marks("iteration", places)):
            result = read_iteration(self._agent, fields)
            if entries.fits(query, result):
                yield lowest_key(mark.at), summary_of(result)

    def _search_archive(self, limit: int, before: int | None, query: HistoryFilter) -> _Found:
        """Up to *limit* matching iterations in the archive below a key."""
        until = None if query.until is None else lowest_key(exact_ms(query.until))
        ends = [key for key in (before, until) if key is not None]
        page = self._archive.ask(
            lambda reader: reader.page(
                self._agent,
                "iteration",
                limit,
                required=entries.query_terms(query),
                before=min(ends) if ends else None,
                since=None if query.since is None else exact_ms(query.since),
            )
        )
        rows = [
            (lowest_beside(hit.key), IterationSummary.from_json(hit.outline)) for hit in page.hits
        ]
        floor = None if page.before is None else lowest_beside(page.before)
        return _Found(rows, floor)

    def _key(self, number: int) -> int | None:
        """The key of an iteration, by its number; None if no such iteration ever ended.

        A number that has never been is above all others.
        """
        places = self._store.ended_work.places("iteration", [str(number)])
        if places:
            return lowest_key(places[0][1])
        if self._archive.exists:
            hit = self._archive.ask(lambda reader: reader.by_number(self._agent, number))
            if hit is not None:
                return lowest_beside(hit.key)
        return HIGHEST if self._is_ahead(number) else None

    def _is_ahead(self, number: int) -> bool:
        summaries = self._store.history.summaries(1).iterations
        return not summaries or number > summaries[0].iteration
