"""Child processes: their description, and a running process."""

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
        name: its name for users.
        argv: the path of the program and its arguments.
        log: the file for its output.
        env: its whole environment; None to inherit.
        stop_signal: requests an orderly end.
        death_signal: sent when the supervisor dies or a user insists.
        grace: seconds between `stop_signal` and SIGKILL.
        pass_fds: inherited descriptors.
        fatal: exit statuses of a first start that rule out another one.
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
    """A running process of *child* in its own session and process group.

    Raises:
        OSError: the program or its log file cannot be opened, or the system is out of processes.
    """

    def __init__(self, child: Child) -> None:
        log = log_files.open_log(child.log)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, no shell
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
        """Seconds since its start."""
        return time.monotonic() - self.started

    @property
    def status(self) -> int | None:
        """Its exit status once `ended` has returned a reason; negative for a signal."""
        return self._process.returncode

    def ended(self) -> str | None:
        """The reason of its end once it has ended; kills the rest of its group."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if self._process.returncode is None and os.waitid(os.P_PID, self.pid, options) is None:
            return None
        return self.kill()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its group."""
        if self._process.returncode is None:  # until it is reaped, its pid is not reused
            os.kill(self.pid, number)

    def kill(self) -> str:
        """Kill the whole group and return the reason of the end."""
        if self._process.returncode is None:
            # Before the process is reaped, as its pid may be reused afterwards.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return _in_words(self._process.wait())


def _before_exec(death_signal: signal.Signals, parent: int) -> None:
    if death_signal is not signal.SIGKILL:
        # Until exec the supervisor's handlers are active and would swallow it.
        signal.signal(death_signal, signal.SIG_DFL)
    follow_parent(death_signal, parent)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
