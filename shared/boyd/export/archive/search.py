"""Reads the archive: one record, or a page of those with certain terms, newest first.

A page costs the same however many records there are. It reads the shortest list of keys, of the
term that the fewest records have, and keeps those keys that the other terms have, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    exists,
    func,
    select,
    union,
)

from boyd.errors import TooManyMatches
from boyd.export.archive.database import Database, bodies, postings, records, term_text, terms
from boyd.export.archive.entries import Kind, Term, lowest_key

#: The most keys that one page looks at.
SCANNED = 5000
#: The keys of a list that are counted to find the shortest one.
_COUNTED = 1000
#: The most words that a beginning may stand for.
WORDS = 200
#: The most lists of keys that are merged; a beginning of more words only filters another list.
_MERGED = 16


@dataclass(frozen=True)
class Hit:
    """A record that was found: its name, key, time in milliseconds, and its row in lists."""

    name: str
    key: int
    at: int
    outline: str


@dataclass(frozen=True)
class ArchivePage:
    """Records, newest first; `before` continues the search, None at its end.

    A page may hold fewer records than asked for, or none, and still have `before`.
    """

    hits: list[Hit]
    before: int | None = None


class ArchiveReader:
    """Reads the archive."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def body(self, agent: str, kind: Kind, name: str) -> str | None:
        """A record as JSON."""
        query = (
            select(bodies.c.body)
            .join(records, records.c.key == bodies.c.key)
            .where(_belongs_to(agent, kind), _has_name(name))
        )
        with self._database.begin() as connection:
            text: str | None = connection.scalar(query)
        return text

    def key(self, agent: str, kind: Kind, name: str) -> int | None:
        """The key of a record."""
        query = select(records.c.key).where(_belongs_to(agent, kind), _has_name(name))
        with self._database.begin() as connection:
            key: int | None = connection.scalar(query)
        return key

    def bodies(self, keys: Sequence[int]) -> dict[int, str]:
        """Records as JSON, by key."""
        query = select(bodies.c.key, bodies.c.body).where(bodies.c.key.in_(keys))
        with self._database.begin() as connection:
            return {row.key: row.body for row in connection.execute(query)}

    def iteration(self, agent: str, name: str) -> str | None:
        """An iteration as JSON, by its name, or the newest one by its number."""
        hit = None if "." in name else self.by_number(agent, int(name))
        return self.body(agent, "iteration", hit.name if hit else name)

    def by_number(self, agent: str, number: int) -> Hit | None:
        """The newest iteration of that number."""
        # `12`, or `12.` and a timeline; a slash sorts just after a dot. PostgreSQL takes no
        # collation within BETWEEN.
        name = records.c.name
        names = (name == f"{number}") | ((name >= f"{number}.") & (name < f"{number}/"))
        query = _hits().where(_belongs_to(agent, "iteration"), names).order_by(records.c.key.desc())
        with self._database.begin() as connection:
            row = connection.execute(query.limit(1)).first()
        return Hit(row.name, row.key, row.at, row.outline) if row else None

    def newest(self, agent: str, kind: Kind) -> int | None:
        """The time of the newest record, in milliseconds."""
        query = select(records.c.at).where(_belongs_to(agent, kind)).order_by(records.c.key.desc())
        with self._database.begin() as connection:
            time: int | None = connection.scalar(query.limit(1))
        return time

    def names(
        self,
        agent: str,
        kind: Kind,
        period: tuple[float, float],
        limit: int,
        required: Sequence[Term] = (),
    ) -> dict[int, str]:
        """The names, by key, of the newest *limit* records with all *required* terms.

        *period* has its first millisecond, and the one before which it ends.
        """
        span = _Span(lowest_key(period[1]), lowest_key(period[0]))
        query = select(records.c.key, records.c.name).where(_belongs_to(agent, kind))
        query = query.where(*span.of(records.c.key)).order_by(records.c.key.desc()).limit(limit)
        with self._database.begin() as connection:
            for term in required:
                ids = _term_ids(connection, agent, kind, term)
                marked = postings.c.term.in_(ids), *span.of(postings.c.key)
                query = query.where(records.c.key.in_(select(postings.c.key).where(*marked)))
            return {row.key: row.name for row in connection.execute(query)}

    def page(
        self,
        agent: str,
        kind: Kind,
        limit: int,
        *,
        required: Sequence[Term] = (),
        before: int | None = None,
        since: float | None = None,
    ) -> ArchivePage:
        """Up to *limit* records with all *required* terms.

        Args:
            agent: whose records.
            kind: their kind.
            limit: the most records.
            required: the terms that they have.
            before: only those with lower keys.
            since: only those of this time or later, in milliseconds.

        Raises:
            ArchiveUnavailable: the database did not answer in time.
            TooManyMatches: a word of the search stands for more than `WORDS` words.
        """
        span = _Span(before, None if since is None else lowest_key(since))
        with self._database.begin() as connection:
            lists = [_term_ids(connection, agent, kind, term) for term in required]
            if not all(lists):
                return ArchivePage([])
            return _search(connection, _belongs_to(agent, kind), lists, limit, span)


@dataclass(frozen=True)
class _Span:
    """A range of keys: below `before` and from `since` on, where those are given."""

    before: int | None
    since: int | None

    def of(self, column: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """The conditions for a column of keys."""
        conditions = []
        if self.before is not None:
            conditions.append(column < self.before)
        if self.since is not None:
            conditions.append(column >= self.since)
        return conditions


def _search(
    connection: Connection,
    whose: ColumnElement[bool],
    lists: Sequence[Sequence[int]],
    limit: int,
    span: _Span,
) -> ArchivePage:
    first, others = _shortest(connection, lists, span)
    sources = [_Source(postings.c.key, postings.c.term == term_id) for term_id in first]
    window = _window(
        connection,
        sources or [_Source(records.c.key, whose)],
        SCANNED // max(1, len(sources)) if others else limit + 1,
        span,
    )
    table = window.keys.subquery("window")
    fitting = select(table.c.key).where(*(_has(table, ids) for ids in others))
    keys = list(connection.scalars(fitting.order_by(table.c.key.desc()).limit(limit + 1)))
    hits = _read(connection, keys[:limit])
    return ArchivePage(hits, keys[limit - 1] if len(keys) > limit else window.floor)


@dataclass(frozen=True)
class _Source:
    """A list of keys: a column, and the condition for the rows of the list."""

    key: ColumnElement[int]
    condition: ColumnElement[bool]

    def newest(self, span: _Span) -> Select[Any]:
        """The keys of the list within *span*, newest first."""
        rows = select(self.key.label("key")).where(self.condition, *span.of(self.key))
        return rows.order_by(self.key.desc())


@dataclass(frozen=True)
class _Window:
    """The newest keys of some lists, down to `floor` if there is one."""

    keys: Select[Any]
    floor: int | None


def _window(connection: Connection, sources: Sequence[_Source], each: int, span: _Span) -> _Window:
    """The newest keys that any of the lists has: up to *each* of it, and none between left out."""
    # Below the last key that one of them may contribute, some of its keys are missing.
    ends = [source.newest(span).offset(each - 1).limit(1) for source in sources]
    floors: list[int | None] = [connection.scalar(end) for end in ends]
    floor = max((key for key in floors if key is not None), default=None)
    whole = _Span(span.before, floor if floor is not None else span.since)
    parts = [source.newest(whole).order_by(None) for source in sources]
    keys = parts[0] if len(parts) == 1 else select(union(*parts).subquery().c.key)
    return _Window(keys, floor)


def _shortest(
    connection: Connection, lists: Sequence[Sequence[int]], span: _Span
) -> tuple[Sequence[int], list[Sequence[int]]]:
    """The list that the fewest records are in, if one can be read in order, and the others."""
    able = [number for number, ids in enumerate(lists) if len(ids) <= _MERGED]
    if not able:
        return [], list(lists)
    best = able[0]
    if len(lists) > 1:
        best = min(able, key=lambda number: _size(connection, lists[number], span))
    return lists[best], [ids for number, ids in enumerate(lists) if number != best]


def _size(connection: Connection, ids: Sequence[int], span: _Span) -> int:
    """The number of keys that any of these terms has, as far as it is below `_COUNTED`."""
    size = 0
    for term_id in ids:
        keys = _Source(postings.c.key, postings.c.term == term_id).newest(span).limit(_COUNTED)
        size += connection.scalar(select(func.count()).select_from(keys.subquery())) or 0
    return size


def _has(window: Subquery, ids: Sequence[int]) -> ColumnElement[bool]:
    return exists().where(postings.c.term.in_(ids), postings.c.key == window.c.key)


def _term_ids(connection: Connection, agent: str, kind: Kind, term: Term) -> list[int]:
    text = term_text(agent, kind, term.field, term.value)
    query = select(terms.c.id)
    if not term.prefix:
        return list(connection.scalars(query.where(terms.c.term == text)))
    begins = query.where(terms.c.term >= text, terms.c.term < text + "\U0010ffff")
    ids = list(connection.scalars(begins.limit(WORDS + 1)))
    if len(ids) > WORDS:
        raise TooManyMatches(
            f"more than {WORDS} words begin with {term.value!r}; write more of the word"
        )
    return ids


def _read(connection: Connection, keys: Sequence[int]) -> list[Hit]:
    rows = connection.execute(_hits().where(records.c.key.in_(keys)))
    return sorted(
        (Hit(row.name, row.key, row.at, row.outline) for row in rows), key=lambda hit: -hit.key
    )


def _hits() -> Select[Any]:
    return select(records.c.name, records.c.key, records.c.at, records.c.outline)


def _belongs_to(agent: str, kind: Kind) -> ColumnElement[bool]:
    return (records.c.agent == agent) & (records.c.kind == kind)


def _has_name(name: str) -> ColumnElement[bool]:
    # PostgreSQL takes no NUL, and no record has one in its name.
    return records.c.name == name.replace("\0", "\ufffd")
