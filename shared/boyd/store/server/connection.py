"""The connection to Redis: timeouts everywhere, no hidden retries, Boyd's own errors."""

from __future__ import annotations

import copy
import logging
import re
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import redis
from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.connection import parse_url, to_bool
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from boyd.errors import (
    ConfigError,
    ForeignKey,
    StoreError,
    StoreLoginRefused,
    StoreReadOnly,
    StoreUnavailable,
    UnreadableRecord,
)
from boyd.store.keys import SHARED_TYPES
from boyd.store.server.cluster_client import ClusterClient
from boyd.store.server.refusals import WritesRefused, is_full, is_moving, leaving, outage
from boyd.store.server.slot_map import Place, SlotMap

#: Options that name files.
_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
#: Seconds without use after which a connection is closed.
IDLE = 60.0


class ClosingIdle(ConnectionPool):
    """Closes idle connections, whenever one is given back; those used last are used again first."""

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        now = time.monotonic()
        connection.released_at = now
        super().release(connection)
        with self._lock:
            for idle in self._available_connections:
                if idle.released_at > now - IDLE:
                    break
                idle.disconnect()


_SENTINEL, _CLUSTER = "sentinel", "cluster"
_PASSWORD = re.compile(r"(://[^:/]*):.*", re.DOTALL)
_SENTINEL_PORT, _PORT = 26379, 6379


@dataclass(frozen=True)
class Address:
    """The address of a Redis server, of sentinels that know the master, or of a Redis Cluster.

    Attributes:
        options: `db`, `username`, `ssl_ca_certs` ... as redis-py takes them.
        tls: whether connections are encrypted, to sentinels too.
        nodes: host and port of servers of the cluster; empty without a cluster.
        sentinels: host and port of each; empty without sentinels.
        service: the name by which sentinels know the master.
        sentinel_options: `username` and `password` for the sentinels themselves.
    """

    options: Mapping[str, Any] = field(repr=False)
    tls: bool
    nodes: tuple[tuple[str, int], ...] = ()
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL: `redis://`, `rediss://`, `unix://`, `sentinel://` or `cluster://`.

        `sentinel://[user:password@]host[:port][,host[:port]...]/service[/db][?options]`; the
        options are those of the other URLs, `ssl` and `sentinel_username`, `sentinel_password`.
        `cluster://[user:password@]host[:port][,host[:port]...][?options]` likewise, with `ssl`.

        Raises:
            ValueError: the URL is none of these.
        """
        scheme = url.partition("://")[0]
        if scheme not in (_SENTINEL, _CLUSTER):
            options = parse_url(url)  # type: ignore[no-untyped-call]
            options.pop("connection_class", None)
            tls = url.startswith("rediss:")
            return cls(_alike(options) if tls else options, tls)
        servers, end = re.split(r"(?=[/?#]|$)", url.partition("://")[2], maxsplit=1)
        user, at, hosts = servers.rpartition("@")
        # Without the servers: Python 3.14 refuses an IPv6 address among several.
        parts = urlsplit(f"redis://servers{end}")
        service, _, db = parts.path.strip("/").partition("/")
        if scheme == _CLUSTER and service not in ("", "0"):
            raise ValueError(f"a cluster has no database or service {service!r}")
        if scheme == _SENTINEL and not service:
            raise ValueError("the name of the service is missing: sentinel://host:port/SERVICE")
        if db and not db.isdecimal():
            raise ValueError(f"the database after the service should be a number, not {db!r}")
        # Parsed like a server's URL, because redis-py knows how to read the options.
        options = parse_url(urlunsplit(("redis", f"{user}{at}sentinel", f"/{db}", parts.query, "")))  # type: ignore[no-untyped-call]
        options.pop("host")
        tls = bool(to_bool(options.pop("ssl", "")))  # type: ignore[no-untyped-call]
        options = _alike(options) if tls else options
        if scheme == _CLUSTER:
            return cls(options, tls, nodes=tuple(_place(host, _PORT) for host in hosts.split(",")))
        own = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
        sentinel_options = {name: value for name, value in own.items() if value is not None}
        sentinels = tuple(_place(host, _SENTINEL_PORT) for host in hosts.split(","))
        return cls(options, tls, (), sentinels, service, sentinel_options)

    @property
    def ssl_options(self) -> dict[str, Any]:
        """The options about TLS certificates."""
        return {name: value for name, value in self.options.items() if name.startswith("ssl_")}


def _alike(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for TLS by which every release of Python verifies alike.

    Python 3.13 is strict by default, and refuses authorities that do not say what their key is for.
    """
    lax = {"ssl_exclude_verify_flags": [ssl.VerifyFlags.VERIFY_X509_STRICT]}
    return dict(options) if "ssl_include_verify_flags" in options else {**lax, **options}


def mask_url(url: str) -> str:
    """A URL without its passwords, for messages."""
    without = re.sub(r"([?&]\w*password=)[^&]*", r"\1***", url)
    *before, last = without.split("@")
    return "@".join([*(_PASSWORD.sub(r"\1:***", part) for part in before), last])


def _place(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a server has no host name: sentinel://host:port,host:port/SERVICE")
    return parts.hostname, parts.port or port


log = logging.getLogger("boyd.store")

#: Seconds to wait for a sentinel before asking the next one.
SENTINEL_TIMEOUT = 1.0
#: Seconds between two checks for a new master.
CHECK = 1.0
#: Seconds until the next check when no sentinel has answered.
CHECK_AFTER_FAILURE = 10.0


def sentinel_options(address: Address) -> dict[str, Any]:
    """The redis-py options for connecting to the sentinels of *address*."""
    return {
        "socket_timeout": SENTINEL_TIMEOUT,
        "socket_connect_timeout": SENTINEL_TIMEOUT,
        # By default redis-py retries a dead sentinel for seconds before it asks the next one.
        "retry": Retry(NoBackoff(), 0),
        "ssl": address.tls,
        **address.ssl_options,
        **address.sentinel_options,
    }


class Sentinels(Sentinel):
    """A thread-safe client of the sentinels."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the master's host and port.

        Each thread works on its own list: redis-py moves the sentinel that answers to the front,
        and two threads that do this at once would lose a sentinel for good.

        Raises:
            redis.sentinel.MasterNotFoundError: no sentinel knows a master.
        """
        copied = copy.copy(self)
        copied.sentinels = list(self.sentinels)
        address: tuple[str, int] = super(Sentinels, copied).discover_master(service_name)  # type: ignore[no-untyped-call]
        self.sentinels = copied.sentinels
        return address


class Pool(ClosingIdle, SentinelConnectionPool):
    """A pool of connections to the current master.

    An isolated master stays connected after a failover, and accepts writes that will be lost. So
    the pool checks regularly for a new master, and then drops its idle connections.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._check_at = time.monotonic() + CHECK
        self._checking = threading.Lock()
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """A connection to the master."""
        if time.monotonic() >= self._check_at and self._checking.acquire(blocking=False):
            try:
                self._check_master()
            finally:
                self._checking.release()
        return super().get_connection(*args, **options)

    def _check_master(self) -> None:
        before = self.master_address
        try:
            address = self.get_master_address()  # type: ignore[no-untyped-call]
        except (redis.ConnectionError, redis.TimeoutError) as error:
            # Existing connections work without sentinels.
            log.warning("no sentinel knows a master of %s: %s", self.service_name, error)
            self._check_at = time.monotonic() + CHECK_AFTER_FAILURE
            return
        self._check_at = time.monotonic() + CHECK
        if before is not None and before != address:
            log.warning("the master of %s is now %s:%s", self.service_name, *address)


#: A `redis.Redis` with decoded replies, which its annotations cannot express.
Client: TypeAlias = Any

#: Seconds to wait for an answer, and for a connection.
TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0
#: Seconds to wait for a server of a cluster: less than until another one takes its place, so that a
#: server that hung confirms nothing that the other one does not know.
_CLUSTER_TIMEOUT = 2.5
#: Seconds to wait for an answer about the cluster itself.
_QUICK = 1.0


def connect(url: str, *, timeout: float = TIMEOUT, setting: str = "redis_url") -> Client:
    """Return a client for *url* of *setting*, which connects when first used.

    Retries are off: by default redis-py repeats a command after a timeout, which could run a script
    twice. Only callers know whether a command may be repeated.

    Raises:
        ConfigError: *url* is not a Redis URL, or names a file that cannot be read.
    """
    limits = {
        "decode_responses": True,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(CONNECT_TIMEOUT, timeout),
        "retry": Retry(NoBackoff(), 0),
    }
    try:
        address = Address.of(url)
        # On first use the error would not name the file.
        for option in _FILES & address.options.keys():
            Path(address.options[option]).read_bytes()
        if "path" not in address.options:
            limits["socket_keepalive"] = True
        if address.nodes:
            return _of_cluster(address, limits)
        if address.sentinels:
            return _check_options(_through_sentinels(address, limits))
        tls = address.ssl_options if address.tls else {}
        return _check_options(redis.Redis.from_pool(ClosingIdle.from_url(url, **limits, **tls)))
    except (ValueError, TypeError, OSError, redis.RedisError) as error:
        *_, complaint, rest = str(error).rpartition("unexpected keyword argument")
        reason = f"no option{rest}" if complaint else rest
        raise ConfigError(f"{setting} {mask_url(url)!r} cannot be used: {reason}") from None


def _check_options(client: Client) -> Client:
    """The client, which refuses bad options now, not on first use."""
    pool = client.connection_pool
    pool.connection_class = leaving(pool.connection_class)
    pool.connection_class(**pool.connection_kwargs)
    return client


def _of_cluster(address: Address, limits: dict[str, Any]) -> ClusterClient:
    """Return a client that finds the server of each key."""
    most = {"socket_timeout": min(limits["socket_timeout"], _CLUSTER_TIMEOUT)}
    quick = {"socket_timeout": _QUICK, "socket_connect_timeout": _QUICK}

    def to(place: Place, more: Mapping[str, Any] = {}) -> Client:
        host, port = place
        kind = redis.SSLConnection if address.tls else redis.Connection
        options = {**limits, **most, **address.options, **more}
        pool = ClosingIdle(kind, host=host, port=port, **options)
        return _check_options(redis.Redis.from_pool(pool))

    to(address.nodes[0])
    return ClusterClient(SlotMap(address.nodes, to, partial(to, more=quick)))


def _through_sentinels(address: Address, limits: dict[str, Any]) -> Client:
    """Return a client that asks the sentinels for the master whenever it connects."""
    sentinels = Sentinels(address.sentinels, sentinel_kwargs=sentinel_options(address))  # type: ignore[no-untyped-call]
    options = {**limits, **address.options, "ssl": address.tls}
    return sentinels.master_for(address.service, connection_pool_class=Pool, **options)  # type: ignore[no-untyped-call]


@contextmanager
def translate_errors(key: str | None = None) -> Iterator[None]:
    """Turn redis-py errors into Boyd's.

    *key* is the one that all commands are about; in a pipeline redis-py names that of each.

    Raises:
        StoreUnavailable: Redis did not answer.
        StoreLoginRefused: Redis refused user or password.
        StoreConnectionFailed: it hangs up, is no Redis, or a certificate is not accepted.
        StoreReadOnly: Redis takes no writes now.
        ForeignKey: a key that the whole deployment needs holds another type.
        StoreError: Redis answered with an error.
    """
    try:
        yield
    except redis.AuthenticationError as error:
        message = str(error).rstrip(".")
        reason = "it needs a password" if message.startswith("HELLO") else message
        raise StoreLoginRefused(f"Redis refuses the login: {reason}") from error
    except WritesRefused as error:
        raise StoreReadOnly(f"Redis does not accept writes: {error}") from error
    except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse) as error:
        raise outage(error) from error
    except redis.RedisError as error:
        if is_full(error):
            raise StoreReadOnly(f"Redis does not accept writes: {error}") from error
        if is_moving(error):
            raise StoreUnavailable(f"Redis moves the keys to another server: {error}") from error
        if has_wrong_type(error):
            for shared in SHARED_TYPES:
                if shared == key or f" {shared} " in str(error):
                    raise foreign_key(shared) from error
            raise UnreadableRecord(f"a key in Redis holds something else: {error}") from error
        raise StoreError(f"Redis refused a command: {error}") from error


def has_wrong_type(error: object) -> bool:
    """Check whether a command met a key of another type than Boyd's."""
    return isinstance(error, redis.ResponseError) and "WRONGTYPE" in str(error)


def foreign_key(key: str) -> ForeignKey:
    """The error of a key that the whole deployment needs and that holds another type."""
    return ForeignKey(
        f"{key} in Redis holds something else than a {SHARED_TYPES[key]}: another program has"
        " overwritten it; delete it, or restore it from a backup"
    )


def find_foreign_key(client: Client, keys: Collection[str]) -> str | None:
    """The first one of *keys* that the whole deployment needs and that holds another type."""
    for key in keys:
        if key in SHARED_TYPES and client.type(key) not in (SHARED_TYPES[key], "none"):
            return key
    return None


def replies_by_type(pipe: Any) -> list[Any]:
    """Run a pipeline; None in place of the reply about a key of another type than Boyd's.

    Raises:
        redis.RedisError: Redis did not answer, or refused a command for another reason.
    """
    replies = [
        None if has_wrong_type(reply) else reply for reply in pipe.execute(raise_on_error=False)
    ]
    for reply in replies:
        if isinstance(reply, redis.RedisError):
            raise reply
    return replies


def near(client: Client, key: str) -> Client:
    """The client for commands without a key that concern what lies beside *key*, such as TIME."""
    return client.near(key) if isinstance(client, ClusterClient) else client


def replies_of_some(pipe: Any) -> list[Any]:
    """Run a pipeline whose keys may lie on several servers, some of which may be away.

    Returns:
        The replies, with an error in place of each that there is not.

    Raises:
        redis.RedisError: there is none.
    """
    replies: list[Any] = pipe.execute(raise_on_error=False)
    if replies and all(isinstance(reply, redis.RedisError) for reply in replies):
        raise replies[0]
    return replies


def pairs(flat: list[Any]) -> dict[str, str]:
    """The mapping in a flat list of fields and values, as scripts return hashes."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def read_int(text: str | None) -> int | None:
    """The integer in a stored text; None for an invalid one, as after a manual edit."""
    try:
        return int(float(text)) if text else None
    except (ValueError, OverflowError):
        return None


__all__ = [
    "Client",
    "connect",
    "mask_url",
    "near",
    "pairs",
    "read_int",
    "replies_of_some",
    "translate_errors",
]
