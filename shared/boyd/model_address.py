"""Where a model is: a URL that can be asked, and that gives nothing away."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from urllib.parse import urlsplit

#: What the wires put behind the address by themselves.
_ENDINGS = ("/chat/completions", "/v1/messages")
_FORM = re.compile(r"https?://[^\s/?#][^\s?#]*")


def checked(url: str, *, allow_http: bool) -> str:
    """The URL, when a model can be asked there.

    Raises:
        ValueError: it cannot, or requests and the key would go in clear to another host. What it
            says repeats nothing in which a password may be.
    """
    host = _host(url)
    ending = next((end for end in _ENDINGS if url.rstrip("/").endswith(end)), None)
    if ending:
        raise ValueError(f"it ends in {ending}, which Boyd adds itself; leave that out")
    if url.startswith("http:") and not (allow_http or _is_loopback(host)):
        raise ValueError(
            f"{host} is another host, and http is not encrypted;"
            " use https, or set llm.allow_http = true"
        )
    return url


def is_here(url: str) -> bool:
    """Whether that checked URL is on this host."""
    return _is_loopback(_host(url))


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Both raise for what no client would take.
        _ = parts.port, host.encode("idna")
    except ValueError:
        raise ValueError(_unlike("it is not a URL")) from None
    if "@" in parts.netloc:
        raise ValueError(
            "it contains a user name or a password; leave them out,"
            " and name the key with llm.api_key_env or llm.api_key_file"
        )
    if not (host and _FORM.fullmatch(url) and url.isprintable()):
        raise ValueError(_unlike("it is not the URL of a server"))
    return host


def _unlike(what: str) -> str:
    return (
        f"{what}; it has to be http:// or https://, a host, perhaps a port and a path,"
        " without spaces, `?` and `#`"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
