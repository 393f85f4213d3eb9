"""Calls a function in a sandbox: a process that is limited before it loads anything.

With bubblewrap the process has namespaces of its own: it sees no other processes, files are
read-only except for its folders, and its network has nothing but its destinations. Without it, the
kernel's Landlock and seccomp restrict files and network. A guardian changes the user, and ends
everything when the worker ends.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import ValidationError

from boyd.errors import Overrun
from boyd.models import Model, explain
from boyd.models.action import LimitName, LimitViolation, Sandbox
from boyd.sandbox import guardian, inside
from boyd.sandbox.accounts import Account, account
from boyd.sandbox.inside import Forwarder
from boyd.text.formatting import visible
from boyd.text.json_limits import check_values

_log = logging.getLogger("boyd.sandbox")

#: The means that keep a sandbox apart.
Isolation = Literal["bubblewrap", "kernel"]

#: Seconds between terminating and killing what is left.
_GRACE = 0.5
#: Seconds in which the guardian ends after that.
_ENDING = 5.0
#: Lines that are logged of what one call prints, and bytes of each.
_MAX_LINES, _MAX_LINE = 1000, 2000
#: Bytes of an answer, its values without those of the result, and the values of the result.
_MAX_ANSWER, _MAX_FIELDS, _MAX_VALUES = 16_000_000, 100, 500_000
#: Exit codes of a process that was killed for a limit.
_KILLED: dict[int, LimitName] = {128 + 24: "cpu", 128 + 25: "file size"}
#: Variables that a sandbox gets: a list of secrets to leave out would never be complete.
_PASSED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "VIRTUAL_ENV"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
}
_DEVICES = ("null", "zero", "full", "random", "urandom")
#: The first of the addresses that stand for destinations with a name.
_ADDRESS = "127.77.{}.{}"


class _Answer(Model):
    """An answer as a sandbox sends it."""

    answer: str | None = None
    error: str = ""
    violation: LimitViolation | None = None


class CannotConfine(RuntimeError):
    """A limit of the sandbox cannot be enforced on this host; nothing was started."""


@dataclass(frozen=True)
class ConfinedAnswer:
    """The end of a function in a sandbox.

    Attributes:
        answer: its result; None if it failed.
        error: of the function, or why its process ended without an answer.
        violation: the first attempt to go beyond the sandbox.
        lost: it ended without an answer.
    """

    answer: str | None = None
    error: str = ""
    violation: LimitViolation | None = None
    lost: bool = False


def call(
    sandbox: Sandbox,
    isolation: Isolation,
    function: str,
    argument: str,
    timeout: float,
    log: IO[bytes] | None = None,
) -> ConfinedAnswer:
    """Call *function*, `module:name` of one from text to text, in a new sandbox.

    What it prints goes to *log*, or else line by line to that of this process, marked as its own.
    After *timeout* seconds everything is killed.

    Raises:
        CannotConfine: a folder or the user does not exist.
        Overrun: it took longer than *timeout* seconds.
    """
    until = time.monotonic() + timeout
    with _workspace(sandbox) as place:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = _start(sandbox, isolation, place, theirs.fileno(), log)
            relay = threading.Thread(target=_relay, args=(process, function), daemon=True)
            relay.start()
            try:
                ours.settimeout(max(0.001, until - time.monotonic()))
                request = place.request(sandbox, isolation, function, argument)
                return _converse(process, ours, request, sandbox, until)
            except TimeoutError:
                raise Overrun(f"took longer than {timeout:g} s") from None
            finally:
                _end(process)
                relay.join(_ENDING)


def _relay(process: subprocess.Popen[bytes], function: str) -> None:
    """Log what it prints: with our own descriptors it could change what others have logged."""
    if process.stdout is None:
        return
    with process.stdout as printed:
        lines = iter(lambda: printed.readline(_MAX_LINE), b"")
        for number, line in enumerate(lines):
            if number < _MAX_LINES:
                _log.info(
                    "printed by %s: %s", function, visible(line.decode(errors="replace").rstrip())
                )


@dataclass(frozen=True)
class _Workspace:
    user: Account | None
    scratch: Path
    hosts: Path
    #: The address of each destination within the sandbox.
    addresses: dict[str, str]

    def request(
        self, sandbox: Sandbox, isolation: Isolation, function: str, argument: str
    ) -> dict[str, Any]:
        needs_one_more = isolation == "bubblewrap" and sandbox.processes is not None
        return {
            "function": function,
            "argument": argument,
            "limits": {
                "CPU": sandbox.cpu,
                "AS": sandbox.memory,
                "FSIZE": sandbox.file_size,
                # The first process of its own namespace counts, too.
                "NPROC": (sandbox.processes or 0) + 1 if needs_one_more else sandbox.processes,
            },
            "folders": [*sandbox.files, str(self.scratch)],
            "network": sandbox.network,
            "addresses": self.addresses,
            "kernel": isolation == "kernel",
        }


@contextmanager
def _workspace(sandbox: Sandbox) -> Iterator[_Workspace]:
    """A temporary folder for one sandbox."""
    user = user_of(sandbox)
    for folder in sandbox.files:
        if not Path(folder).is_dir():
            raise CannotConfine(f"its folder {folder!r} does not exist")
    with tempfile.TemporaryDirectory(prefix="boyd-", ignore_cleanup_errors=True) as base:
        place, scratch, hosts = Path(base), Path(base) / "tmp", Path(base) / "hosts"
        place.chmod(0o711)
        scratch.mkdir(mode=0o700)
        if user:
            os.chown(scratch, user.uid, user.gid)
        addresses = _addresses(sandbox)
        lines = [f"{address} {name.rpartition(':')[0]}" for name, address in addresses.items()]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        hosts.chmod(0o644)
        yield _Workspace(user, scratch, hosts, addresses)


def user_of(sandbox: Sandbox) -> Account | None:
    """The account that a sandbox runs as, unless it is that of this process.

    Raises:
        CannotConfine: there is no such user, or we may not become that user.
    """
    try:
        return account(sandbox.user) if sandbox.user else None
    except ValueError as error:
        raise CannotConfine(str(error)) from None


def _addresses(sandbox: Sandbox) -> dict[str, str]:
    if sandbox.network == "any":
        return {}
    hosts = dict.fromkeys(name.rpartition(":")[0] for name in sandbox.network)
    address_of = {
        host: host if _is_address(host) else _ADDRESS.format(n // 250, n % 250 + 1)
        for n, host in enumerate(hosts)
    }
    return {name: address_of[name.rpartition(":")[0]] for name in sandbox.network}


def _is_address(host: str) -> bool:
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True


def _start(
    sandbox: Sandbox, isolation: Isolation, place: _Workspace, control: int, log: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    # What an action writes into the working folder is no module of the next one.
    inner = [sys.executable, "-P", "-m", inside.__name__, str(control)]
    folder = str(Path.cwd())
    wrapped = [*bubblewrap(sandbox, place.scratch, place.hosts), "--chdir", folder, "--", *inner]
    confined = isolation == "bubblewrap"
    return subprocess.Popen(  # noqa: S603 - our own programs, no shell
        [
            *(sys.executable, "-I", "-S", str(Path(guardian.__file__))),
            *(str(_GRACE), "keep", "-", str(place.user or "-"), "/" if confined else folder),
            *(wrapped if confined else inner),
        ],
        # The guardian watches its standard input, which ends when we die.
        stdin=subprocess.PIPE,
        stdout=log or subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[control],
        env=_environment(place),
        start_new_session=True,
    )


def bubblewrap(sandbox: Sandbox, scratch: Path, hosts: Path) -> list[str]:
    """The command that makes the namespaces of a sandbox."""
    folder = str(scratch)
    line = [shutil.which("bwrap") or "bwrap", "--die-with-parent"]
    line += [f"--unshare-{name}" for name in ("user", "pid", "ipc", "uts", "cgroup-try")]
    line += ["--ro-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/dev", "--cap-drop", "ALL"]
    for name in _DEVICES:
        line += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    line += ["--symlink", "/proc/self/fd", "/dev/fd", "--bind", folder, "/dev/shm"]  # noqa: S108
    for path in (*sandbox.files, folder):
        line += ["--bind", path, path]
    if sandbox.network == "any":
        return line
    line += ["--unshare-net", "--ro-bind", str(hosts), "/etc/hosts"]
    # To set up its addresses; they are given up before anything is loaded.
    for name in ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE") if sandbox.network else ():
        line += ["--cap-add", name]
    return line


def _environment(place: _Workspace) -> dict[str, str]:
    """Of our variables those that programs need and that hold no secrets."""
    ours = os.environ.items()
    variables = {n: v for n, v in ours if n in _PASSED or n.startswith(("LC_", "PYTHON"))}
    if place.user:
        variables |= {"HOME": place.user.home, "USER": place.user.name, "LOGNAME": place.user.name}
    return {**variables, "TMPDIR": str(place.scratch)}


def _converse(
    process: subprocess.Popen[bytes],
    control: socket.socket,
    request: dict[str, Any],
    sandbox: Sandbox,
    until: float,
) -> ConfinedAnswer:
    forwarder = None
    try:
        control.sendall(json.dumps(request).encode() + b"\n")
        ready, received, _, _ = socket.recv_fds(control, 1, 250)
        listeners = [socket.socket(fileno=number) for number in received]
        if listeners:
            forwarder = Forwarder(listeners, list(request["addresses"]))
        text = _line(control, until) if ready else b""
    except (BrokenPipeError, ConnectionResetError):
        text = b""
    finally:
        if forwarder:
            forwarder.close()
    if len(text) >= _MAX_ANSWER and not text.endswith(b"\n"):
        return ConfinedAnswer(error=f"its answer has more than {_MAX_ANSWER} bytes", lost=True)
    if not text.endswith(b"\n"):
        return _without_answer(process, max(0.1, until - time.monotonic()))
    try:
        return _read(text)
    except (ValueError, RecursionError) as error:
        mistake = f"its process answered with something else than a result: {_in_short(error)}"
        return ConfinedAnswer(error=mistake, lost=True)


def _read(text: bytes) -> ConfinedAnswer:
    """The answer in a line that may be anybody's; what has too many values is not parsed.

    Raises:
        ValueError: it is not an answer.
    """
    check_values(text, _MAX_FIELDS)
    message = _Answer.model_validate_json(text)
    if message.answer is not None:
        check_values(message.answer, _MAX_VALUES)
    return ConfinedAnswer(message.answer, message.error[:_MAX_LINE], message.violation)


def _in_short(error: Exception) -> str:
    return explain(error) if isinstance(error, ValidationError) else str(error)


def _line(control: socket.socket, until: float) -> bytes:
    """The answer; it ends with a new line unless it is too long or the process has ended before."""
    parts, size = [], 0
    while size < _MAX_ANSWER:
        control.settimeout(max(0.001, until - time.monotonic()))
        chunk = control.recv(65536)
        parts.append(chunk)
        size += len(chunk)
        if not chunk or chunk.endswith(b"\n"):
            break
    return b"".join(parts)


def _without_answer(process: subprocess.Popen[bytes], seconds: float) -> ConfinedAnswer:
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    limit = _KILLED.get(code)
    if limit:
        violation = LimitViolation(limit=limit, detail=f"it was killed for its limit of {limit}")
        return ConfinedAnswer(error=violation.detail, violation=violation, lost=True)
    return ConfinedAnswer(error=f"its process ended with status {code}", lost=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the guardian end everything that is left."""
    assert process.stdin is not None, "it was started with a pipe"
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
