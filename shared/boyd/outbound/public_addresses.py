"""URLs and addresses that anybody may ask us to reach; checking them needs no HTTP client."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import SplitResult, urlsplit

MAX_LENGTH = 2048

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\\]")
#: Legacy notations of IPv4 addresses that the C library accepts: 127.1, 0x7f000001, 017700000001.
_OLD_IPV4 = re.compile(r"[0-9a-fx]+(\.[0-9a-fx]+){0,3}")
#: A global address that the platform itself answers on Azure.
_PLATFORM = frozenset({ipaddress.ip_address("168.63.129.16")})
#: Not public, whatever the release of Python says of them: protocol assignments, documentation,
#: 6to4 with its relays, Teredo and NAT64, behind which any IPv4 address may be.
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("192.0.0.0/24", "192.88.99.0/24", "3fff::/20"),
        *("2001::/32", "2002::/16", "64:ff9b::/96", "64:ff9b:1::/48"),
    )
)


def check_url(url: str, *, allow_private: bool = False) -> str | None:
    """Explain why no request may be sent to *url*; None if it may.

    Names are not resolved here; `boyd.outbound.guarded_session` checks the resolved address.
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
    """Report whether an address belongs to the public internet.

    For an IPv6 address that maps an IPv4 address, the latter decides.
    """
    plain = address
    if isinstance(address, ipaddress.IPv6Address):
        plain = address.ipv4_mapped or address
    special = plain.is_multicast or plain.is_reserved or plain.is_unspecified
    site_local = getattr(plain, "is_site_local", False)
    listed = plain in _PLATFORM or any(plain in network for network in _SPECIAL)
    return plain.is_global and not special and not site_local and not listed


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
    """The address in *host*, in any notation; None for a name."""
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
