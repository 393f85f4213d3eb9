"""Confines this process by means of the kernel, for good: Landlock and seccomp.

They hold for everything in the process and for what it starts. There is no maintained binding of
either in Python, and both take a few calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Collection, Sequence

#: Numbers of landlock's system calls, the same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ABI_QUERY = 1
#: Rights on files by the version of landlock that knows them: all but reading.
_FILES = {1: 0b1_1111_1111_0011, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
#: Of those, running a program, and what can be allowed to a file that is no folder.
_EXECUTE, _OF_FILES = 1, 0b10 | 1 << 14
#: Binding and connecting; abstract sockets and signals.
_NETWORK, _SCOPES = {4: 0b11}, {6: 0b11}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
#: Of BPF: load a word, compare it, return.
_LOAD, _IF_EQUAL, _IF_LARGER, _IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: The offsets of a call's first two arguments.
_FIRST_ARGUMENT, _SECOND_ARGUMENT = 16, 24
_REFUSE, _ALLOW = 0x0005_0000 | errno.EACCES, 0x7FFF_0000
#: From here on, x86-64 has the same calls under other numbers.
_X32 = 0x4000_0000
#: Calls for what landlock does not know: mode, owner, times and attributes of files.
_ATTRIBUTES = {
    "x86_64": (
        *(90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280),
        *(188, 189, 190, 197, 198, 199, 463, 466),
    ),
    "aarch64": (52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16, 463, 466),
}
#: Calls that cut a file by its path, which old versions of landlock do not know either.
_TRUNCATE = {"x86_64": 76, "aarch64": 45}
#: For each machine its architecture and the calls that are refused, by number.
_REFUSED = {
    "x86_64": (
        0xC000_003E,
        (
            *(41, 42, 44, 46, 49, 50, 53, 307),  # sockets
            *(59, 322, 101, 310, 311, 425, 426),  # programs, tracing, io_uring
            *(62, 200, 234, 129, 297, 424),  # signals
            *_ATTRIBUTES["x86_64"],
        ),
    ),
    "aarch64": (
        0xC000_00B7,
        (
            *(198, 199, 200, 201, 203, 206, 211, 269),
            *(221, 281, 117, 270, 271, 425, 426),
            *(129, 130, 131, 138, 240, 424),
            *_ATTRIBUTES["aarch64"],
        ),
    ),
}
#: The call that makes a socket, and those of io_uring, which could make one too.
_SOCKET = {"x86_64": 41, "aarch64": 198}
_IO_URING = (425, 426, 427)

#: Calls that change other processes of the same user. The first argument of some names the
#: process, and the second one of setpriority; 0 is the caller itself. The rest is refused.
_OF_OTHERS = {
    "x86_64": ((302, 203, 144, 142, 314), 141, (251, 279, 256, 312, 272, 308)),
    "aarch64": ((261, 122, 119, 118, 274), 140, (30, 239, 238, 272, 97, 268)),
}
#: The calls that make a process; the flags of the first one can be read.
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
_NEW_USER = 0x1000_0000
_MISSING = 0x0005_0000 | errno.ENOSYS

#: The means of the kernel.
MEANS = ("landlock", "seccomp")


def confine() -> list[str]:
    """Confine this process for good, which must have one thread; the means that the kernel has.

    It writes no file, starts no program and reaches no network from then on.
    """
    libc = _without_privileges()
    if libc is None:
        return []
    refused = _REFUSED.get(platform.machine())
    all_rights = (_FILES, _NETWORK, _SCOPES)
    filtered = refused is not None and _seccomp(libc, _refusing(*refused))
    tried = (_landlock(libc, all_rights), filtered)
    return [name for name, done in zip(MEANS, tried, strict=True) if done]


def scopes_signals() -> bool:
    """Report whether landlock keeps a process from ending those outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(_CREATE_RULESET, None, 0, _ABI_QUERY)
    return version >= min(_SCOPES)


def write_only_in(folders: Sequence[str]) -> bool:
    """Let this process write to nothing but those *folders*; False: the kernel cannot do that."""
    libc = _without_privileges()
    return libc is not None and _landlock(libc, (_FILES, {}, _SCOPES), folders)


def keep_attributes() -> bool:
    """Let this process change no mode, owner or time of files; False: the kernel cannot do that."""
    libc, machine = _without_privileges(), platform.machine()
    if libc is None or machine not in _ATTRIBUTES:
        return False
    calls = (*_ATTRIBUTES[machine], _TRUNCATE[machine], *_IO_URING)
    return _seccomp(libc, _refusing(_REFUSED[machine][0], calls))


def keep_others() -> bool:
    """Let this process change no limits, priority or memory of others, and make no user namespace.

    These check nothing but the user, which others of the host have, too. False: the kernel cannot.
    """
    libc, machine = _without_privileges(), platform.machine()
    if libc is None or machine not in _OF_OTHERS:
        return False
    return _seccomp(libc, _only_itself(machine))


def allow_sockets(families: Collection[int]) -> bool:
    """Let this process make sockets of those *families* only; False: the kernel cannot do that."""
    libc = _without_privileges()
    machine = platform.machine()
    if libc is None or machine not in _SOCKET:
        return False
    return _seccomp(libc, _only_sockets(_REFUSED[machine][0], _SOCKET[machine], sorted(families)))


def _without_privileges() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not sys.platform.startswith("linux") or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return None
    return libc


def _landlock(
    libc: ctypes.CDLL, all_rights: Sequence[dict[int, int]], folders: Sequence[str] | None = None
) -> bool:
    """Give up *all_rights*; those on files stay in *folders* if given, and programs may run."""
    version = libc.syscall(_CREATE_RULESET, None, 0, _ABI_QUERY)
    if version < 1:
        return False
    rights = [sum(bits for since, bits in some.items() if since <= version) for some in all_rights]
    if folders is not None:
        rights[0] &= ~_EXECUTE
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("=QQQ", *rights), size, 0)
    if ruleset < 0:
        return False
    try:
        allowed = all(_allow(libc, ruleset, rights[0], folder) for folder in folders or ())
        return allowed and bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, rights: int, path: str) -> bool:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights &= -1 if os.path.isdir(path) else _OF_FILES  # noqa: PTH112 - a text
        rule = struct.pack("=Qi", rights, beneath)
        return bool(libc.syscall(_ADD_RULE, ruleset, 1, rule, 0) == 0)
    finally:
        os.close(beneath)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


#: One instruction of BPF: code, jumps if true and if false, operand.
_Step = tuple[int, int, int, int]


def _refusing(machine: int, refused: Sequence[int]) -> list[_Step]:
    """Calls of another machine, and any of the refused ones, lead to the end."""
    count = len(refused)
    return [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 0, count + 3, machine),
        (_LOAD, 0, 0, 0),
        (_IF_LARGER, count + 1, 0, _X32),
        *((_IF_EQUAL, count - place, 0, number) for place, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _only_sockets(machine: int, call: int, families: Sequence[int]) -> list[_Step]:
    """Calls of another machine, io_uring, and sockets of other families lead to the refusal."""
    rings, count = len(_IO_URING), len(families)
    refusal = rings + count + 6
    return [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 0, refusal - 2, machine),
        (_LOAD, 0, 0, 0),
        (_IF_LARGER, refusal - 4, 0, _X32),
        *((_IF_EQUAL, refusal - 5 - n, 0, number) for n, number in enumerate(_IO_URING)),
        (_IF_EQUAL, 0, count + 2, call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_IF_EQUAL, count - n, 0, number) for n, number in enumerate(families)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _only_itself(machine: str) -> list[_Step]:
    """Calls that name another process, or make a namespace of users, lead to the refusal."""
    by_first, by_second, refused = _OF_OTHERS[machine]
    # Each is a jump to one of the places behind all of them.
    jumps = [
        *((number, "refuse") for number in refused),
        *((number, "first") for number in by_first),
        (by_second, "second"),
        (_CLONE[machine], "flags"),
        (_CLONE3, "missing"),
    ]
    tail: list[_Step] = [
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 5, 6, 0),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_IF_EQUAL, 3, 4, 0),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_SET, 2, 1, _NEW_USER),
        (_RETURN, 0, 0, _MISSING),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    places = {"first": 1, "second": 3, "flags": 5, "missing": 7, "refuse": 9}
    count = len(jumps)
    return [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 0, count + 2 + places["refuse"], _REFUSED[machine][0]),
        (_LOAD, 0, 0, 0),
        (_IF_LARGER, count + places["refuse"], 0, _X32),
        *((_IF_EQUAL, count - 1 - n + places[to], 0, call) for n, (call, to) in enumerate(jumps)),
        *tail,
    ]


def _seccomp(libc: ctypes.CDLL, steps: Sequence[_Step]) -> bool:
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    done: bool = libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0
    return done
