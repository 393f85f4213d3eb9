"""A session that reaches public addresses only, follows no redirect, and can be cut off."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests_hardened.client import HTTPSession
from requests_hardened.config import Config
from requests_hardened.ip_filter import InvalidIPAddress
from requests_hardened.ip_filter_adapter import IPFilterAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool

from boyd.version import VERSION

MAX_LENGTH = 2048

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\\]")
#: The ways to write an IPv4 address that the C library knows: 127.1, 0x7f000001, 017700000001.
_OLD_IPV4 = re.compile(r"[0-9a-fx]+(\.[0-9a-fx]+){0,3}")
#: Global by number, but answered by the platform itself on Azure.
_PLATFORM = frozenset({ipaddress.ip_address("168.63.129.16")})
#: Not public, whatever this release of Python knows of them: protocol assignments, the relays of
#: 6to4, documentation, Teredo and NAT64, behind which any IPv4 address may be.
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("192.0.0.0/24", "192.88.99.0/24", "3fff::/20"),
        *("2001::/32", "64:ff9b::/96", "64:ff9b:1::/48"),
    )
)


def check_url(url: str, *, allow_private: bool = False) -> str | None:
    """Why nothing may be sent to *url*, or None.

    Names are not resolved here: what they resolve to is checked when something is sent.

    Args:
        url: what a client gave.
        allow_private: whether addresses that are not public are allowed.
    """
    if len(url) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} characters"
    if _UNPRINTABLE.search(url):
        return "it contains spaces, backslashes or control characters"
    try:
        return _check_parts(urlsplit(url), allow_private)
    except ValueError as error:
        return f"it is not a URL: {error}"


def is_public(address: Address) -> bool:
    """Whether an address is somewhere on the internet, and not on this host or network.

    One of IPv6 that stands for one of IPv4, mapped or by 6to4, is as public as that.
    """
    plain = _plain(address)
    special = plain.is_multicast or plain.is_reserved or plain.is_unspecified
    site_local = getattr(plain, "is_site_local", False)
    listed = plain in _PLATFORM or any(plain in network for network in _SPECIAL)
    return plain.is_global and not special and not site_local and not listed


def _plain(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return address.ipv4_mapped or address.sixtofour or address


def _check_parts(parts: SplitResult, allow_private: bool) -> str | None:
    if parts.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    if "@" in parts.netloc:
        return "it contains a user name or a password"
    if not parts.hostname:
        return "it has no host"
    if parts.port == 0:
        return "0 is not a port"
    if not allow_private and _is_private(parts.hostname.rstrip(".")):
        return f"{parts.hostname} is not a public address"
    return None


def _is_private(host: str) -> bool:
    address = _literal(host)
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return not is_public(address)


def _literal(host: str) -> Address | None:
    """The address that *host* spells, in any of the ways; None when it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not _OLD_IPV4.fullmatch(host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


class Lifeline:
    """The connections of a session, so that another thread can cut them.

    A time limit on a socket begins anew with every byte; a server that sends one now and then
    would be waited for without end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    def watch(self, connected: socket.socket) -> None:
        """Remember a connection; cut it at once when all are cut."""
        with self._lock:
            # A copy stays valid when TLS takes the original over, and when that is closed.
            self._sockets.append(connected.dup())
            if self._is_cut:
                self._shut_down()

    def cut(self) -> None:
        """End every connection, now and later: whoever waits for one gets an error."""
        with self._lock:
            self._is_cut = True
            self._shut_down()

    def close(self) -> None:
        """Forget the connections."""
        with self._lock:
            for copy in self._sockets:
                copy.close()
            self._sockets.clear()

    def _shut_down(self) -> None:
        for copy in self._sockets:
            with suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)


class GuardedSession(HTTPSession):
    """A session for one request to an address that a client named.

    Every address is checked after it was resolved and connected to as checked, so that a name
    cannot mean another one in between. The environment's proxies and netrc are not used: a proxy
    would connect to what was not checked.

    Args:
        allow_private: whether addresses that are not public are allowed.
        timeout: seconds to wait for the connection, and for each part of the answer.
    """

    def __init__(self, *, allow_private: bool, timeout: float) -> None:
        super().__init__(
            Config(
                ip_filter_enable=False,  # by the adapters below
                ip_filter_allow_loopback_ips=False,
                never_redirect=True,
                default_timeout=(timeout, timeout),
                user_agent_override=f"boyd/{VERSION}",
            )
        )
        self.trust_env = False
        self.line = Lifeline()
        for scheme in ("http", "https"):
            adapter = _Open(self.line) if allow_private else _Guarded(scheme == "https", self.line)
            self.mount(f"{scheme}://", adapter)

    def get_redirect_target(self, resp: Response) -> str | None:
        """None: requests would read the whole body to prepare the next request."""
        return None

    def close(self) -> None:
        """Close every connection."""
        super().close()
        self.line.close()


class _Connection(HTTPConnection):
    line: ClassVar[Lifeline]

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        self.line.watch(connected)
        return connected


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Open(HTTPAdapter):
    """Connects to any address."""

    def __init__(self, line: Lifeline) -> None:
        self._line = line
        super().__init__()

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> HTTPConnectionPool:
        """The pool for a request, whose connections are watched."""
        return _watched(super().get_connection_with_tls_context(*args, **options), self._line)


class _Guarded(IPFilterAdapter):
    """Connects to public addresses only."""

    def __init__(self, is_https: bool, line: Lifeline) -> None:
        self._line = line
        super().__init__(is_https_proto=is_https)

    def build_connection_pool_key_attributes(
        self, request: PreparedRequest, verify: Any, cert: Any = None
    ) -> Any:
        """The address to connect to, resolved and checked.

        Raises:
            InvalidIPAddress: it is not public.
        """
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        # Some that are neither private nor public pass the library's own check.
        address = ipaddress.ip_address(host["host"].strip("[]"))
        if not is_public(address):
            raise InvalidIPAddress(address)
        return host, pool

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> HTTPConnectionPool:
        """The pool for a request, whose connections are watched."""
        return _watched(super().get_connection_with_tls_context(*args, **options), self._line)


def _watched(pool: Any, line: Lifeline) -> HTTPConnectionPool:
    assert isinstance(pool, HTTPConnectionPool)
    base = _SecureConnection if pool.scheme == "https" else _Connection
    pool.ConnectionCls = type(base.__name__, (base,), {"line": line})
    return pool
