"""Runs one command and sees to its end: a program of its own, started by path by `runner`.

It adopts what the command leaves behind in other sessions, so that all of it can be found. When
its standard input ends - the worker closed it, or died - everything is told to terminate and after
a grace period killed. Its exit code is that of the command. It imports nothing of Boyd, so that it
is there in milliseconds.

Arguments: seconds of grace, `uid:gid:group,group` or `-`, the folder, and the command,
its program by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Seconds between two looks for what is left.
_TICK = 0.02
#: Seconds within which what was killed has to be gone.
_KILLING = 1.0
CANNOT_RUN = 126


def main(arguments: list[str]) -> int:
    """Run the command; its exit code, 128 and the signal's number if one killed it."""
    grace, account, folder, *command = arguments
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_up()
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, account, folder, ours)
    # Only the command is to hold the pipe for its output.
    os.close(1)
    os.close(2)
    while (code := _reap(child)) is None:
        if _told(wake):
            return _end(float(grace))
    return code


def _wake_up() -> int:
    """A descriptor that can be read when a signal has come; the byte is its number."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    for number in (signal.SIGCHLD, *_ENDINGS):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _told(wake: int) -> bool:
    """Wait for something to happen; whether it is time to end."""
    ready, _, _ = select.select([0, wake], [], [])
    signals = os.read(wake, 4096) if wake in ready else b""
    return 0 in ready or any(number in signals for number in _ENDINGS)


def _become(command: list[str], account: str, folder: str, parent: int) -> None:
    """Turn this process into the command."""
    try:
        os.setsid()
        _forget_signals()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if account != "-":
            _change_user(account)
        os.chdir(folder)
        # After the change of the user, which would take it back.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            # No search for the program: what that imports the new user may not be able to read.
            os.execv(command[0], command)  # noqa: S606 - that is what it is for
    except Exception as error:  # noqa: BLE001 - nobody else is left to tell it
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


def _forget_signals() -> None:
    """What a worker ignores or blocks, a command need not."""
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
    """Take leave of all that has ended; the exit code of *child* if it is among it."""
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
    """Terminate everything, and kill what is left after the grace period."""
    _signal(signal.SIGTERM)
    if not _gone(grace):
        until = time.monotonic() + _KILLING
        while time.monotonic() < until:
            # Again and again: what is killed may have started something meanwhile.
            _signal(signal.SIGKILL)
            if _gone(_TICK):
                break
    return 128 + signal.SIGKILL


def _gone(seconds: float) -> bool:
    """Wait until nothing is left, for that long at most; whether nothing is."""
    until = time.monotonic() + seconds
    while True:
        _reap()
        if not _descendants():
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_TICK)


def _signal(number: signal.Signals) -> None:
    for pid in _descendants():
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _descendants() -> list[int]:
    """All that the command has started and that still runs, whatever session it is in."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs milliseconds
        if name.isdigit() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found, unseen = [], [os.getpid()]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


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
