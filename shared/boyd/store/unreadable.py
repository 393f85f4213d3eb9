"""Records that cannot be read: each is named, and takes nothing else with it.

A person's command, another program or a later release may have written what is in Redis.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from boyd.errors import StoreError, StoreUnavailable, UnreadableRecord

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_S = TypeVar("_S")

#: What reading a record raises that somebody else has written.
_MISTAKES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
#: The most names that are remembered as logged, and that a list of names has.
_REMEMBERED, _LISTED = 1000, 10

_collected: ContextVar[list[str] | None] = ContextVar("boyd_unreadable", default=None)
_logged: set[str] = set()


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Name the record that the body reads, if it cannot.

    Raises:
        UnreadableRecord: it cannot.
    """
    try:
        yield
    except _MISTAKES as error:
        raise UnreadableRecord(f"{name} cannot be read: {_in_short(error)}") from error


def readable(name: str, read: Callable[[_S], _T], record: _S) -> _T | None:
    """The *record* as *read* makes it of it; None, with a note, when it cannot be read."""
    try:
        with reading(name):
            return read(record)
    except StoreUnavailable:
        raise
    except StoreError as error:
        note_unreadable(name, error)
        return None


def note_unreadable(name: str, error: object) -> None:
    """Log what was passed over, once, and tell whoever collects such names."""
    names = _collected.get()
    if names is not None and name not in names and len(names) < _LISTED:
        names.append(name)
    if name in _logged:
        return
    if len(_logged) >= _REMEMBERED:
        _logged.clear()
    _logged.add(name)
    log.warning("%s is passed over: %s", name, error)


def collect_unreadable() -> list[str]:
    """The names of the records that this thread passes over from now on, at most a few."""
    names: list[str] = []
    _collected.set(names)
    return names


def _in_short(error: Any) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[:3])[:300]
