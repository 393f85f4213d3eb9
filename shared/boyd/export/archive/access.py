"""Access of a process to the archive: opened when first used, left alone while it is down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from boyd.errors import ArchiveRefused, ArchiveUnavailable

if TYPE_CHECKING:
    from boyd.export.archive.search import ArchiveReader

_T = TypeVar("_T")

#: Seconds in which nobody tries a database that has just not answered.
AWAY = 5.0


class ArchiveAccess:
    """The archive for readers; thread-safe."""

    def __init__(self, url: str | None) -> None:
        """Read the archive at *url*, if there is one."""
        self._url = url
        self._lock = threading.Lock()
        self._reader: ArchiveReader | None = None
        self._away_until = float("-inf")
        self._error = ArchiveUnavailable()

    @property
    def exists(self) -> bool:
        """Report whether there is an archive."""
        return self._url is not None

    def ask(self, question: Callable[[ArchiveReader], _T]) -> _T:
        """The answer of the archive.

        Raises:
            ArchiveRefused: it answers, but not this question.
            ArchiveUnavailable: it does not answer, or has not answered a moment ago.
            ConfigError: its URL cannot be used.
        """
        if time.monotonic() < self._away_until:
            raise self._error
        try:
            return question(self._open())
        except ArchiveRefused:
            raise
        except ArchiveUnavailable as error:
            self._error, self._away_until = error, time.monotonic() + AWAY
            raise

    def close(self) -> None:
        """Close all connections; the next question opens one again."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _open(self) -> ArchiveReader:
        with self._lock:
            if self._reader is None:
                # Loads SQLAlchemy, which takes a while.
                from boyd.export.archive.database import Database
                from boyd.export.archive.search import ArchiveReader

                assert self._url is not None, "nobody asks without an archive"
                self._reader = ArchiveReader(Database(self._url))
            return self._reader
