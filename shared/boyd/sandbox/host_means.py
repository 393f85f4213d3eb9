"""Means of this host to enforce sandboxes: each is tried out before an action relies on it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path

from boyd.errors import Overrun
from boyd.models.action import Sandbox
from boyd.sandbox import kernel
from boyd.sandbox.confined_call import CannotConfine, Isolation, bubblewrap, call, user_of

#: Seconds that a trial may take.
_TRIAL = 30.0
#: Seconds after which what failed is tried again: a host may be busy, or a folder be made.
_AGAIN = 60.0
#: Processes that a trial starts beyond a limit.
_TRIED_PROCESSES = 4


def _remember_success(trial: Callable[..., str | None]) -> Callable[..., str | None]:
    """Try with the same arguments once, but again a minute after a problem."""
    outcomes: dict[tuple[str, ...], tuple[str | None, float]] = {}

    @wraps(trial)
    def find_problem(*args: str) -> str | None:
        problem, tried_at = outcomes.get(args, ("", float("-inf")))
        if problem is not None and time.monotonic() - tried_at >= _AGAIN:
            problem = trial(*args)
            outcomes[args] = problem, time.monotonic()
        return problem

    return find_problem


def isolation() -> Isolation:
    """The means that keep sandboxes on this host apart."""
    return "kernel" if _bubblewrap_problem() else "bubblewrap"


def find_limit_problem(sandbox: Sandbox) -> str | None:
    """The first limit of a sandbox that this host cannot enforce, with the cause."""
    # Those of one kind are tried out once.
    alike = {"cpu": None, "file_size": None, "time": None, "violations": 1, "window": 1.0}
    tried = sandbox.processes and min(sandbox.processes, _TRIED_PROCESSES)
    return _missing(sandbox.patched({**alike, "processes": tried}).to_json())


@_remember_success
def _missing(text: str) -> str | None:
    sandbox = Sandbox.from_json(text)
    try:
        user = user_of(sandbox)
        own = user is not None
        if isolation() == "kernel" and (problem := _without_bubblewrap(sandbox, own)):
            return problem
        if sandbox.processes and not own and os.geteuid() == 0:
            return "`processes` does not limit root: set `user`"
        return _try_limits(sandbox, user.uid if user else os.geteuid())
    except CannotConfine as error:
        return str(error)


def _without_bubblewrap(sandbox: Sandbox, own_user: bool) -> str | None:
    """The problem if the kernel alone does not suffice."""
    problem = _bubblewrap_problem()
    if sandbox.network != "any" and sandbox.network:
        return f"a list of destinations (`network`) needs bubblewrap: {problem}"
    if sandbox.processes and not own_user:
        return f"`processes` needs bubblewrap or a user of its own: {problem}"
    if not own_user and not kernel.scopes_signals():
        return f"it needs bubblewrap, a user of its own or Linux 6.12: {problem}"
    return None


@_remember_success
def _bubblewrap_problem() -> str | None:
    """The problem that keeps bubblewrap from working here."""
    if shutil.which("bwrap") is None:
        return "`bwrap` is not installed"
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts"
        hosts.touch()
        line = [*bubblewrap(Sandbox(), Path(folder), hosts), "--", shutil.which("true") or "true"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_TRIAL)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"`bwrap` cannot be started: {error}"
    complaint = done.stderr.strip().partition("\n")[0]
    return f"`bwrap` makes no namespaces here: {complaint}" if done.returncode else None


def _try_limits(sandbox: Sandbox, uid: int) -> str | None:
    """The first limit that a trial went beyond."""
    with (
        tempfile.TemporaryDirectory() as outside,
        tempfile.TemporaryFile() as log,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        Path(outside).chmod(0o777)
        trial = {
            "uid": uid,
            "outside": _outside(sandbox, outside),
            "port": 0 if sandbox.network == "any" else server.getsockname()[1],
            "processes": sandbox.processes,
        }
        try:
            result = call(
                sandbox, isolation(), f"{__name__}:try_out", json.dumps(trial), _TRIAL, log
            )
        except Overrun as error:
            return f"its trial {error}"
        if result.answer is not None:
            return result.answer or None
        log.seek(0)
        last_line = log.read(2000).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"its process cannot be started: {last_line or result.error}"


def _outside(sandbox: Sandbox, folder: str) -> str:
    """A folder in which the sandbox must not write."""
    within = any(Path(folder).is_relative_to(allowed) for allowed in sandbox.files)
    return "/" if within else folder


def try_out(argument: str) -> str:
    """Try to go beyond the limits, in a sandbox; the first one that was not enforced, or empty."""
    trial = json.loads(argument)
    if os.getuid() != trial["uid"]:
        return "`user` is not enforced"
    with suppress(OSError):
        probe = Path(trial["outside"]) / f"boyd-trial-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
        return "`files` is not enforced: it writes in another folder"
    with suppress(OSError):
        os.utime(trial["outside"])
        return "`files` is not enforced: it changes attributes of another folder"
    if trial["port"]:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", trial["port"]), timeout=5).close()
            return "`network` is not enforced: it reaches an address that is not listed"
    if trial["processes"] and _starts(trial["processes"] + 1):
        return "`processes` is not enforced: it starts more of them"
    return ""


def _starts(count: int) -> bool:
    """Report whether that many processes can be started."""
    started = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                time.sleep(_TRIAL)
                os._exit(0)
            started.append(pid)
    except OSError:
        return False
    finally:
        for pid in started:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return True
