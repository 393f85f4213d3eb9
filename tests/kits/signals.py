"""Signals to processes, which have taken effect when the call returns.

Of a process with several threads, one takes a signal and ends or stops the others. Until it has,
and it may be waiting for a processor or for its memory, the others go on.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

#: The states of a thread on which a signal has taken effect.
_HALTED: dict[int, str] = {signal.SIGSTOP: "TZX", signal.SIGKILL: "ZX"}

#: What files of a process say when it ends meanwhile.
_GONE = (FileNotFoundError, ProcessLookupError)


def signal_process(pid: int, number: int) -> None:
    """Send a signal to a process."""
    os.kill(pid, number)
    _await_effect([pid], number)


def signal_group(leader: int, number: int) -> None:
    """Send a signal to a process that leads a group, and to all of that group."""
    members = [pid for pid in psutil.pids() if _group(pid) == leader]
    os.killpg(leader, number)
    _await_effect(members, number)


def _group(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _await_effect(pids: list[int], number: int) -> None:
    deadline = time.monotonic() + 120
    while number in _HALTED and not all(_is_halted(pid, _HALTED[number]) for pid in pids):
        if time.monotonic() > deadline:
            raise AssertionError(f"processes {pids} have not obeyed signal {number}")
        time.sleep(0.001)


def _is_halted(pid: int, states: str) -> bool:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except _GONE:
        return True
    return all(_state(thread) in states for thread in threads)


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    except _GONE:
        return "X"


def is_alive(pid: int) -> bool:
    """Check whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
