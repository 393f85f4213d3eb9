"""Who asks: no route runs before this has let the request in (H2, H4)."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from urllib.parse import urlsplit

from flask import g, request

from boyd.errors import StoreUnavailable
from boyd.models import Actor, ApiKey
from boyd.store import Admission
from boyd_api.problems import Problem, retry_after
from boyd_api.routing import Route
from boyd_api.services import Services, is_loopback

#: Who asks when no key is needed.
ANONYMOUS = "anonymous"

#: What the allowance of a key for sending is kept under, besides its other one.
_SENDING = "intake"

_HOW = "send `Authorization: Bearer boyd_<id>_<secret>`; `boyd keys create` makes a key"


@dataclass(frozen=True)
class Caller:
    """Who asks, and the key that says so; None where none is needed."""

    actor: Actor
    key: ApiKey | None


def admit(services: Services, route: Route) -> Caller:
    """Let the request in.

    Raises:
        Problem: there is no valid key, it does not carry the scope, or asks too often.
        StoreUnavailable: Redis, which knows the keys, does not answer.
    """
    text = _sent() if route.inlet else _shown()
    if text is None:
        _check_open(services)
    key = _admission(services, route, text).key
    address = request.remote_addr
    if key is None:
        return Caller(Actor(principal=ANONYMOUS, address=address), None)
    _check_allowed(route, key)
    return Caller(key.actor(address), key)


def _shown() -> str | None:
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, text = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise _unauthenticated(f"the Authorization header holds no bearer key; {_HOW}")
    return text.strip()


def _sent() -> str | None:
    """The key of a system that may know no bearer keys: as a password, or in `X-API-Key`."""
    header = request.headers.get("Authorization", "")
    scheme, _, text = header.strip().partition(" ")
    if scheme.lower() == "basic":
        return _password(text)
    return _shown() or request.headers.get("X-API-Key", "").strip() or None


def _password(text: str) -> str:
    try:
        _, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = password = ""
    if not colon or not password:
        raise _unauthenticated(f"the Authorization header holds no password; {_HOW}")
    return password


def _check_open(services: Services) -> None:
    """Refuse a request without a key, unless that is allowed and it is from this machine.

    A browser here would carry requests of any web page: those name another host or origin.
    """
    if not services.settings.api.allow_unauthenticated:
        raise _unauthenticated(f"no key was sent; {_HOW}")
    if not is_loopback(_host(f"//{request.host}")):
        raise Problem("forbidden", f"without a key, {request.host!r} cannot be the host")
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.host:
        raise Problem("forbidden", f"without a key, {origin!r} cannot be the origin")
    # A browser leaves the origin out when a page has it fetch an image or follow a link.
    site = request.headers.get("Sec-Fetch-Site", "none").strip().lower()
    if site in ("cross-site", "same-site"):
        raise Problem("forbidden", "without a key, no page of another site can ask")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _admission(services: Services, route: Route, text: str | None) -> Admission:
    services.check_reachable()
    limits = services.settings.intake if route.inlet else services.settings.api
    purpose = _SENDING if route.inlet else ""
    try:
        admission = services.store.access.admit(text, limits.rate, limits.burst, purpose)
    except StoreUnavailable:
        services.note_away()
        raise
    g.now = admission.now
    if admission.refused in ("unknown", "expired"):
        why = "has expired" if admission.refused == "expired" else "is not known, or was revoked"
        raise _unauthenticated(f"the key {why}; `boyd keys create` makes one")
    g.limits = {
        "RateLimit-Limit": str(limits.burst),
        "RateLimit-Remaining": str(admission.remaining),
        "RateLimit-Reset": str(math.ceil(admission.whole)),
    }
    if admission.refused == "too-many":
        wait = retry_after(admission.wait)
        detail = f"more than {limits.rate:g} requests a second; ask again later"
        raise Problem("overloaded" if route.inlet else "too-many-requests", detail, headers=wait)
    return admission


def _check_allowed(route: Route, key: ApiKey) -> None:
    if route.scope is not None and not key.allows(route.scope):
        detail = f"the key {key.name!r} lacks the scope {route.scope!r}"
        raise Problem("forbidden", detail, scope=route.scope)
    if route.reach == "deployment" and key.agents:
        detail = f"this concerns all agents; the key {key.name!r} is for {', '.join(key.agents)}"
        raise Problem("forbidden", detail)


def _unauthenticated(detail: str) -> Problem:
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="boyd"'})
