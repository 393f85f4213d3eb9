"""A worker that consumes from several brokers: a process for each, which start and end together.

A Celery worker consumes from one broker. The processes share nothing but the terminal, and a broker
that is away stops only the one that needs it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from types import FrameType

from boyd.sandbox.subprocess_call import follow_parent

#: Signals that are passed on; a terminal sends its own to all of them.
_PASSED = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


def run_group(brokers: int) -> int:
    """Run this command once for each broker, and return the first exit status that is not 0.

    A process without agents ends at once. When one fails, the others are told to end too, so that
    whoever supervises this one starts all of them again.
    """
    group = _Group()
    for broker in range(1, brokers + 1):
        group.start([*sys.argv[1:], "--broker", str(broker)])
    return group.wait()


class _Group:
    """The processes; a signal to this process reaches all of them."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._ended_by: int | None = None
        for number in _PASSED:
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGINT, lambda *_: None)

    def start(self, arguments: list[str]) -> None:
        command = [sys.executable, "-P", "-m", "boyd_cli", *arguments]
        follow = partial(follow_parent, signal.SIGTERM, os.getpid())
        child = subprocess.Popen(command, preexec_fn=follow)  # noqa: S603 - our own arguments
        self._children[child.pid] = child
        if self._ended_by is not None:  # meanwhile
            child.send_signal(self._ended_by)

    def wait(self) -> int:
        status = 0
        while self._children:
            pid, raw = os.wait()
            child = self._children.pop(pid)
            child.returncode = os.waitstatus_to_exitcode(raw)
            if child.returncode != 0 and status == 0:
                status = child.returncode if child.returncode > 0 else 128 - child.returncode
                self._pass_on(signal.SIGTERM)
        return status

    def _pass_on(self, number: int, _: FrameType | None = None) -> None:
        self._ended_by = number
        for child in list(self._children.values()):
            child.send_signal(number)
