"""Refuses in Python what the kernel refuses a confined process, and says who tried.

`boyd.sandbox.kernel` confines the process; this audit hook comes before it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import zoneinfo
from collections.abc import Callable
from pathlib import Path

#: Audit events that act, and the argument that names what they act on.
_ACTS = {
    "socket.__new__": 1,
    "socket.connect": 1,
    "socket.bind": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0,
    "subprocess.Popen": 0,
    "os.system": 0,
    "os.exec": 0,
    "os.posix_spawn": 0,
    "os.spawn": 1,
    "os.fork": None,
    "os.forkpty": None,
    "os.kill": 0,
    "os.killpg": 0,
    "os.remove": 0,
    "os.rename": 0,
    "os.rmdir": 0,
    "os.mkdir": 0,
    "os.link": 0,
    "os.symlink": 0,
    "os.truncate": 0,
    "os.chmod": 0,
    "os.chown": 0,
    "os.utime": 0,
    "os.setxattr": 0,
    "os.removexattr": 0,
}
#: Audit events that look at files.
_LOOKS = ("os.listdir", "os.scandir", "sqlite3.connect")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files of code and of libraries, which may be read at any time.
_CODE = (".py", ".pyc", ".so")
_LIBRARIES = tuple(
    f"{folder}/"
    for folder in (
        Path(__file__).parents[1],
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *zoneinfo.TZPATH,
    )
)

#: Is told what the process tried, and raises.
Refuse = Callable[[str], object]


class ActionGuard:
    """Refuses, in Python, what the kernel refuses, and looks at files while an iteration runs."""

    def __init__(self, refuse: Refuse) -> None:
        """Install the hook, which stays; *refuse* raises."""
        self._refuse = refuse
        #: Whether reading files is refused, too.
        self.judging = False
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            self._opened(*args[:3])
        elif event in _ACTS:
            place = _ACTS[event]
            what = "" if place is None or place >= len(args) else f" {args[place]!r}"
            self._refuse(f"tries {event}{what}")
        elif self.judging and event in _LOOKS and not _is_searched(args[0]):
            self._refuse(f"looks at {args[0]!r}, which was not recorded")

    def _opened(self, path: object = None, _mode: object = None, flags: object = 0) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor that is open
        if isinstance(flags, int) and flags & _WRITING:
            self._refuse(f"tries to write {os.fspath(path)!r}")
        elif self.judging and not _is_library(path):
            self._refuse(f"reads the file {os.fspath(path)!r}, which was not recorded")


def _is_searched(path: object) -> bool:
    """Tell whether an import looks there for modules."""
    return path in sys.path or _is_library(path) or _is_library(f"{path}/")


def _is_library(path: object) -> bool:
    """Tell whether that is code or belongs to a library."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    text = os.fsdecode(path)
    return text.endswith(_CODE) or text.startswith(_LIBRARIES)
