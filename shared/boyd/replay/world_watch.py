"""Refuses what components read of the world while they are replayed: clocks, chance, files.

Python tells a profiler of every call, also of functions in C, whatever name they were imported by.
Only components and hooks are watched, so that it costs the rest nothing. It does not tell of calls
that C makes, as `map` and `functools.partial` do: `watch_calls_of_c` is for these.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import grp
import logging
import os
import platform
import posix
import pwd
import random
import resource
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import wraps
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, NoReturn

#: Is told what a component does, and raises.
Refuse = Callable[[str], NoReturn]

_CLOCKS = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("clock_gettime", "clock_gettime_ns"),
)
#: Functions of the system that tell nothing, or that the audit hook refuses for what they do.
_HARMLESS = (
    *("fspath", "_path_normpath", "strerror", "waitstatus_to_exitcode", "putenv", "unsetenv"),
    *("open", "close", "read", "write", "listdir", "scandir", "register_at_fork"),
    *("remove", "unlink", "rename", "replace", "rmdir", "mkdir", "link", "symlink", "truncate"),
    *("ftruncate", "chmod", "fchmod", "chown", "fchown", "lchown", "utime", "setxattr"),
    *("removexattr", "system", "execv", "execve", "posix_spawn", "posix_spawnp", "fork"),
    *("forkpty", "kill", "killpg", "_exit", "abort"),
)


def _system_calls() -> Iterator[tuple[object, str]]:
    for module, prefix in ((posix, "os"), (pwd, "pwd"), (grp, "grp"), (resource, "resource")):
        for name, function in vars(module).items():
            if isinstance(function, BuiltinFunctionType) and name not in _HARMLESS:
                yield function, f"{prefix}.{name}"


#: Functions that read something, with their names.
_READERS: dict[object, str] = {
    **{getattr(time, name): f"time.{name}" for name in _CLOCKS},
    **dict(_system_calls()),
    getattr(uuid, "_generate_time_safe", None): "uuid.uuid1",
    socket.gethostname: "socket.gethostname",
    # Nothing tells what another thread reads.
    _thread.start_new_thread: "threads",
    getattr(_thread, "start_joinable_thread", None): "threads",
}
#: Those that read the clock if they are called with that many arguments.
_CLOCKS_WITHOUT: dict[object, int] = {
    time.localtime: 0,
    time.gmtime: 0,
    time.ctime: 0,
    time.asctime: 0,
    time.strftime: 1,
}
_WATCHED = _READERS.keys() | _CLOCKS_WITHOUT.keys()
_CLOCK_METHODS = ("now", "utcnow", "today")
_SEED = random.Random.seed.__code__
#: Functions of Python that read something, some of them only when they are first called.
_PYTHON_READERS: dict[CodeType, str] = {
    **{
        getattr(type(os.environ), name).__code__: "the environment"
        for name in ("__getitem__", "__iter__", "__len__", "copy", "__repr__")
    },
    platform.uname.__code__: "platform.uname",
    logging.LogRecord.__init__.__code__: "the time of a log record",
    logging.makeLogRecord.__code__: "the time of a log record",
}
#: The first lines of that code, where a call is: to look up code means to hash its constants.
_LINES = {code.co_firstlineno for code in (*_PYTHON_READERS, _SEED)}
#: Modules that look at the world without telling the component.
_SILENT = ("importlib", "zipimport", "linecache", "logging", "warnings", "traceback", "zoneinfo")
#: Likewise, if the call is their own and not that of a function that they call.
_SILENT_ITSELF = ("pydantic._internal.", "pydantic.plugin.", "boyd.replay.", "boyd.text.redaction")


class _InPython:
    """A function of C, which calls it from here, so that Python tells of it."""

    # A default of a plugin's function: digests of its code hold the name of the type.
    __qualname__ = BuiltinFunctionType.__qualname__

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


def _clock_in_python(method: Any) -> Any:
    def read(kind: type, *args: Any, **options: Any) -> Any:
        return method.__get__(None, kind)(*args, **options)

    return classmethod(read)


_CALLS = (_InPython.__call__.__code__, _clock_in_python(None).__func__.__code__)
#: The sets in which Python looks up what functions of the system can do.
_ABILITIES = (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks)


def watch_calls_of_c() -> None:
    """Have Python tell of calls that C makes, for the rest of this process.

    Methods of `datetime` cannot be replaced but in the dicts of its classes.
    """
    for module in (time, os, pwd, grp, resource):
        for name, function in [*vars(module).items()]:
            if isinstance(function, BuiltinFunctionType) and function in _WATCHED:
                watched: Any = _InPython(function)
                setattr(module, name, watched)
                for functions in _ABILITIES:
                    if function in functions:
                        functions.add(watched)
    for kind in (date, datetime):
        [names] = gc.get_referents(vars(kind))
        for name in names.keys() & set(_CLOCK_METHODS):
            names[name] = _clock_in_python(names[name])
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


class WorldWatch:
    """Watches components; *is_on* while an iteration is replayed."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self.is_on = False

    def wrap(self, by: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the component *by*, watched while it runs."""

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if not self.is_on:
                return function(*args, **options)
            # A profiler in C is an object that cannot be set again.
            before = profiler if callable(profiler := sys.getprofile()) else None
            collects = gc.isenabled()
            # What the collector calls in the middle of a component is not the component's.
            gc.disable()
            sys.setprofile(_CallWatch(by, self._refuse).look)
            try:
                return function(*args, **options)
            finally:
                sys.setprofile(before)
                if collects:
                    gc.enable()

        return call


class _CallWatch:
    """Watches one call of a component."""

    def __init__(self, by: str, refuse: Refuse) -> None:
        self._by = by
        self._refuse = refuse
        #: Generators of random numbers that the component has seeded; these are repeatable.
        self._seeded: dict[int, object] = {}

    def look(self, frame: FrameType, event: str, function: Any) -> None:
        """Refuse a call that reads what was not recorded."""
        if event == "c_call":
            read = self._native_read(frame, function)
        elif event == "call" and frame.f_lineno in _LINES:
            read = self._read(frame)
        else:
            return
        if read and not self._is_silent(_caller(frame, event)):
            self._refuse(f"{self._by} uses {read}, of which nothing was recorded")

    def _native_read(self, frame: FrameType, function: Any) -> str | None:
        if function in _READERS:
            return _READERS[function]
        if function in _CLOCKS_WITHOUT and _CLOCKS_WITHOUT[function] == _argument_count(frame):
            return f"time.{function.__name__}"
        owner = function.__self__
        if isinstance(owner, random.Random):
            return None if id(owner) in self._seeded else "random numbers"
        if function.__name__ in _CLOCK_METHODS and isinstance(owner, type):
            return f"{owner.__name__}.{function.__name__}" if issubclass(owner, date) else None
        return None

    def _read(self, frame: FrameType) -> str | None:
        if frame.f_code in _PYTHON_READERS:
            return _PYTHON_READERS[frame.f_code]
        if frame.f_code is _SEED:
            values = frame.f_locals
            if values["a"] is None:
                return "random numbers"
            self._seeded[id(values["self"])] = values["self"]
        return None

    def _is_silent(self, frame: FrameType | None) -> bool:
        """Report whether a module that tells the component nothing makes the call."""
        is_own = True
        while frame is not None:
            module = str(frame.f_globals.get("__name__"))
            package = module.partition(".")[0]
            if package in _SILENT or (is_own and module.startswith(_SILENT_ITSELF)):
                return True
            is_own &= package in sys.stdlib_module_names
            frame = frame.f_back
        return False


def _caller(frame: FrameType, event: str) -> FrameType | None:
    """Return the frame of the component's code that calls, past the wrapper of a C function."""
    return frame.f_back if event == "call" or frame.f_code in _CALLS else frame


def _argument_count(frame: FrameType) -> int:
    """The number of arguments of the call that a frame makes now."""
    if frame.f_code in _CALLS:
        return sum(value is not None for value in frame.f_locals["args"])
    return frame.f_code.co_code[frame.f_lasti + 1]
