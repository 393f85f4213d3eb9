"""Child processes: their description, a running process, and their log files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from boyd.embedded.state_folder import private_folder
from boyd.sandbox.subprocess_call import follow_parent

ROTATE_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 16 * 1024


@dataclass(frozen=True)
class ChildSpec:
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


class ChildProcess:
    """A running process of *child* in its own session and process group.

    Raises:
        OSError: the program or its log file cannot be opened, or the system is out of processes.
    """

    def __init__(self, child: ChildSpec) -> None:
        log = open_log(child.log)
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

    def death(self) -> str | None:
        """The cause of its end once it has ended; kills the rest of its group."""
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
        code = self._process.wait()
        if code >= 0:
            return f"exited with {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


def _before_exec(death_signal: signal.Signals, parent: int) -> None:
    if death_signal is not signal.SIGKILL:
        # Until exec the supervisor's handlers are active and would swallow it.
        signal.signal(death_signal, signal.SIG_DFL)
    follow_parent(death_signal, parent)


def log_path(state: Path, name: str) -> Path:
    """The log file of child *name*; creates its folder.

    Raises:
        ConfigError: the folder cannot be used.
    """
    return private_folder(state / "logs") / f"{name}.log"


def open_log(path: Path) -> int:
    """A descriptor that appends to *path*, even after truncation."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def log_size(path: Path) -> int:
    """The size of *path* in bytes; 0 if it does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def rotate_log(path: Path, limit: int = ROTATE_BYTES) -> None:
    """Move the content of *path* to `<path>.1` if it exceeds *limit* bytes.

    The child keeps its descriptor, so the file is copied and emptied; lines written between the two
    steps are lost. Nothing happens on a full disk.
    """
    if log_size(path) <= limit:
        return
    copy = path.with_name(f"{path.name}.1")
    try:
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
        os.truncate(path, 0)
    except OSError:
        copy.unlink(missing_ok=True)


def last_log_lines(path: Path, count: int = 10, since: int = 0) -> list[str]:
    """The last *count* non-blank lines behind offset *since*."""
    end = log_size(path)
    since = since if since <= end else 0  # it was rotated
    try:
        with path.open("rb") as file:
            file.seek(max(since, end - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
