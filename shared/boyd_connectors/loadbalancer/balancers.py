"""Load balancers, each as servers of backends with a state and a weight: HAProxy and nginx."""

from __future__ import annotations

import csv
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

import psutil
import requests
from pydantic import BaseModel, ConfigDict, Field

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd.plugins.command import CommandFailed, CommandTimeout, run_checked
from boyd.settings.validation import BaseUrl

ServerState = Literal["ready", "drain", "maint"]


class BalancerError(Exception):
    """The load balancer cannot be reached, or refused a change; nothing was changed."""


class AnswerLost(BalancerError):
    """The load balancer did not answer a change, which it may have made."""


@dataclass(frozen=True)
class BackendServer:
    """A server of a backend.

    Attributes:
        name: `backend/server`.
        state: what an administrator wants: `ready`, `drain` (no new requests) or `maint` (none).
        status: what the load balancer says of it, such as `UP` or `DOWN`; empty if it does not.
        up: whether it can answer, as far as the load balancer knows.
        backup: whether it only answers when the others cannot.
        requests: answered so far, and `errors` among them.
    """

    name: str
    state: ServerState
    weight: int
    status: str = ""
    up: bool = True
    backup: bool = False
    sessions: int = 0
    requests: int = 0
    errors: int = 0

    @property
    def backend(self) -> str:
        """The name of its backend."""
        return self.name.partition("/")[0]

    @property
    def is_active(self) -> bool:
        """True if it gets new requests."""
        return self.up and self.state == "ready" and self.weight > 0

    def setting(self) -> JsonObject:
        """The state and the weight, which can be changed."""
        return {"state": self.state, "weight": self.weight}


class Balancer(Protocol):
    """A load balancer that can be asked and changed."""

    def servers(self, ctx: Context) -> Sequence[BackendServer]:
        """All servers; raises `BalancerError`."""

    def counters(self, ctx: Context) -> JsonObject:
        """Counters of the load balancer as a whole; raises `BalancerError`."""

    def change(self, server: BackendServer, state: ServerState, weight: int) -> None:
        """Give a server a state and a weight; raises `BalancerError`."""

    def pending_reason(self, server: BackendServer) -> str | None:
        """The reason its setting is not in effect yet, or None if it is."""


#: The most bytes of an answer, and the seconds until it is there.
MAX_ANSWER = 8_388_608
HAPROXY_TIMEOUT = 5.0
#: Bits of the administrative state of a server. A name that does not resolve (0x20) also takes it
#: out, but nobody wants that: such a server is down.
_MAINT, _DRAIN = 0x47, 0x18
#: The type of a row of statistics that is about a server.
_HAPROXY_SERVER = "2"


class RuntimeSocket(BaseModel):
    """A socket of the runtime API.

    Attributes:
        socket: its path, or `host:port`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    socket: str | None = Field(default=None, pattern=r"^(/.+|[^/\s]+:\d{1,5})$")


class HAProxy:
    """An HAProxy at *address*, a path or `host:port`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def servers(self, ctx: Context) -> Sequence[BackendServer]:
        """All servers of all backends."""
        counted = {
            f"{row['pxname']}/{row['svname']}": row
            for row in csv.DictReader(self._ask("show stat").removeprefix("# ").splitlines())
            if row["type"] == _HAPROXY_SERVER
        }
        lines = [line for line in self._ask("show servers state").splitlines() if line]
        names = next((line.split()[1:] for line in lines if line.startswith("# ")), [])
        rows = [
            dict(zip(names, line.split(), strict=False)) for line in lines[1:] if line[0] != "#"
        ]
        pairs = [(f"{row['be_name']}/{row['srv_name']}", row) for row in rows]
        return [_server(name, row, counted[name]) for name, row in pairs if name in counted]

    def counters(self, ctx: Context) -> JsonObject:
        """None: they are those of the servers."""
        return {}

    def change(self, server: BackendServer, state: ServerState, weight: int) -> None:
        """Tell the state and the weight, if they differ."""
        if weight != server.weight:
            self._tell(f"set server {server.name} weight {weight}")
        if state == server.state:
            return
        try:
            self._tell(f"set server {server.name} state {state}")
        except BalancerError as error:
            if weight != server.weight and not isinstance(error, AnswerLost):
                self._restore_weight(server, error)
            raise

    def _restore_weight(self, server: BackendServer, refusal: BalancerError) -> None:
        try:
            self._tell(f"set server {server.name} weight {server.weight}")
        except BalancerError as error:
            raise AnswerLost(f"{refusal}; its weight was not restored: {error}") from None

    def pending_reason(self, server: BackendServer) -> str | None:
        """None: HAProxy applies changes at once."""
        return None

    def _tell(self, command: str) -> None:
        answer = self._ask(command).strip()
        if answer:
            raise BalancerError(f"HAProxy at {self._address}: {answer[:300]}")

    def _ask(self, command: str) -> str:
        with self._connect() as line:
            answer = b""
            try:
                line.sendall(f"{command}\n".encode())
                while part := line.recv(65536):
                    answer += part
                    if len(answer) > MAX_ANSWER:
                        raise BalancerError(f"HAProxy at {self._address} says too much")
            except OSError as error:
                raise AnswerLost(f"HAProxy at {self._address} did not answer: {error}") from None
        if not answer:
            # A command without an answer is answered by an empty line.
            raise AnswerLost(f"HAProxy at {self._address} ended before it answered")
        text = answer.decode("utf-8", "replace")
        if "Permission denied" in text[:200] or text.startswith("Unknown command"):
            raise BalancerError(f"HAProxy at {self._address}: {text.splitlines()[0]}")
        return text

    @contextmanager
    def _connect(self) -> Iterator[socket.socket]:
        with ExitStack() as stack:
            try:
                if self._address.startswith("/"):
                    line = stack.enter_context(socket.socket(socket.AF_UNIX))
                    line.settimeout(HAPROXY_TIMEOUT)
                    line.connect(self._address)
                else:
                    host, _, port = self._address.rpartition(":")
                    line = socket.create_connection((host, int(port)), HAPROXY_TIMEOUT)
                    stack.enter_context(line)
            except OSError as error:
                raise BalancerError(
                    f"HAProxy at {self._address} cannot be reached: {error.strerror or error}"
                ) from None
            yield line


def _server(name: str, row: dict[str, str], counted: dict[str, str]) -> BackendServer:
    admin = int(row["srv_admin_state"])
    state: ServerState = "maint" if admin & _MAINT else "drain" if admin & _DRAIN else "ready"
    status = counted["status"]
    return BackendServer(
        name=name,
        state=state,
        weight=int(row["srv_uweight"]),
        status=status,
        up=status.startswith(("UP", "no check", "DRAIN")),
        backup=counted["bck"] == "1",
        sessions=int(counted["scur"] or 0),
        requests=int(counted["stot"] or 0),
        errors=sum(int(counted[key] or 0) for key in ("hrsp_5xx", "econ", "eresp")),
    )


# The open-source nginx has no runtime API for upstreams and no figures about their servers. A
# change is therefore a change of a file, which nginx tests and then reads; requests in progress
# are ended by the old worker processes.

NGINX_TIMEOUT = 10.0
#: Seconds; starting times of processes are cut to them.
_TICK = 0.01
MAX_FILE = 1_048_576
_NGINX_SERVER = re.compile(
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
            server
            for name, path in self._options.upstreams.items()
            for server in _parse(name, _read(path))
        ]

    def counters(self, ctx: Context) -> JsonObject:
        """Connections and requests since nginx started."""
        url = self._options.status_url
        if url is None:
            self._workers()
            return {}
        try:
            answer = ctx.http.get(url, timeout=NGINX_TIMEOUT, allow_redirects=False, stream=True)
            with answer:
                text = next(answer.iter_content(4096), b"").decode("ascii", "replace")
        except requests.RequestException as error:
            raise BalancerError(f"nginx at {url}: {type(error).__name__}") from None
        match = _STATUS.search(text)
        if answer.status_code != 200 or not match:
            raise BalancerError(f"{url} answered {answer.status_code} and no page of stub_status")
        names = ("active", "accepted", "handled", "requests")
        return dict(zip(names, map(int, match.groups()), strict=True))

    def change(self, server: BackendServer, state: ServerState, weight: int) -> None:
        """Change its line, and have nginx test and read the configuration.

        Raises:
            BalancerError: nginx does not take it; the file is as before.
            AnswerLost: it may have read the file before that was as before.
        """
        if state == "maint":
            raise BalancerError("nginx knows only ready and drain")
        path = self._options.upstreams[server.backend]
        with _lock(path):
            before = _read(path)
            after = change_line(before, server.name.partition("/")[2], state, weight)
            _write(path, after)
            try:
                self._run("-t", "-q")
                self._run("-s", "reload")
            except CommandTimeout as error:
                _write(path, before)
                raise AnswerLost(f"nginx may have read the change: {error}") from None
            except CommandFailed as error:
                _write(path, before)
                raise BalancerError(f"nothing was changed: {error}") from None

    def pending_reason(self, server: BackendServer) -> str | None:
        """The reason, if one of the worker processes is older than the file."""
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
            ages = [age for process in master.children() if (age := _age(process)) is not None]
        except (OSError, ValueError, psutil.Error) as error:
            raise BalancerError(f"nginx does not run: {error}") from None
        if not ages:
            raise BalancerError(f"nginx does not run: process {master.pid} has no worker process")
        return ages

    def _run(self, *arguments: str) -> None:
        config = ["-c", str(self._options.config)] if self._options.config else []
        run_checked([self._options.program, *config, *arguments], NGINX_TIMEOUT)


def change_line(text: str, address: str, state: ServerState, weight: int) -> str:
    """The file with another state and weight of a server; raises `BalancerError` without it."""
    lines, has_line = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        match = _NGINX_SERVER.match(line.rstrip("\n"))
        if match is None or match["address"] != address:
            continue
        has_line = True
        more = [w for w in match["more"].split() if w != "down" and not w.startswith("weight=")]
        more += [f"weight={weight}"] if weight != 1 else []
        more += ["down"] if state != "ready" else []
        words = " ".join(["server", address, *more])
        lines[number] = f"{match['indent']}{words};{match['rest']}\n"
    if not has_line:
        raise BalancerError(f"its file has no line `server {address}`")
    return "".join(lines)


def _parse(upstream: str, text: str) -> Iterator[BackendServer]:
    for line in text.splitlines():
        if match := _NGINX_SERVER.match(line):
            words = match["more"].split()
            options: Mapping[str, str] = dict(w.split("=", 1) for w in words if "=" in w)
            yield BackendServer(
                name=f"{upstream}/{match['address']}",
                state="drain" if "down" in words else "ready",
                weight=int(options.get("weight", "1")),
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
def _lock(path: Path) -> Iterator[None]:
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
    """The age in seconds of a worker process that takes new requests; None for any other."""
    with suppress(psutil.NoSuchProcess, FileNotFoundError):
        title = " ".join(process.cmdline())
        if "worker process" in title and "shutting down" not in title:
            # In ticks since the system started; psutil knows that time only to the second.
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
            return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    return None
