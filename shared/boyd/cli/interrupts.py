"""Ctrl-C while modules are imported: it ends the process at once.

The interrupt would otherwise be raised in the middle of some module of a library, which turns it
into an error of its own and prints a screenful of it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

#: The exit status of what was interrupted.
INTERRUPTED = 130


@contextmanager
def importing() -> Iterator[None]:
    """Let SIGINT end the process with its exit status while the block runs.

    It changes nothing where somebody else handles SIGINT, or ignores it.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def is_interrupt(error: BaseException) -> bool:
    """Whether *error* is Ctrl-C, or what a library has made of it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, KeyboardInterrupt):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False
