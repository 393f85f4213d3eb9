"""Runs a command line in bash: a time limit, an end for all it started, and bounded output."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from boyd.plugins.shell import guardian

#: Room for the line that tells how much is missing.
_MARK_ROOM = 64


class Captured:
    """Keeps at most *limit* bytes, so reading gigabytes takes no memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take what was read."""
        self.total += len(chunk)
        room = self._limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    @property
    def truncated(self) -> bool:
        """Whether something is missing."""
        return self.total > self._limit

    def text(self) -> str:
        """At most *limit* bytes of UTF-8; each byte that is not UTF-8 is a question mark."""
        if not self.truncated:
            return _decoded(self._head)
        room = self._limit - _MARK_ROOM
        head = _whole_end(bytes(self._head[: room // 2]))
        last = bytes((self._head + self._tail)[-(room - room // 2) :])
        tail = _whole_begin(last)
        omitted = self.total - len(head) - len(tail)
        return f"{_decoded(head)}\n[{omitted} bytes omitted]\n{_decoded(tail)}"


def _decoded(data: bytes | bytearray) -> str:
    # One byte for one byte: what was kept stays as long as it is.
    return data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode("utf-8")


def _whole_end(data: bytes) -> bytes:
    """Without a character at the end of which only a part is there."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            return data[:-back] if _length(byte) > back else data
    return data


def _whole_begin(data: bytes) -> bytes:
    """Without the rest of a character at the beginning."""
    for skipped in range(min(4, len(data))):
        if data[skipped] & 0xC0 != 0x80:
            return data[skipped:]
    return data


def _length(lead: int) -> int:
    """How many bytes the character has that begins with this one."""
    if lead >= 0xF0:
        return 4
    return 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1


#: Seconds between telling a command to terminate and killing it.
GRACE = 2.0
#: Seconds that output is waited for after the command has ended.
DRAIN = 2.0
#: Seconds that all this may take on top of the time limit.
MARGIN = 10.0
#: The exit code of what took too long, as `timeout` has it.
TIMED_OUT = 124
#: Seconds between two looks whether a command has ended that left its output open.
_TICK = 0.05
_CHUNK = 65536

#: Variables that a command gets from the worker; others may hold secrets.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
#: What keeps programs from waiting for a person at a terminal.
NEUTRAL = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True)
class Account:
    """The user whom a command runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"


def account(name: str) -> Account | None:
    """The user called *name*; None if that is who we are.

    Raises:
        ValueError: there is none, or we may not become it.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"there is no user {name!r}") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise ValueError(f"only root can run commands as the user {name!r}")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def environment(names: Sequence[str], user: Account | None) -> dict[str, str]:
    """What a command gets of our environment: what is harmless, and *names*."""
    ours = os.environ
    kept = {name: value for name, value in ours.items() if name in INHERITED or name[:3] == "LC_"}
    if user:
        kept |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    return {**kept, **NEUTRAL, **{name: ours[name] for name in names if name in ours}}


@dataclass(frozen=True)
class CommandResult:
    """How a command ended; `seconds` is how long it took."""

    code: int
    timed_out: bool
    output: Captured
    seconds: float


def run(
    command: str,
    *,
    timeout: float,
    workdir: str,
    limit: int,
    env: Mapping[str, str],
    user: Account | None = None,
) -> CommandResult:
    """Run *command* and wait for it, for *timeout* seconds at most.

    Then, and when we are interrupted or killed, everything that it has started is told to
    terminate, and killed after `GRACE`. What a command leaves running that ends by itself is left
    alone, but its output is read no longer than `DRAIN`.

    Args:
        command: a line for bash.
        timeout: seconds.
        workdir: an absolute folder.
        limit: bytes of output to keep.
        env: the whole environment.
        user: whom to run it as; None: us.

    Raises:
        OSError: there is no bash, or the system is out of processes or memory.
        ValueError: the command cannot be passed on.
    """
    began = time.monotonic()
    output = Captured(limit)
    process = _start(command, workdir, env, user)
    try:
        timed_out = not _follow(process, output, timeout)
        if timed_out:
            _end(process, output)
        _drain(process, output)
    finally:
        _close(process)
    code = TIMED_OUT if timed_out else _code(process.returncode)
    return CommandResult(code, timed_out, output, time.monotonic() - began)


def _start(
    command: str, workdir: str, env: Mapping[str, str], user: Account | None
) -> subprocess.Popen[bytes]:
    arguments = [str(GRACE), str(user or "-"), workdir]
    # Without `--` a line that begins with a dash would be read as options.
    line = [_bash(env), "-lc", "--", command]
    return subprocess.Popen(  # noqa: S603 - our own program; what it runs was judged by the policy
        [sys.executable, "-I", "-S", str(Path(guardian.__file__)), *arguments, *line],
        # It watches its standard input: when we die, that ends.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        env=dict(env),
        cwd="/",
        start_new_session=True,
    )


def _bash(env: Mapping[str, str]) -> str:
    found = shutil.which("bash", path=env.get("PATH"))
    if found is None:
        raise FileNotFoundError("there is no bash on the PATH")
    return found


def _follow(process: subprocess.Popen[bytes], output: Captured, seconds: float) -> bool:
    """Read until the process ends, for *seconds* at most; whether it ended."""
    until = time.monotonic() + seconds
    reading = True
    while (left := until - time.monotonic()) > 0:
        if reading:
            reading = _read(process, output, min(left, _TICK))
        else:
            with suppress(subprocess.TimeoutExpired):
                process.wait(left)
        if process.poll() is not None:
            return True
    return process.poll() is not None


def _end(process: subprocess.Popen[bytes], output: Captured) -> None:
    """Have the guardian end everything; what is written meanwhile is kept."""
    _release(process)
    if not _follow(process, output, 2 * GRACE):
        process.kill()


def _drain(process: subprocess.Popen[bytes], output: Captured) -> None:
    """Read what is still to come, unless somebody holds the pipe open for too long."""
    until = time.monotonic() + DRAIN
    while (left := until - time.monotonic()) > 0:
        if not _read(process, output, left):
            return


def _read(process: subprocess.Popen[bytes], output: Captured, seconds: float) -> bool:
    """Read what comes within *seconds*; False if there will be nothing more."""
    assert process.stdout is not None, "it was started with a pipe"
    poller = select.poll()
    poller.register(process.stdout, select.POLLIN)
    if not poller.poll(max(1, seconds * 1000)):
        return True
    chunk = process.stdout.read(_CHUNK)
    output.add(chunk or b"")
    return bool(chunk)


def _close(process: subprocess.Popen[bytes]) -> None:
    _release(process)
    if process.poll() is None:
        # We were interrupted; the guardian needs no longer than this.
        try:
            process.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None, "it was started with a pipe"
    process.stdout.close()


def _release(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "it was started with a pipe"
    with suppress(OSError):
        process.stdin.close()


def _code(status: int | None) -> int:
    """The exit code as a shell would tell it."""
    assert status is not None, "it was waited for"
    return 128 - status if status < 0 else status
