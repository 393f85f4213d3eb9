"""Fetches a page, of public addresses only, with limits on time and size."""

from __future__ import annotations

import codecs
import os
import threading
import zlib
from dataclasses import dataclass

import requests
import urllib3

from boyd.outbound.guarded_session import GuardedSession, check_url

#: The most bytes that are read of an answer, and that are left of it when it is unpacked.
MOST = 256 * 1024

_LEFT_OUT = "\n[the rest is left out]"
# They take very long, or make characters that nobody can store.
_BAD_CHARSETS = {"idna", "punycode", "utf-7", "unicode_escape", "raw-unicode-escape", "undefined"}


@dataclass(frozen=True)
class Page:
    """An answer to a GET; `location` is where a redirect leads to."""

    status: int
    reason: str
    location: str | None
    text: str

    @property
    def told(self) -> str:
        """The answer, with its status in front."""
        moved = f"\nLocation: {self.location}" if self.location else ""
        return f"{self.status} {self.reason}{moved}\n\n{self.text}"


def fetch(url: str, timeout: float, allow_private: bool) -> Page:
    """The answer to a GET.

    Redirects are told and not followed: where they lead to is for whoever reads it to ask for.

    Args:
        url: what to fetch.
        timeout: seconds for everything but the resolving of the name.
        allow_private: whether addresses that are not public are allowed.

    Raises:
        ValueError: it is no address of the web, or may not be asked.
        OSError: it did not answer in time, or with an error.
    """
    refused = check_url(url, allow_private=allow_private)
    if refused:
        raise ValueError(f"{url!r}: {refused}")
    session = GuardedSession(allow_private=allow_private, timeout=timeout)
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        session.line.cut()

    limit = threading.Timer(timeout, cut)
    limit.daemon = True
    limit.start()
    try:
        page = _get(session, url)
    except (requests.RequestException, urllib3.exceptions.HTTPError, zlib.error) as error:
        why = f"no answer within {timeout:g} s" if is_over.is_set() else str(error)
        raise OSError(f"{url} could not be fetched: {why}") from None
    finally:
        limit.cancel()
        session.close()
    if is_over.is_set():
        # What was cut off may look like a page that ended there.
        raise OSError(f"{url} could not be fetched: no answer within {timeout:g} s")
    if page.status >= 400:
        raise OSError(f"{url} could not be fetched: {page.status} {page.reason}")
    return page


def _get(session: GuardedSession, url: str) -> Page:
    trusted = os.environ.get("REQUESTS_CA_BUNDLE") or True
    headers = {"Accept-Encoding": "identity"}
    with session.get(url, stream=True, headers=headers, verify=trusted) as answer:
        body = answer.raw.read(MOST + 1, decode_content=False)
        if len(body) <= MOST and answer.raw.length_remaining:
            raise requests.ConnectionError("it broke off")
        packing = answer.headers.get("content-encoding", "identity").strip().lower()
        body = _unpacked(body, packing)
        text = body[:MOST].decode(_charset(answer.encoding), "replace")
        text = text.encode("utf-8", "replace").decode()
        more = _LEFT_OUT if len(body) > MOST else ""
        location = answer.headers.get("location")
        return Page(answer.status_code, answer.reason or "", location, text + more)


def _unpacked(body: bytes, packing: str) -> bytes:
    """The body, unpacked as far as it may be long."""
    if packing in ("", "identity"):
        return body
    if packing not in ("gzip", "x-gzip", "deflate"):
        raise requests.exceptions.ContentDecodingError(f"the answer is packed with {packing!r}")
    return zlib.decompressobj(wbits=47).decompress(body, MOST + 1)


def _charset(named: str | None) -> str:
    try:
        found = codecs.lookup(named or "utf-8").name
        # Not all codecs make text, and only something shows which do.
        b"x".decode(found, "replace")
    except (LookupError, ValueError):
        return "utf-8"
    return "utf-8" if found in _BAD_CHARSETS else found
