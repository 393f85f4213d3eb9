"""Runs a command line in bash, with a time limit, full cleanup and bounded output."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from boyd.sandbox import guardian
from boyd.sandbox.accounts import Account

#: Room for the line that counts the omitted bytes.
_MARK_ROOM = 64
#: Parts of a character of which the rest is missing.
_HALF_AT_END = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z")
_HALF_AT_START = re.compile(rb"\A[\x80-\xbf]{1,3}(?=[^\x80-\xbf])")


class CapturedOutput:
    """The first and last bytes of an output, at most *limit*, however long it is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk."""
        self.total += len(chunk)
        room = self._limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    @property
    def is_truncated(self) -> bool:
        """True if bytes were omitted."""
        return self.total > self._limit

    def text(self) -> str:
        """The output as UTF-8, with question marks for invalid bytes."""
        if not self.is_truncated:
            return _decode(self._head)
        room = self._limit - _MARK_ROOM
        head = _HALF_AT_END.sub(b"", self._head[: room // 2])
        tail = _HALF_AT_START.sub(b"", (self._head + self._tail)[-(room - room // 2) :])
        omitted = self.total - len(head) - len(tail)
        return f"{_decode(head)}\n[{omitted} bytes omitted]\n{_decode(tail)}"


def _decode(data: bytes | bytearray) -> str:
    # One byte for one byte, which keeps the length.
    return data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode("utf-8")


#: Seconds between terminating and killing a command.
GRACE = 2.0
#: Seconds to wait for output after the command has ended.
DRAIN = 2.0
#: Seconds that cleanup may take beyond the time limit.
MARGIN = 10.0
#: The exit code after a timeout, as in `timeout`.
TIMED_OUT = 124
#: Seconds between checks whether a command has ended that left its output open.
_TICK = 0.05
_CHUNK = 65536

#: Variables passed on from the worker; others may hold secrets.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
#: Variables that keep programs from waiting for a person at a terminal.
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


def environment(names: Sequence[str], user: Account | None) -> dict[str, str]:
    """The environment of a command: harmless variables of ours, and *names*."""
    ours = os.environ
    variables = {
        name: value for name, value in ours.items() if name in INHERITED or name[:3] == "LC_"
    }
    if user:
        variables |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    return {**variables, **NEUTRAL, **{name: ours[name] for name in names if name in ours}}


@dataclass(frozen=True)
class CommandResult:
    """The end of a command; `seconds` is the time it took."""

    code: int
    timed_out: bool
    output: CapturedOutput
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
    """Run *command* in bash and wait for it, at most *timeout* seconds.

    Of the output *limit* bytes are kept; *workdir* is absolute, *env* the whole environment. After
    a timeout, or when we are interrupted or killed, everything it has started is terminated, and
    killed after `GRACE`. Processes left behind by a command that ends by itself keep running, but
    their output is read for at most `DRAIN`.

    Raises `OSError` if bash is missing or the system is out of processes or memory, and
    `ValueError` if the command cannot be passed on.
    """
    began = time.monotonic()
    output = CapturedOutput(limit)
    process = _start(command, workdir, env, user)
    try:
        timed_out = not _follow(process, output, timeout)
        if timed_out:
            _end(process, output)
        _drain(process, output)
    finally:
        _close(process)
    status = TIMED_OUT if timed_out else process.returncode
    # The exit code as a shell reports it.
    code = 128 - status if status < 0 else status
    return CommandResult(code, timed_out, output, time.monotonic() - began)


def _start(
    command: str, workdir: str, env: Mapping[str, str], user: Account | None
) -> subprocess.Popen[bytes]:
    bash = shutil.which("bash", path=env.get("PATH"))
    if bash is None:
        raise FileNotFoundError("bash is not on the PATH")
    # Without `--`, a line that starts with a dash would be taken for options.
    return start_guarded([bash, "-lc", "--", command], workdir, env, user)


def start_guarded(
    argv: Sequence[str],
    workdir: str,
    env: Mapping[str, str],
    user: Account | None,
    *,
    stdin: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start *argv*, a path and arguments, below a guardian that ends it when our pipe to it closes.

    With a descriptor *stdin* that is its input, its standard error has a pipe of its own, and what
    it leaves running is ended, too. Raises `OSError` and `ValueError`.
    """
    talks = stdin is not None
    arguments = ["end" if talks else "keep", str(stdin) if talks else "-", str(user or "-")]
    return subprocess.Popen(  # noqa: S603 - our own program, no shell; our callers judge the command
        [
            *(sys.executable, "-I", "-S", str(Path(guardian.__file__)), str(GRACE)),
            *(*arguments, workdir, *argv),
        ],
        # The guardian watches its standard input, which ends when we die.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if talks else subprocess.STDOUT,
        pass_fds=() if stdin is None else (stdin,),
        bufsize=0,
        env=dict(env),
        cwd="/",
        start_new_session=True,
    )


def _follow(process: subprocess.Popen[bytes], output: CapturedOutput, seconds: float) -> bool:
    """Read until the process ends, at most *seconds*; returns whether it ended."""
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


def _end(process: subprocess.Popen[bytes], output: CapturedOutput) -> None:
    """Let the guardian end everything, and keep the output written until then."""
    _release(process)
    if not _follow(process, output, 2 * GRACE):
        process.kill()


def _drain(process: subprocess.Popen[bytes], output: CapturedOutput) -> None:
    """Read the remaining output, unless a process holds the pipe open for too long."""
    until = time.monotonic() + DRAIN
    while (left := until - time.monotonic()) > 0:
        if not _read(process, output, left):
            return


def _read(process: subprocess.Popen[bytes], output: CapturedOutput, seconds: float) -> bool:
    """Read output that arrives within *seconds*; False at its end."""
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
        # We were interrupted; the guardian ends within this time.
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
