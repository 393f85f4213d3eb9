"""Runs commands without a shell, and `systemctl`, within a time limit; keeps the end of output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field

from boyd.errors import LimitExceeded
from boyd.settings.process_settings import PREFIX

#: Bytes kept of the end of a command's output, which usually explains a failure.
OUTPUT_LIMIT = 4096
#: The limits that end a process, by the signal.
_LIMITS: Mapping[int, Literal["cpu", "file size"]] = {
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "file size",
}


@dataclass(frozen=True)
class CompletedCommand:
    """A finished command.

    Attributes:
        code: its exit code, or the number of the signal that ended it, negative.
        output: the end of its stdout and stderr.
        truncated: it printed more, of which the beginning is not in *output*.
    """

    code: int
    output: str
    truncated: bool = False


class CommandFailed(Exception):
    """A command could not be started, took too long or failed."""


class CommandTimeout(CommandFailed):
    """A command took too long; what it asked other processes to do may still happen."""


def run(
    argv: Sequence[str],
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    limit: int = OUTPUT_LIMIT,
    keep: Sequence[int] = (),
    grace: float = 0.0,
) -> CompletedCommand:
    """Run *argv* in its own process group and wait for it, at most *timeout* seconds.

    The last *limit* bytes of its output are kept. It inherits the file descriptors *keep*.

    Services it leaves running are left alone. After a timeout or an interruption, the process is
    terminated and has *grace* seconds to end, and then the group is killed. Raises `CommandFailed`
    if it cannot be started, and `CommandTimeout` if it took too long.
    """
    # A pipe would make us wait for services that inherited it, and kill them with SIGPIPE later.
    with tempfile.TemporaryFile() as output:
        process = start(argv, cwd, env, output, keep)
        try:
            process.wait(timeout)
        except BaseException as error:
            if grace:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace)
            kill_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                suffix = _suffix(_tail(output, OUTPUT_LIMIT))
                raise CommandTimeout(f"{argv[0]} took longer than {timeout:g} s{suffix}") from None
            raise
        truncated = os.fstat(output.fileno()).st_size > limit
        return CompletedCommand(process.returncode, _tail(output, limit), truncated)


def run_checked(argv: Sequence[str], timeout: float, cwd: Path | None = None) -> str:
    """The output of a command that must succeed; raises `CommandFailed` with its end otherwise.

    Raises `LimitExceeded` if a limit of its sandbox has ended it.
    """
    finished = run(argv, timeout, cwd)
    if code := finished.code:
        check_limit(argv[0], code)
        ending = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        raise CommandFailed(f"{argv[0]} {ending}{_suffix(finished.output)}")
    return finished.output


def check_limit(program: str, code: int) -> None:
    """Raise `LimitExceeded` if a limit of the sandbox has ended *program*, by its exit code."""
    limit = _LIMITS.get(-code if code < 0 else code - 128)
    if limit:
        raise LimitExceeded(limit, f"{program} was killed for its limit of {limit}")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group and reap the process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment() -> dict[str, str]:
    """The environment of this process without the settings of Boyd, some of which are secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def start(
    argv: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    output: IO[bytes],
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start *argv* in its own session, without input; raises `CommandFailed`.

    It inherits the file descriptors *keep*, and without *env* this `environment`.
    """
    try:
        return subprocess.Popen(  # noqa: S603 - arguments come from the agent file, no shell
            list(argv),
            cwd=cwd,
            env=environment() if env is None else env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=keep,
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{argv[0]} cannot be started: {error}") from None


def _tail(output: IO[bytes], limit: int) -> str:
    size = os.fstat(output.fileno()).st_size
    output.seek(max(0, size - limit))
    return output.read(limit).decode("utf-8", "replace").strip()


def _suffix(output: str) -> str:
    return f": {output}" if output else ""


#: Seconds until a unit has to have started or stopped.
SYSTEMCTL_TIMEOUT = 45.0
#: Bytes of the properties of all units that are asked about.
MAX_BYTES = 4_194_304

UnitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9@_.:\\][A-Za-z0-9@_.:\\-]{0,254}$")]


class Systemctl:
    """The systemd of the host, or of the user."""

    def __init__(self, *, user: bool) -> None:
        self._argv = ["systemctl", "--user"] if user else ["systemctl"]

    def call(self, *arguments: str, timeout: float = SYSTEMCTL_TIMEOUT) -> CompletedCommand:
        """Run it; raises `CommandFailed` if it cannot be started or took too long."""
        return run([*self._argv, *arguments], timeout, limit=MAX_BYTES)

    def check_call(self, *arguments: str, timeout: float = SYSTEMCTL_TIMEOUT) -> CompletedCommand:
        """Run it; raises `CommandFailed` if it fails."""
        finished = self.call(*arguments, timeout=timeout)
        if finished.code:
            check_limit(self._argv[0], finished.code)
            raise CommandFailed(f"{' '.join(self._argv)} {arguments[0]}: {finished.output[-2000:]}")
        return finished

    def show(
        self, units: Iterable[str], properties: Iterable[str], timeout: float = 15.0
    ) -> list[dict[str, str]]:
        """The properties of each unit that is loaded and matches a name or pattern.

        Raises:
            CommandFailed: systemd cannot be asked, or says too much.
        """
        finished = self.check_call(
            "show", f"--property={','.join(properties)}", "--", *units, timeout=timeout
        )
        if finished.truncated:
            raise CommandFailed(f"systemctl show printed more than {MAX_BYTES} bytes")
        blocks = (block.splitlines() for block in finished.output.split("\n\n"))
        sections = [dict(line.split("=", 1) for line in block if "=" in line) for block in blocks]
        return [section for section in sections if section]
