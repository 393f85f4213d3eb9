"""The tables of the archive; `migrations` creates and changes them.

A record's key begins with its time, so that keys are in order of time. `postings` is an inverted
index: the keys of the records with a term, in order. Any filter reads it from its newest end.
"""

from __future__ import annotations

import zlib

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    text,
)


class Packed(TypeDecorator[str]):
    """A text that is stored compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Compress; level 1 takes half of a tenth of a millisecond for an ordinary iteration."""
        return None if value is None else zlib.compress(value.encode(errors="replace"), 1)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Decompress."""
        return None if value is None else zlib.decompress(value).decode()


#: Names compare by code point in both databases, whatever the locale.
_Name = Text().with_variant(Text(collation="C"), "postgresql")
#: SQLite's own row number is the only primary key that it stores without another index.
_Key = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()

records = Table(
    "records",
    metadata,
    Column("key", _Key, primary_key=True, autoincrement=False),
    Column("agent", _Name, nullable=False),
    Column("kind", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("stamp", Text, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("outline", Text, nullable=False),
    Index("records_by_name", "agent", "kind", "name", unique=True),
    Index("records_by_key", "agent", "kind", "key"),
    Index(
        "records_open",
        "agent",
        "kind",
        sqlite_where=text("open"),
        postgresql_where=text("open"),
    ),
)

bodies = Table(
    "bodies",
    metadata,
    Column(
        "key",
        _Key,
        ForeignKey("records.key", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("body", Packed, nullable=False),
)

terms = Table(
    "terms",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("term", _Name, nullable=False),
    Index("terms_by_term", "term", unique=True),
)

postings = Table(
    "postings",
    metadata,
    Column("term", Integer, primary_key=True, autoincrement=False),
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

positions = Table(
    "positions",
    metadata,
    Column("agent", _Name, primary_key=True),
    Column("kind", _Name, primary_key=True),
    Column("place", Text, nullable=False),
)


def term_text(agent: str, kind: str, field: str, value: str) -> str:
    """A term as the table holds it."""
    return f"{agent}\x1f{kind}\x1f{field}\x1f{value}"
