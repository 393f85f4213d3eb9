"""A child process: what it is, and one life of it after another."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from boyd.embedded import log_files
from boyd.subprocess_call import follow_parent


@dataclass(frozen=True)
class Child:
    """A program to keep running.

    Attributes:
        name: how users know it.
        argv: the program, by its path, and its arguments.
        log: the file that gets its output.
        env: its whole environment; None for that of the supervisor.
        stop_signal: asks it to end in order.
        death_signal: sent when there is no time: the supervisor died, or a user insists.
        grace: seconds between `stop_signal` and SIGKILL.
        pass_fds: descriptors that it inherits.
        fatal: exit statuses that say, at the first start, that another one would fail as well.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] | None = field(default=None, repr=False)  # may hold secrets
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    grace: float = 10.0
    pass_fds: tuple[int, ...] = ()
    fatal: frozenset[int] = frozenset()


class Life:
    """A running process of *child*, in a session and process group of its own.

    Raises:
        OSError: the program or its log file cannot be opened, or the system is out of processes.
    """

    def __init__(self, child: Child) -> None:
        log = log_files.open_log(child.log)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ours, and no shell
                child.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child.env,
                pass_fds=child.pass_fds,
                start_new_session=True,
                preexec_fn=partial(_before_exec, child.death_signal, os.getpid()),
            )
        finally:
            os.close(log)
        self.pid = self._process.pid
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has lived."""
        return time.monotonic() - self.started

    @property
    def status(self) -> int | None:
        """Its exit status once `ended` has said how it ended; negative for a signal."""
        return self._process.returncode

    def ended(self) -> str | None:
        """How it ended, in words, once it has; what it left running in its group is killed."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if self._process.returncode is None and os.waitid(os.P_PID, self.pid, options) is None:
            return None
        return self.kill()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone: what it started is its own to stop."""
        if self._process.returncode is None:  # until then nobody else can have its pid
            os.kill(self.pid, number)

    def kill(self) -> str:
        """Kill the whole group and say how the process ended."""
        if self._process.returncode is None:
            # Before the process is reaped: afterwards the number could be someone else's.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return _in_words(self._process.wait())


def _before_exec(death_signal: signal.Signals, parent: int) -> None:
    if death_signal is not signal.SIGKILL:
        # Until exec the handlers are those of the supervisor, and would swallow it.
        signal.signal(death_signal, signal.SIG_DFL)
    follow_parent(death_signal, parent)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
