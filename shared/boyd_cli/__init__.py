"""The command line, `boyd`: each command is a module; worker and api add theirs (entry points).

Importing takes long, and Ctrl-C meanwhile would be raised in the middle of some library, which
turns it into an error of its own. So nothing is imported before `Importing` handles SIGINT.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes long to import

if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from boyd_cli.group import boyd
else:  # the same without its enumerations, which take long to import
    import _signal as signal

__all__ = ["INTERRUPTED", "Importing", "boyd", "end", "is_interrupt", "main"]

#: The exit status of an interrupted command.
INTERRUPTED = 130
#: The exit status of a command that SIGTERM has ended.
TERMINATED = 143
#: Seconds in which what plugins have left behind has to end with its process.
LINGER = 10.0


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    _end_as_first_process()
    with Importing():
        from boyd_cli.group import run
    sys.exit(run())


def __getattr__(name: str) -> object:
    if name == "boyd":
        from boyd_cli.group import boyd

        return boyd
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _end_as_first_process() -> None:
    """Let SIGTERM end the first process of a container, until a command handles it itself.

    The kernel drops the signal there as long as nobody does.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))


class Importing:
    """Makes Ctrl-C end the process at once while the block runs.

    Handlers that others have set stay, and so do other threads.
    """

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            if self._ours:
                signal.signal(signal.SIGINT, _exit)
        except ValueError:  # another thread than the main one
            self._ours = False

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def end(status: int) -> NoReturn:
    """Exit, even if a thread or an exit handler of a plugin never ends."""
    import logging
    import threading
    import time

    def cut_off() -> None:
        time.sleep(LINGER)
        names = ", ".join(thread.name for thread in threading.enumerate() if not thread.daemon)
        log = logging.getLogger("boyd.cli")
        log.warning("ended without what plugins left behind: %s or an exit handler", names)
        os._exit(status)

    threading.Thread(target=cut_off, daemon=True).start()
    sys.exit(status)


def is_interrupt(error: BaseException) -> bool:
    """Search *error* and its causes for Ctrl-C."""
    visited: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited:
        if isinstance(cause, KeyboardInterrupt):
            return True
        visited.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False
