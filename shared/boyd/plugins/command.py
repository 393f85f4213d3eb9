"""Runs a command: no shell, a time limit, and only the end of what it printed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: How much of a command's output is kept, in bytes: the end says why it failed.
OUTPUT_LIMIT = 4096


@dataclass(frozen=True)
class CompletedCommand:
    """A command that ended; *output* is the end of what it wrote to stdout and stderr."""

    code: int
    output: str


class CommandFailed(Exception):
    """A command could not be started, took too long or ended with a code other than 0."""


def run(
    argv: Sequence[str],
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> CompletedCommand:
    """Run *argv* in a process group of its own and wait for it.

    Only the command itself is waited for: a service that it leaves running is left alone. When it
    takes too long, or we are interrupted, the whole group is killed.

    Args:
        argv: the program and its arguments.
        timeout: seconds it may take.
        cwd: the folder to run it in.
        env: its environment; None: ours.

    Raises:
        CommandFailed: it cannot be started or took too long.
    """
    # A file and not a pipe: a pipe would make us wait for services that inherited it, and kill
    # them with SIGPIPE afterwards.
    with tempfile.TemporaryFile() as output:
        process = _start(argv, cwd, env, output)
        try:
            process.wait(timeout)
        except BaseException as error:
            kill_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                said = _said(_tail(output))
                raise CommandFailed(f"{argv[0]} took longer than {timeout:g} s{said}") from None
            raise
        return CompletedCommand(process.returncode, _tail(output))


def run_checked(argv: Sequence[str], timeout: float, cwd: Path | None = None) -> str:
    """Run a command that must end with 0; what it printed.

    Raises:
        CommandFailed: it did not; the message holds the end of its output.
    """
    finished = run(argv, timeout, cwd)
    if finished.code:
        raise CommandFailed(f"{argv[0]} {_ended(finished.code)}{_said(finished.output)}")
    return finished.output


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started, and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(
    argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - arguments come from the agent file, no shell
            list(argv),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{argv[0]} cannot be started: {error}") from None


def _tail(output: IO[bytes]) -> str:
    size = os.fstat(output.fileno()).st_size
    output.seek(max(0, size - OUTPUT_LIMIT))
    return output.read(OUTPUT_LIMIT).decode("utf-8", "replace").strip()


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _said(output: str) -> str:
    return f": {output}" if output else ""
