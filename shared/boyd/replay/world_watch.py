"""Refuses what components read of the world while they are replayed: clocks, chance, files.

Python tells a profiler of every call, also of functions in C, whatever name they were imported by.
Only components and hooks are watched, so that it costs the rest nothing.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import resource
import socket
import sys
import time
import uuid
from collections.abc import Callable
from datetime import date
from functools import wraps
from types import CodeType, FrameType
from typing import Any, NoReturn

#: Is told what a component does, and raises.
Refuse = Callable[[str], NoReturn]

_CLOCKS = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("clock_gettime", "clock_gettime_ns"),
)
_SYSTEM = (
    *("stat", "lstat", "fstat", "statvfs", "access", "readlink", "getcwd", "getloadavg"),
    *("cpu_count", "sched_getaffinity", "times", "uname", "getpid", "getppid"),
    *("urandom", "getrandom", "getuid", "geteuid", "getgid", "getegid", "getlogin"),
)
#: Functions that read something, with their names.
_READERS: dict[object, str] = {
    **{getattr(time, name): f"time.{name}" for name in _CLOCKS},
    **{getattr(os, name): f"os.{name}" for name in _SYSTEM if hasattr(os, name)},
    getattr(uuid, "_generate_time_safe", None): "uuid.uuid1",
    socket.gethostname: "socket.gethostname",
    resource.getrusage: "resource.getrusage",
}
#: Those that read the clock if they are called with that many arguments.
_CLOCKS_WITHOUT: dict[object, int] = {
    time.localtime: 0,
    time.gmtime: 0,
    time.ctime: 0,
    time.asctime: 0,
    time.strftime: 1,
}
_CLOCK_METHODS = ("now", "utcnow", "today")
_SEED = random.Random.seed.__code__
#: Functions of Python that read something, some of them only when they are first called.
_PYTHON_READERS: dict[CodeType, str] = {
    **{
        getattr(type(os.environ), name).__code__: "the environment"
        for name in ("__getitem__", "__iter__", "__len__", "copy", "__repr__")
    },
    platform.uname.__code__: "platform.uname",
}
#: Modules that look at the world without telling the component.
_SILENT = ("importlib", "zipimport", "linecache", "logging", "warnings", "traceback", "zoneinfo")
#: Likewise, if the call is their own and not that of a function that they call.
_SILENT_ITSELF = ("pydantic._internal.", "pydantic.plugin.", "boyd.replay.", "boyd.text.redaction")


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
            before, collects = sys.getprofile(), gc.isenabled()
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
        elif event == "call":
            read = self._read(frame)
        else:
            return
        if read and not self._is_silent(frame):
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


def _argument_count(frame: FrameType) -> int:
    """The number of arguments of the call that a frame makes now."""
    return frame.f_code.co_code[frame.f_lasti + 1]
