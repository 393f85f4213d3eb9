"""Calls of plugins' code, which may raise what nobody catches: exits, panics of extensions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from boyd.errors import Overrun

_R = TypeVar("_R")


class Exited(Exception):
    """A function raised what no `except Exception` catches: `SystemExit`, a panic of an extension.

    It ends that function only, never the phase of others. `cause` is what it raised.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def _never() -> bool:
    return False


#: Set by a program in which a signal raises `SystemExit`: true once that signal has come.
is_process_ending: Callable[[], bool] = _never


def contain(function: Callable[[], _R]) -> _R:
    """Call *function* of a plugin.

    Raises:
        Exited: it raised what is no `Exception`.
    """
    try:
        return function()
    except (Exception, Overrun):
        raise
    except SystemExit as error:
        # The process dies with this function, so its outcome stays unknown.
        if is_main() and is_process_ending():
            raise
        raise Exited(error) from error
    except KeyboardInterrupt as error:
        if _is_interrupted():
            raise
        raise Exited(error) from error
    except BaseException as error:
        raise Exited(error) from error


def _is_interrupted() -> bool:
    """True if a person may have pressed Ctrl-C, which ends a program in its main thread."""
    return is_main() and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def is_main() -> bool:
    """True in the main thread, the only one in which a signal raises."""
    return threading.current_thread() is threading.main_thread()
