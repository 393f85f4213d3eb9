"""Runs one command and cleans up after it: a standalone program, started by path by `runner`.

It adopts processes that the command leaves in other sessions, so that all of them can be found.
When its standard input ends - the worker closed it, or died - everything is terminated and, after a
grace period, killed. Its exit code is that of the command. It imports nothing of Boyd, so that it
starts within milliseconds.

Arguments: the grace period in seconds, `keep` or `end` for what the command leaves running, the
descriptor of its input or `-`, `uid:gid:group,group` or `-`, the folder, and the command, whose
program is given by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Seconds between checks for remaining processes.
_TICK = 0.02
#: Seconds that killed processes may take to end.
_KILLING = 1.0
CANNOT_RUN = 126
#: A hint for a program that is there, and whose interpreter is not.
_FIRST_LINE = (
    "; its first line has to name an interpreter, as in #!/bin/sh, without a carriage return"
)


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code, 128 plus the signal if one killed it."""
    grace, leftovers, given_input, account, folder, *command = arguments
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_up()
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, given_input, account, folder, ours)
    # Only the command may hold its pipes.
    for descriptor in (1, 2, *([] if given_input == "-" else [int(given_input)])):
        os.close(descriptor)
    while (code := _reap(child)) is None:
        if _should_end(wake):
            return _end(float(grace))
    if leftovers == "end":
        _end(float(grace))
    return code


def _wake_up() -> int:
    """A descriptor that delivers the numbers of signals received."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    for number in (signal.SIGCHLD, *_ENDINGS):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _should_end(wake: int) -> bool:
    """Wait for the next event; returns whether it asks us to end."""
    ready, _, _ = select.select([0, wake], [], [])
    signals = os.read(wake, 4096) if wake in ready else b""
    return 0 in ready or any(number in signals for number in _ENDINGS)


def _become(command: list[str], given_input: str, account: str, folder: str, parent: int) -> None:
    try:
        os.setsid()
        _forget_signals()
        source = os.open(os.devnull, os.O_RDONLY) if given_input == "-" else int(given_input)
        os.dup2(source, 0)
        os.close(source)
        if account != "-":
            _change_user(account)
        os.chdir(folder)
        # After the change of user, which would reset it.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            # No search on the PATH: the new user may not be able to read the modules it imports.
            os.execv(command[0], command)  # noqa: S606 - that is what it is for
    except Exception as error:  # noqa: BLE001 - nobody else can report it
        code = error.errno if isinstance(error, OSError) and not error.filename else None
        hint = _FIRST_LINE if code in (errno.ENOENT, errno.ENOEXEC) else ""
        os.write(2, f"{command[0]} cannot be started: {error}{hint}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


def _forget_signals() -> None:
    """Undo the signal handling inherited from the worker."""
    signal.set_wakeup_fd(-1)
    for number in (*_ENDINGS, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _change_user(account: str) -> None:
    uid, gid, groups = account.split(":")
    os.setgroups([int(group) for group in groups.split(",")])
    os.setgid(int(gid))
    os.setuid(int(uid))


def _reap(child: int = 0) -> int | None:
    """Reap all processes that have ended; returns the exit code of *child* if it is one of them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    return 128 - code if code is not None and code < 0 else code


def _end(grace: float) -> int:
    """Terminate all processes, and kill those left after the grace period."""
    _signal(signal.SIGTERM)
    if not _wait_for_end(grace):
        until = time.monotonic() + _KILLING
        while time.monotonic() < until:
            # Repeatedly: a process may start another one before it dies.
            _stop(until)
            _signal(signal.SIGKILL)
            if _wait_for_end(_TICK):
                break
    return 128 + signal.SIGKILL


def _wait_for_end(seconds: float) -> bool:
    """Wait for all processes to end; returns whether they did."""
    until = time.monotonic() + seconds
    while True:
        _reap()
        if not _descendants():
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_TICK)


def _stop(until: float) -> None:
    """Stop all processes: a fork bomb starts them faster than they can be killed."""
    stopped: set[int] = set()
    while time.monotonic() < until and (others := set(_descendants()) - stopped):
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= others


def _signal(number: signal.Signals) -> None:
    for pid in _descendants():
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _descendants() -> list[int]:
    """All live processes started by the command, in any session."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs milliseconds
        if name.isdigit() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    pids, unseen = [], [os.getpid()]
    while unseen:
        below = children.get(unseen.pop(), [])
        pids += below
        unseen += below
    return pids


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs milliseconds
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in b"ZX" else int(parent)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
