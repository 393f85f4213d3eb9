"""The database of the archive: its tables, connections, transactions and errors.

A record's key begins with its time, so that keys are in order of time. `postings` is an inverted
index: the keys of the records with a term, in order. Any filter reads it from its newest end.
`migrations` creates and changes the tables.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
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
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)

from boyd.errors import ArchiveRefused, ArchiveUnavailable, ConfigError

log = logging.getLogger("boyd.archive")

#: Seconds to wait for a connection, for a lock of SQLite, and for a statement of a reader.
CONNECT_TIMEOUT = 3
_LOCK_TIMEOUT = 10.0
READ_TIMEOUT = 5.0
#: The newest version of the tables: the revision of the last migration.
NEWEST = "0001"
#: Errors of a single statement; the database answers others.
_REFUSALS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
#: The lock that makes writers take turns in PostgreSQL; any fixed number.
_WRITERS = 0x626F7964
#: For one transaction, not for a connection: PgBouncer gives each transaction another one.
_BEGIN_WRITING = f"SELECT pg_advisory_xact_lock({_WRITERS})"
_BEGIN_READING = f"SET LOCAL statement_timeout = {READ_TIMEOUT * 1000:.0f}"


class Packed(TypeDecorator[str]):
    """A text that is stored compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Compress; level 1 takes half of a tenth of a millisecond for an ordinary iteration."""
        return None if value is None else zlib.compress(value.encode(errors="replace"), 1)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Decompress.

        Raises:
            ArchiveRefused: the disk has damaged it.
        """
        try:
            return None if value is None else zlib.decompress(value).decode()
        except (zlib.error, UnicodeDecodeError) as error:
            raise ArchiveRefused(f"a record of the archive is damaged: {error}") from None


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


class Database:
    """A database for readers or, if *writes*, for the one writer of a process."""

    def __init__(self, url: str, *, writes: bool = False) -> None:
        """Use the database at *url*, which is opened when it is first used.

        Raises:
            ConfigError: *url* names no SQLite or PostgreSQL database, or its driver is missing.
        """
        self._url = _parse_url(url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self._writes = writes
        path = self._url.database or ":"
        self._path = Path(path) if self.is_sqlite and not path.startswith((":", "file:")) else None
        self._opened: tuple[int, int] | None = None
        try:
            options = _sqlite_options() if self.is_sqlite else _postgresql_options(writes)
            self._engine = create_engine(self._url, **options)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"archive_url: {error.name} is not installed: pip install 'boyd[postgresql]'"
            ) from None
        if self.is_sqlite:
            event.listen(self._engine, "do_connect", self._make_private)
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_immediate if writes else _begin)

    @property
    def safe_url(self) -> str:
        """The URL without its password."""
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction; writers take turns.

        Raises:
            ArchiveUnavailable: the database did not do what was asked; nothing was changed.
        """
        self._follow_file()
        with translate_errors(), self._engine.begin() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(_BEGIN_WRITING if self._writes else _BEGIN_READING)
            yield connection

    def upgrade(self) -> None:
        """Create or change the tables as this release needs them.

        Raises:
            ArchiveUnavailable: the database does not answer, cannot hold every text, or was changed
                by a newer release.
        """
        self._check_encoding()
        if self.version() == NEWEST:
            return
        # Only now: it takes as much memory as all else that an archive loads.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(files("boyd.export.archive") / "migrations"))
        try:
            with self.begin() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise ArchiveUnavailable(
                f"a newer release of Boyd has changed the archive; use that one ({error})"
            ) from None

    def version(self) -> str | None:
        """The version of the tables; None before there are any.

        Raises:
            ArchiveUnavailable: the database does not answer.
        """
        with self.begin() as connection:
            if not connection.dialect.has_table(connection, "alembic_version"):
                return None
            row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
        return str(row[0]) if row else None

    def _make_private(self, *_: object) -> None:
        """Create the file of an SQLite database for its owner only; its other files follow it.

        SQLite itself would create it for everybody to read, even for a reader that comes first.
        """
        if self._path is not None:
            with suppress(OSError):  # the first connection tells what is wrong
                self._path.touch(mode=0o600)

    def _follow_file(self) -> None:
        """Open the file of an SQLite database again after another has taken its place.

        Raises:
            ArchiveUnavailable: a writer has written into one that nobody will read.
        """
        if self._path is None:
            return
        before, self._opened = self._opened, None
        with suppress(OSError):
            status = self._path.stat()
            self._opened = status.st_dev, status.st_ino
        if before in (None, self._opened):
            return
        self._engine.dispose()
        if self._writes:
            raise ArchiveUnavailable("the file of the archive was removed or replaced")

    def _check_encoding(self) -> None:
        if self.is_sqlite:
            return
        with self.begin() as connection:
            encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding not in ("UTF8", "SQL_ASCII"):
            raise ArchiveUnavailable(
                f"the database of the archive has the encoding {encoding}, which cannot hold every"
                " text: create one with ENCODING 'UTF8' and TEMPLATE template0"
            )

    def close(self) -> None:
        """Close all connections."""
        with suppress(SQLAlchemyError):
            self._engine.dispose()


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the database into `ArchiveUnavailable` or `ArchiveRefused`."""
    try:
        yield
    except SQLAlchemyError as error:
        # Without the statement and its values, which SQLAlchemy adds.
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if isinstance(error, _REFUSALS):
            raise ArchiveRefused(f"the archive refused a statement: {reason}") from error
        raise ArchiveUnavailable(f"the archive does not answer: {reason}") from error


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError("archive_url is not a URL such as postgresql://user@host/boyd") from None
    if parsed.drivername == "sqlite" and parsed.database:
        return parsed
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise ConfigError(
        f"archive_url begins with {parsed.drivername}://; it should be postgresql://USER@HOST/NAME,"
        " or sqlite:////PATH with the path of a file"
    )


def _sqlite_options() -> dict[str, Any]:
    return {"connect_args": {"timeout": _LOCK_TIMEOUT}}


def _postgresql_options(writes: bool) -> dict[str, Any]:
    return {
        "connect_args": {
            "connect_timeout": CONNECT_TIMEOUT,
            "application_name": "boyd archive",
            # Whatever the database says of itself: SQL_ASCII says nothing.
            "client_encoding": "utf8",
            # PgBouncer before 1.21 knows no prepared statements.
            "prepare_threshold": None,
            # Dead connections are noticed within seconds.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
        "pool_size": 1 if writes else 4,
        "max_overflow": 4,
        "pool_timeout": CONNECT_TIMEOUT,
        "pool_pre_ping": True,
    }


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver must not begin transactions by itself; see `begin`.
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
