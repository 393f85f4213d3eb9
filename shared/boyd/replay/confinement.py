"""Keeps a process from acting: no file is written, no program started, no network reached.

Landlock and seccomp, which the kernel enforces, hold for everything in the process; an audit hook
of Python comes before them and says who tried. There is no maintained binding of either in Python,
and both take a few calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import sysconfig
import zoneinfo
from collections.abc import Callable
from pathlib import Path

#: Numbers of landlock's system calls, the same on every machine.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_ABI_QUERY = 1
#: Rights on files by the version of landlock that knows them: all but reading.
_FILES = {1: 0b1_1111_1111_0011, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
#: Binding and connecting; abstract sockets and signals.
_NETWORK, _SCOPES = {4: 0b11}, {6: 0b11}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
#: Of BPF: load a word, compare it, return.
_LOAD, _IF_EQUAL, _IF_LARGER, _RETURN = 0x20, 0x15, 0x35, 0x06
_REFUSE, _ALLOW = 0x0005_0000 | errno.EACCES, 0x7FFF_0000
#: From here on, x86-64 has the same calls under other numbers.
_X32 = 0x4000_0000
#: For each machine its architecture and the calls that are refused, by number.
_REFUSED = {
    "x86_64": (
        0xC000_003E,
        (
            *(41, 42, 44, 46, 49, 50, 53, 307),  # sockets
            *(59, 322, 101, 310, 311, 425, 426),  # programs, tracing, io_uring
            *(62, 200, 234, 129, 297, 424),  # signals
            # What landlock does not know: mode, owner, times and attributes of files.
            *(90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280),
            *(188, 189, 190, 197, 198, 199, 463, 466),
        ),
    ),
    "aarch64": (
        0xC000_00B7,
        (
            *(198, 199, 200, 201, 203, 206, 211, 269),
            *(221, 281, 117, 270, 271, 425, 426),
            *(129, 130, 131, 138, 240, 424),
            *(52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16, 463, 466),
        ),
    ),
}

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


#: The means of the kernel.
MEANS = ("landlock", "seccomp")


def confine() -> list[str]:
    """Confine this process for good, which must have one thread; the means that the kernel has."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not sys.platform.startswith("linux") or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return []
    tried = zip(MEANS, (_landlock, _seccomp), strict=True)
    return [name for name, apply in tried if apply(libc)]


def _landlock(libc: ctypes.CDLL) -> bool:
    version = libc.syscall(_CREATE_RULESET, None, 0, _ABI_QUERY)
    if version < 1:
        return False
    rights = [
        sum(bits for since, bits in known.items() if since <= version)
        for known in (_FILES, _NETWORK, _SCOPES)
    ]
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("=QQQ", *rights), size, 0)
    if ruleset < 0:
        return False
    done: bool = libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _seccomp(libc: ctypes.CDLL) -> bool:
    if platform.machine() not in _REFUSED:
        return False
    machine, refused = _REFUSED[platform.machine()]
    count = len(refused)
    # Calls of another machine, and any of the refused ones, lead to the end.
    steps = [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 0, count + 3, machine),
        (_LOAD, 0, 0, 0),
        (_IF_LARGER, count + 1, 0, _X32),
        *((_IF_EQUAL, count - place, 0, number) for place, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    done: bool = libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0
    return done


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
