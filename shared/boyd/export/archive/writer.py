"""Writes entries into the archive, each once however often it is written."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Table,
    delete,
    exists,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from boyd.export.archive.database import (
    Database,
    bodies,
    positions,
    postings,
    records,
    term_text,
    terms,
)
from boyd.export.archive.entries import (
    SLOT,
    ArchiveEntry,
    Kind,
    audit_key,
    lowest_beside,
    lowest_key,
)

log = logging.getLogger("boyd.archive")

#: Names or terms that one statement names; SQLite and PostgreSQL take 32 767 values.
CHUNK = 500
#: Records that one transaction of a purge removes: its log takes room on a disk that may be full.
PURGED = 200


@dataclass(frozen=True)
class _Stored:
    """A record that the archive has."""

    key: int
    stamp: str


class ArchiveWriter:
    """Writes into the archive; a transaction is done as a whole or not at all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: The new and changed records that it has written.
        self.written = 0

    def stamps(self, agent: str, kind: Kind, names: Sequence[str]) -> dict[str, str]:
        """The stamps of those of *names* that the archive has."""
        with self._database.begin() as connection:
            records_by_name = _read_stored(connection, agent, kind, names)
        return {name: record.stamp for name, record in records_by_name.items()}

    def open_names(self, agent: str, kind: Kind) -> list[str]:
        """The names of the records that are still going to change."""
        # Literally `open`, so that the partial index serves.
        query = select(records.c.name).where(
            records.c.agent == agent, records.c.kind == kind, records.c.open
        )
        with self._database.begin() as connection:
            return list(connection.scalars(query))

    def close(self, agent: str, kind: Kind, names: Sequence[str]) -> None:
        """Note that these records are not going to change any more: Redis has lost them."""
        for some in _chunks(names):
            theirs = records.c.name.in_(some)
            whose = (records.c.agent == agent) & (records.c.kind == kind)
            with self._database.begin() as connection:
                connection.execute(update(records).where(whose, theirs).values(open=False))

    def place(self, agent: str, kind: Kind) -> str | None:
        """The place up to which records were copied; None at the beginning."""
        query = select(positions.c.place).where(
            positions.c.agent == agent, positions.c.kind == kind
        )
        with self._database.begin() as connection:
            reached: str | None = connection.scalar(query)
        return reached

    def write(
        self, agent: str, kind: Kind, entries: Sequence[ArchiveEntry], place: str = ""
    ) -> None:
        """Write those *entries* that are new or have changed, and the *place* that they reach."""
        with self._database.begin() as connection:
            present = _read_stored(connection, agent, kind, [entry.name for entry in entries])
            latest = {entry.name: entry for entry in entries}.values()
            changed = [
                e for e in latest if e.name not in present or present[e.name].stamp != e.stamp
            ]
            if changed:
                self._write(connection, agent, kind, changed, present)
            if place:
                row = {"agent": agent, "kind": kind, "place": place}
                self._upsert(connection, positions, [row], ["agent", "kind"])
        self.written += len(changed)

    def _write(
        self,
        connection: Connection,
        agent: str,
        kind: Kind,
        entries: Sequence[ArchiveEntry],
        present: Mapping[str, _Stored],
    ) -> None:
        new = [entry for entry in entries if entry.name not in present]
        keys = _new_keys(connection, new) | {name: record.key for name, record in present.items()}
        self._upsert(connection, records, [_row(e, keys[e.name]) for e in entries], ["key"])
        contents = [{"key": keys[entry.name], "body": entry.body} for entry in entries]
        self._upsert(connection, bodies, contents, ["key"])
        # Only records that change are found by terms that no longer hold.
        old = [present[entry.name].key for entry in entries if entry.name in present]
        scope = term_text(agent, kind, "", "")[:-1]
        for some in _chunks(old):
            connection.execute(delete(postings).where(postings.c.key.in_(some), _within(scope)))
        ids = self._term_ids(connection, entries)
        rows = [
            {"term": ids[text], "key": keys[entry.name]}
            for entry in entries
            for text in _term_texts(entry)
        ]
        # In order of the index, which touches each of its pages once.
        rows.sort(key=lambda row: (row["term"], row["key"]))
        self._post(connection, rows)

    def _post(self, connection: Connection, rows: Sequence[Mapping[str, int]]) -> None:
        """Add *rows* to the index."""
        if self._database.is_sqlite:
            self._upsert(connection, postings, rows, ["term", "key"])
            return
        # Two arrays in one statement: the driver would send a statement for each row.
        columns = [
            func.unnest(literal([row["term"] for row in rows], postgresql.ARRAY(Integer))),
            func.unnest(literal([row["key"] for row in rows], postgresql.ARRAY(BigInteger))),
        ]
        added = postgresql.insert(postings).from_select(["term", "key"], select(*columns))
        connection.execute(added.on_conflict_do_nothing())

    def _term_ids(self, connection: Connection, entries: Sequence[ArchiveEntry]) -> dict[str, int]:
        texts = sorted({text for entry in entries for text in _term_texts(entry)})
        ids: dict[str, int] = {}
        for some in _chunks(texts):
            ids |= _read_terms(connection, some)
        missing = [text for text in texts if text not in ids]
        self._upsert(connection, terms, [{"term": text} for text in missing], ["term"])
        for some in _chunks(missing):
            ids |= _read_terms(connection, some)
        return ids

    def _upsert(
        self,
        connection: Connection,
        table: Table,
        rows: Sequence[Mapping[str, Any]],
        unique: Sequence[str],
    ) -> None:
        """Insert *rows*; a row with the same *unique* columns gets the new values."""
        if not rows:
            return
        insert = (sqlite if self._database.is_sqlite else postgresql).insert(table)
        others = {name: insert.excluded[name] for name in rows[0] if name not in unique}
        if others:
            statement = insert.on_conflict_do_update(index_elements=unique, set_=others)
        else:
            statement = insert.on_conflict_do_nothing(index_elements=unique)
        connection.execute(statement, list(rows))

    def purge(self, before: int) -> int:
        """Remove up to `PURGED` records that are older than *before*, in ms; return how many."""
        limit = lowest_key(before)
        old = select(records.c.key).where(records.c.key < limit).order_by(records.c.key)
        with self._database.begin() as connection:
            keys = list(connection.scalars(old.limit(PURGED)))
            if not keys:
                return 0
            # Their terms by ranges of the index; those without a record are harmless meanwhile.
            for some in _chunks(keys):
                connection.execute(delete(bodies).where(bodies.c.key.in_(some)))
                connection.execute(delete(records).where(records.c.key.in_(some)))
        return len(keys)

    def purge_terms(self, before: int) -> None:
        """Remove postings of records that are older than *before*, and terms without a posting."""
        limit, last = lowest_key(before), 0
        while True:
            some = select(terms.c.id).where(terms.c.id > last).order_by(terms.c.id).limit(CHUNK)
            with self._database.begin() as connection:
                ids = list(connection.scalars(some))
                for term_id in ids:
                    connection.execute(
                        delete(postings).where(postings.c.term == term_id, postings.c.key < limit)
                    )
                unused = ~exists().where(postings.c.term == terms.c.id)
                within = terms.c.id.between(last + 1, ids[-1] if ids else last)
                connection.execute(delete(terms).where(within, unused))
            if not ids:
                return
            last = ids[-1]


def _read_stored(
    connection: Connection, agent: str, kind: Kind, names: Sequence[str]
) -> dict[str, _Stored]:
    result: dict[str, _Stored] = {}
    for some in _chunks(names):
        query = select(records.c.name, records.c.key, records.c.stamp).where(
            records.c.agent == agent, records.c.kind == kind, records.c.name.in_(some)
        )
        result |= {name: _Stored(key, stamp) for name, key, stamp in connection.execute(query)}
    return result


def _new_keys(connection: Connection, entries: Sequence[ArchiveEntry]) -> dict[str, int]:
    """A key for each entry, in order of time and used by no other record."""
    first = {entry.name: _default_key(entry) for entry in entries}
    used: set[int] = set()
    for some in _chunks(sorted(first.values())):
        used |= set(connection.scalars(select(records.c.key).where(records.c.key.in_(some))))
    keys: dict[str, int] = {}
    for name, key in first.items():
        while key in used:
            key = _next_key(key)
            used |= set(connection.scalars(select(records.c.key).where(records.c.key == key)))
        used.add(key)
        keys[name] = key
    return keys


def _default_key(entry: ArchiveEntry) -> int:
    """The key of an entry, unless another one has it."""
    if entry.kind == "audit":
        return audit_key(entry.at, int(entry.name.partition(":")[0]))
    return lowest_key(entry.at) + int.from_bytes(_digest(entry), "big") % SLOT


def _next_key(key: int) -> int:
    """The key to try after *key*, at the same time."""
    first = lowest_beside(key)
    return first + (key - first + 1) % SLOT


def _digest(entry: ArchiveEntry) -> bytes:
    text = f"{entry.agent}\n{entry.kind}\n{entry.name}"
    return hashlib.sha256(text.encode(errors="replace")).digest()[:4]


def _row(entry: ArchiveEntry, key: int) -> dict[str, Any]:
    names = ("agent", "kind", "name", "at", "stamp", "open", "outline")
    row = {name: getattr(entry, name) for name in names} | {"at": int(entry.at)}
    # PostgreSQL stores no NUL.
    return {"key": key, **row, "outline": entry.outline.replace("\0", "\ufffd")}


def _term_texts(entry: ArchiveEntry) -> Iterator[str]:
    for term in entry.terms:
        yield term_text(entry.agent, entry.kind, term.field, term.value)


def _read_terms(connection: Connection, texts: Sequence[str]) -> dict[str, int]:
    rows = connection.execute(select(terms.c.term, terms.c.id).where(terms.c.term.in_(texts)))
    return {row.term: row.id for row in rows}


def _within(scope: str) -> Any:
    ids = select(terms.c.id).where(terms.c.term >= scope, terms.c.term < scope + "\U0010ffff")
    return postings.c.term.in_(ids)


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), CHUNK):
        yield items[first : first + CHUNK]
