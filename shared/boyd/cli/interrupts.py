"""Ctrl-C while modules are imported: it ends the process at once.

The interrupt would otherwise be raised in the middle of some module of a library, which turns it
into an error of its own and prints a screenful of it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes long to import

if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:  # the same without its enumerations, which take long to import
    import _signal as signal

#: The exit status of what was interrupted.
INTERRUPTED = 130


class Importing:
    """Lets SIGINT end the process with its exit status while the block runs.

    It changes nothing where somebody else handles SIGINT, or ignores it, and in other threads.
    """

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            if self._ours:
                signal.signal(signal.SIGINT, _leave)
        except ValueError:  # another thread than the main one
            self._ours = False

    def __exit__(self, *_: object) -> None:
        if self._ours:
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
