"""An HTTP session that reaches only public addresses, follows no redirect, and can be cut off."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from io import BytesIO
from typing import Any, ClassVar

from requests import PreparedRequest, RequestException, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError
from requests_hardened.client import HTTPSession
from requests_hardened.config import Config
from requests_hardened.ip_filter import InvalidIPAddress
from requests_hardened.ip_filter_adapter import IPFilterAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from boyd.outbound.public_addresses import check_url, is_public
from boyd.sandbox.destinations import refuse_destination
from boyd.text.version import VERSION


class Lifeline:
    """The connections of a session, which another thread can cut.

    A socket timeout restarts with every byte, so a server that trickles data would never time out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    def watch(self, connected: socket.socket) -> None:
        """Add a connection, and cut it at once if the lifeline is cut."""
        with self._lock:
            # A duplicate stays valid when TLS takes over the original, and when that is closed.
            self._sockets.append(connected.dup())
            if self._is_cut:
                self._shut_down()

    def cut(self) -> None:
        """End every connection, present and future; threads that wait for one get an error."""
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
    """A session for one request to an address given by a client.

    It connects to exactly the address that was resolved and checked, so that DNS cannot change it
    in between. It ignores proxies and netrc of the environment: a proxy would connect unchecked.
    *timeout* is in seconds, for the connection and for each part of the response. With
    *destinations* (`host:port`) it reaches no others.
    """

    def __init__(
        self, *, allow_private: bool, timeout: float, destinations: Collection[str] | None = None
    ) -> None:
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
        self._destinations = destinations
        self.line = Lifeline()
        for scheme in ("http", "https"):
            adapter = _Open(self.line) if allow_private else _Guarded(scheme == "https", self.line)
            self.mount(f"{scheme}://", adapter)

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        """Send a prepared request.

        Raises:
            requests.ConnectionError: it is to a destination that is not among those of the action.
        """
        refused = refuse_destination(request.url or "", self._destinations)
        if refused:
            raise ConnectionError(refused, request=request)
        response: Response = super().send(request, **options)
        return response

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
        """A pool whose connections are watched."""
        return _watch(super().get_connection_with_tls_context(*args, **options), self._line)


class _Guarded(IPFilterAdapter):
    """Connects to public addresses only."""

    def __init__(self, is_https: bool, line: Lifeline) -> None:
        self._line = line
        super().__init__(is_https_proto=is_https)

    def build_connection_pool_key_attributes(
        self, request: PreparedRequest, verify: Any, cert: Any = None
    ) -> Any:
        """Resolve and check the address.

        Raises:
            InvalidIPAddress: it is not public.
        """
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        # The library accepts some addresses that are neither private nor public.
        address = ipaddress.ip_address(host["host"].strip("[]"))
        if not is_public(address):
            raise InvalidIPAddress(address)
        return host, pool

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> HTTPConnectionPool:
        """A pool whose connections are watched."""
        return _watch(super().get_connection_with_tls_context(*args, **options), self._line)


def _watch(pool: Any, line: Lifeline) -> HTTPConnectionPool:
    assert isinstance(pool, HTTPConnectionPool)
    base = _SecureConnection if pool.scheme == "https" else _Connection
    pool.ConnectionCls = type(base.__name__, (base,), {"line": line})
    return pool


#: The most bytes of a response.
MAX_BYTES = 1_048_576


class BoundedSession(GuardedSession):
    """A session for one request to a server of the operator's choice.

    It trusts the certificates in `REQUESTS_CA_BUNDLE`, as callbacks do. *timeout* is in seconds,
    for the request and its response as a whole, after the host's name is resolved.
    """

    def __init__(self, *, allow_private: bool, timeout: float) -> None:
        super().__init__(allow_private=allow_private, timeout=timeout)
        self.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._allow_private = allow_private
        self._timeout = timeout

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        """Send a request and read its response.

        Raises:
            requests.RequestException: the address is refused, there is no complete response in
                time, or it is longer than `MAX_BYTES`.
        """
        refused = check_url(request.url or "", allow_private=self._allow_private)
        if refused:
            raise RequestException(f"the URL is refused: {refused}")
        limit = threading.Timer(self._timeout, self.line.cut)
        limit.daemon = True
        limit.start()
        try:
            response = super().send(request, **{**options, "stream": True})
            with response:
                body = response.raw.read(MAX_BYTES + 1, decode_content=True)
        except HTTPError as error:
            raise RequestException(f"the response broke off: {error}") from error
        finally:
            limit.cancel()
        if len(body) > MAX_BYTES:
            raise RequestException(f"the response is longer than {MAX_BYTES} bytes")
        response.raw = BytesIO(body)
        return response
