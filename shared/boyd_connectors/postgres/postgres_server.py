"""Short sessions with a PostgreSQL server, none of which can last or wait for ever."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from boyd.plugin import Connector, Secret

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[dict[str, Any]]

#: Seconds to connect, to wait for a lock, and for a statement that only looks.
CONNECT_TIME = 5
LOCK_TIME = 2.0
LOOK_TIME = 10.0
#: Seconds that the server may be late in ending a statement before the connection is cut.
GRACE = 3.0

_SETTINGS = """
SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),
  set_config('default_transaction_read_only', %s, false),
  set_config('search_path', 'pg_catalog', false), set_config('TimeZone', 'UTC', false)
"""


class PostgresError(Exception):
    """The server cannot be reached, or refused what it was asked."""


class ConnectionBroke(PostgresError):
    """The connection ended before the answer: it may have been done."""


class PostgresAccess(BaseModel):
    """A role of the server.

    Attributes:
        username: its name.
        password: its password, if it needs one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    username: str | None = None
    password: Secret | None = None


class PostgresOptions(Connector.Options):
    """The address of a server and one of its databases.

    Attributes:
        host: the name or address of the server.
        port: its port.
        database: the database whose tables are watched.
        sslmode: as in libpq; only `verify-full` makes sure that it is this server.
        ca_file: certificates of the authorities to trust.
    """

    host: str = "localhost"
    port: int = Field(default=5432, ge=1, le=65535)
    database: str = "postgres"
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    ca_file: Path | None = None
    access: PostgresAccess = PostgresAccess()

    @property
    def where(self) -> str:
        """The server for people."""
        return f"PostgreSQL at {self.host}:{self.port}"


def is_installed() -> bool:
    """True if the library is installed; it is imported when a session begins."""
    return find_spec("psycopg") is not None


@contextmanager
def session(
    options: PostgresOptions,
    access: PostgresAccess,
    *,
    writes: bool = False,
    seconds: float = LOOK_TIME,
) -> Iterator[Connection]:
    """A session in which each statement is a transaction of at most *seconds*.

    Raises:
        ConnectionBroke: it ended too early.
        PostgresError: the server cannot be reached or refuses something.
        ConfigError: the password cannot be read.
    """
    import psycopg

    connection = _connect(options, access)
    try:
        with _deadline(connection, seconds + GRACE):
            limits = (f"{seconds:.3f}s", f"{LOCK_TIME:.3f}s", "off" if writes else "on")
            connection.execute(_SETTINGS, limits)
            yield connection
    except psycopg.Error as error:
        kind = ConnectionBroke if connection.closed else PostgresError
        broke = "the connection broke: " if connection.closed else ""
        raise kind(f"{options.where}: {broke}{_line(error)}") from None
    finally:
        connection.close()


def _connect(options: PostgresOptions, access: PostgresAccess) -> Connection:
    import psycopg
    from psycopg.rows import dict_row

    try:
        return psycopg.connect(
            host=options.host,
            port=options.port,
            dbname=options.database,
            user=access.username,
            password=access.password.read() if access.password else None,
            sslmode=options.sslmode,
            sslrootcert=str(options.ca_file) if options.ca_file else None,
            application_name="boyd",
            connect_timeout=CONNECT_TIME,
            autocommit=True,
            prepare_threshold=None,  # poolers may give each statement another server
            row_factory=dict_row,
        )
    except psycopg.Error as error:
        raise PostgresError(f"{options.where} cannot be used: {_line(error)}") from None


@contextmanager
def _deadline(connection: Connection, seconds: float) -> Iterator[None]:
    """Cut the connection after *seconds*: a server that hangs does not end its statements."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        timer = threading.Timer(seconds, line.shutdown, [socket.SHUT_RDWR])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
