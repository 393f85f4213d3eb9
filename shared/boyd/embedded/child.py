"""Child processes: their description, a running process, and their log files."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from boyd.embedded.state_folder import private_folder
from boyd.sandbox.subprocess_call import follow_parent

ROTATE_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 16 * 1024
#: Elsewhere the libraries of the system may use threads, and a process with threads must not fork.
CAN_FORK = sys.platform == "linux"


@dataclass(frozen=True)
class ChildSpec:
    """A program to keep running.

    Attributes:
        name: its name for users.
        argv: the path of the program and its arguments.
        main: the same as a function, which is forked if the system `CAN_FORK`; then the child
            shares the memory of what was imported before.
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
    main: Callable[[], object] | None = None
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
            fork = CAN_FORK and child.main
            self.pid, self._wait = _fork(child, log) if fork else _execute(child, log)
        finally:
            os.close(log)
        self.started = time.monotonic()
        #: The exit status once `death` has returned a reason; negative for a signal.
        self.status: int | None = None

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.started

    def death(self) -> str | None:
        """The cause of its end once it has ended; kills the rest of its group."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if self.status is None and os.waitid(os.P_PID, self.pid, options) is None:
            return None
        return self.kill()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its group."""
        if self.status is None:  # until it is reaped, its pid is not reused
            os.kill(self.pid, number)

    def kill(self) -> str:
        """Kill the whole group and return the reason of the end."""
        if self.status is None:
            # Before the process is reaped, as its pid may be reused afterwards.
            # One that was forked just now has no group yet.
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)
            self.status = self._wait()
        code = self.status
        if code >= 0:
            return f"exited with {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


def _execute(child: ChildSpec, log: int) -> tuple[int, Callable[[], int]]:
    process = subprocess.Popen(  # noqa: S603 - our own command, no shell
        child.argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=child.env,
        pass_fds=child.pass_fds,
        start_new_session=True,
        preexec_fn=partial(_before_exec, child.death_signal, os.getpid()),
    )
    return process.pid, process.wait


def _fork(child: ChildSpec, log: int) -> tuple[int, Callable[[], int]]:
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the terminal may be gone
            stream.flush()  # or both would write what it holds
    # In the child no collection may close descriptors of the parent, as others have their numbers
    # by then, nor write to all objects, which would copy the memory that is shared.
    gc.collect()
    gc.freeze()
    with _block_signals():  # which our handlers would swallow in the new process
        pid = os.fork()
        if pid == 0:
            _become(child, log, parent)
    return pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def _block_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become(child: ChildSpec, log: int, parent: int) -> NoReturn:
    """Run *child* in this process, which was forked, and end it.

    What it has of its parent is given up, but not closed in order: that would close it there, too.
    """
    status = 1
    try:
        os.setsid()
        follow_parent(child.death_signal, parent)
        _reset_signals()
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for number, stream in enumerate((nowhere, log, log)):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        # New ones, as those of the parent buffer like a terminal.
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        if child.env is not None:
            os.environ.clear()
            os.environ.update(child.env)
        with suppress(OSError):  # the name that `ps` shows; without /proc it keeps its old one
            Path("/proc/self/comm").write_text(f"boyd {child.name}")
        assert child.main is not None
        child.main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing may return into the code of the parent
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


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
    steps are lost. Nothing happens on a full disk: the copy before stays, too.
    """
    if log_size(path) <= limit:
        return
    copy = path.with_name(f"{path.name}.new")
    try:
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
        copy.replace(path.with_name(f"{path.name}.1"))
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
