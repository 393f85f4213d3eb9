"""Where a Redis is: what a URL says, for state and for messages alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis.connection import parse_url, to_bool

_SENTINEL = "sentinel"
_PASSWORD = re.compile(r"(://[^:/]*):.*", re.DOTALL)
_SENTINEL_PORT = 26379


@dataclass(frozen=True)
class Address:
    """One Redis, or the sentinels that know which one it is now.

    Attributes:
        options: `db`, `username`, `ssl_ca_certs` ... as redis-py takes them.
        tls: whether connections are encrypted, to sentinels too.
        sentinels: host and port of each; empty: there are none.
        service: the name by which sentinels know the master.
        sentinel_options: `username` and `password` for the sentinels themselves.
    """

    options: Mapping[str, Any] = field(repr=False)
    tls: bool
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL: `redis://`, `rediss://`, `unix://` or `sentinel://`.

        `sentinel://[user:password@]host[:port][,host[:port]...]/service[/db][?options]`; the
        options are those of the other URLs, `ssl` and `sentinel_username`, `sentinel_password`.

        Raises:
            ValueError: it is none of them.
        """
        if not url.startswith(f"{_SENTINEL}://"):
            options = parse_url(url)  # type: ignore[no-untyped-call]
            options.pop("connection_class", None)
            return cls(options, tls=url.startswith("rediss:"))
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        service, _, db = parts.path.strip("/").partition("/")
        if not service:
            raise ValueError("the name of the service is missing: sentinel://host:port/SERVICE")
        if db and not db.isdecimal():
            raise ValueError(f"the database after the service should be a number, not {db!r}")
        # As that of a server: redis-py knows what its options mean.
        options = parse_url(urlunsplit(("redis", f"{user}{at}sentinel", f"/{db}", parts.query, "")))  # type: ignore[no-untyped-call]
        options.pop("host")
        tls = bool(to_bool(options.pop("ssl", "")))  # type: ignore[no-untyped-call]
        own = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
        sentinel_options = {name: value for name, value in own.items() if value is not None}
        sentinels = tuple(_sentinel(host) for host in hosts.split(","))
        return cls(options, tls, sentinels, service, sentinel_options)

    @property
    def ssl_options(self) -> dict[str, Any]:
        """What is said of certificates."""
        return {name: value for name, value in self.options.items() if name.startswith("ssl_")}


def masked(url: str) -> str:
    """A URL without its passwords, for messages."""
    without = re.sub(r"([?&]\w*password=)[^&]*", r"\1***", url)
    *before, last = without.split("@")
    return "@".join([*(_PASSWORD.sub(r"\1:***", part) for part in before), last])


def _sentinel(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a sentinel has no name: sentinel://host:port,host:port/SERVICE")
    return parts.hostname, parts.port or _SENTINEL_PORT
