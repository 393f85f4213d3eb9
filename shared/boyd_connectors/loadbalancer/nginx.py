"""nginx by its page `stub_status`, and by files with the servers of its upstreams.

The open-source nginx has no runtime API for upstreams and no figures about their servers. A change
is therefore a change of a file, which nginx tests and then reads; requests in progress are ended by
the old worker processes.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import psutil
import requests
from pydantic import BaseModel, ConfigDict, Field

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd.plugins.command import CommandFailed, run_checked
from boyd.plugins.http_service import BaseUrl
from boyd_connectors.loadbalancer.balancer import BackendServer, BalancerError, ServerState

TIME = 10.0
#: Seconds; starting times of processes are cut to them.
_TICK = 0.01
MAX_FILE = 1_048_576
_SERVER = re.compile(
    r"^(?P<indent>\s*)server\s+(?P<address>[^\s;]+)(?P<more>(?:\s[^;#]*)?);(?P<rest>.*)$"
)
_STATUS = re.compile(
    r"Active connections: (\d+)\s+server accepts handled requests\s+(\d+) (\d+) (\d+)"
)


class NginxOptions(BaseModel):
    """An nginx on the host of the worker.

    Attributes:
        status_url: the page of `stub_status`.
        upstreams: by name, the file with its `server` lines; nothing else there is changed.
        program: the program that tests the configuration.
        config: the main file; absent: the one that nginx was built with.
        pid_file: the file with the process id of the nginx to reload.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    status_url: BaseUrl | None = None
    upstreams: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], Path] = Field(default_factory=dict)
    program: str = "nginx"
    config: Path | None = None
    pid_file: Path = Path("/run/nginx.pid")


class Nginx:
    """An nginx as *options* describe it."""

    def __init__(self, options: NginxOptions) -> None:
        self._options = options

    def servers(self, ctx: Context) -> Sequence[BackendServer]:
        """The servers in the files of the upstreams."""
        return [
            one
            for name, path in self._options.upstreams.items()
            for one in _parsed(name, _read(path))
        ]

    def counters(self, ctx: Context) -> JsonObject:
        """Connections and requests since nginx started."""
        url = self._options.status_url
        if url is None:
            self._workers()
            return {}
        try:
            answer = ctx.http.get(url, timeout=TIME, allow_redirects=False, stream=True)
            with answer:
                text = next(answer.iter_content(4096), b"").decode("ascii", "replace")
        except requests.RequestException as error:
            raise BalancerError(f"nginx at {url}: {type(error).__name__}") from None
        found = _STATUS.search(text)
        if answer.status_code != 200 or not found:
            raise BalancerError(f"{url} answered {answer.status_code} and no page of stub_status")
        names = ("active", "accepted", "handled", "requests")
        return dict(zip(names, map(int, found.groups()), strict=True))

    def change(self, server: BackendServer, state: ServerState, weight: int) -> None:
        """Change its line, and have nginx test and read the configuration.

        Raises:
            BalancerError: nginx does not take it; the file is as before.
        """
        if state == "maint":
            raise BalancerError("nginx knows only ready and drain")
        path = self._options.upstreams[server.backend]
        with _locked(path):
            before = _read(path)
            after = changed(before, server.name.partition("/")[2], state, weight)
            _write(path, after)
            try:
                self._run("-t", "-q")
                self._run("-s", "reload")
            except CommandFailed as error:
                _write(path, before)
                raise BalancerError(f"nothing was changed: {error}") from None

    def applied(self, server: BackendServer) -> str | None:
        """The reason if one of its worker processes is older than the file."""
        path = self._options.upstreams[server.backend]
        ages = self._workers()
        try:
            file_age = time.time() - path.stat().st_mtime
        except OSError as error:
            raise BalancerError(f"{path}: {error.strerror}") from None
        return None if max(ages) <= file_age + _TICK else "nginx has not read the file yet"

    def _workers(self) -> list[float]:
        """The ages of its worker processes that take requests; raises `BalancerError` if none."""
        try:
            master = psutil.Process(int(self._options.pid_file.read_text()))
            ages = [age for one in master.children() if (age := _age(one)) is not None]
        except (OSError, ValueError, psutil.Error) as error:
            raise BalancerError(f"nginx does not run: {error}") from None
        if not ages:
            raise BalancerError(f"nginx does not run: process {master.pid} has no worker process")
        return ages

    def _run(self, *arguments: str) -> None:
        config = ["-c", str(self._options.config)] if self._options.config else []
        run_checked([self._options.program, *config, *arguments], TIME)


def changed(text: str, address: str, state: ServerState, weight: int) -> str:
    """The file with another state and weight of a server; raises `BalancerError` without it."""
    lines, found = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        match = _SERVER.match(line.rstrip("\n"))
        if match is None or match["address"] != address:
            continue
        found = True
        more = [w for w in match["more"].split() if w != "down" and not w.startswith("weight=")]
        more += [f"weight={weight}"] if weight != 1 else []
        more += ["down"] if state != "ready" else []
        words = " ".join(["server", address, *more])
        lines[number] = f"{match['indent']}{words};{match['rest']}\n"
    if not found:
        raise BalancerError(f"its file has no line `server {address}`")
    return "".join(lines)


def _parsed(upstream: str, text: str) -> Iterator[BackendServer]:
    for line in text.splitlines():
        if match := _SERVER.match(line):
            words = match["more"].split()
            given: Mapping[str, str] = dict(w.split("=", 1) for w in words if "=" in w)
            yield BackendServer(
                name=f"{upstream}/{match['address']}",
                state="drain" if "down" in words else "ready",
                weight=int(given.get("weight", "1")),
                backup="backup" in words,
            )


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BalancerError(f"{path}: {error}") from None
    if len(text) > MAX_FILE:
        raise BalancerError(f"{path}: is larger than {MAX_FILE} bytes")
    return text


def _write(path: Path, text: str) -> None:
    """Replace the file atomically; owner and mode stay, and so does a link to it."""
    path = path.resolve()
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        old = path.stat()
        new.chmod(old.st_mode & 0o7777)
        with suppress(PermissionError):
            os.chown(new, old.st_uid, old.st_gid)
        new.replace(path)
    except OSError as error:
        raise BalancerError(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Changes of files in one folder happen one after the other."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BalancerError(f"{path.parent}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _age(process: psutil.Process) -> float | None:
    """The seconds since a worker process began that takes new requests; None: it is none."""
    with suppress(psutil.NoSuchProcess, FileNotFoundError):
        title = " ".join(process.cmdline())
        if "worker process" in title and "shutting down" not in title:
            # In ticks since the system started; psutil knows that time only to the second.
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
            return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    return None
