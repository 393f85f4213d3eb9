"""Sessions of browsers: their cookie, and the check of each request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from flask import g, request
from werkzeug.wrappers import Response

from boyd.errors import StoreUnavailable
from boyd.models import ApiKey
from boyd.store.login_sessions import digest
from boyd_api.http.problems import HttpProblem, retry_after
from boyd_api.http.request_context import names_loopback
from boyd_api.http.services import Services

#: The names of cookies, without prefix: the session, what forms depend on before a login, and a
#: login that the browser has begun at the identity provider.
SESSION = "boyd"
VISITOR = "boyd-visitor"
LOGIN_STATE = "boyd-login"
#: The stream of events that every browser reads as long as a page is open.
STREAM = "/console/stream"
#: The time after a login in which high-risk operations are allowed.
FRESH = timedelta(minutes=5)


@dataclass(frozen=True)
class BrowserSession:
    """The session of a request.

    Attributes:
        id: the digest of its secret.
        key: the identity of its user.
        confirmed_at: the last time the user proved who they are.
        now: the time of the request; both on the Redis server's clock.
    """

    id: str
    key: ApiKey
    confirmed_at: datetime
    now: datetime

    @property
    def is_fresh(self) -> bool:
        """True shortly after the user proved who they are."""
        return self.now - self.confirmed_at < FRESH


def admit_session(services: Services) -> BrowserSession | None:
    """The session of the request; None if there is none, or it has ended.

    Raises `HttpProblem` beyond the rate limit.
    """
    secret = cookie_value()
    if secret is None:
        return None
    services.check_reachable()
    limits = services.settings.api
    try:
        sessions, renew = services.store.login_sessions, not is_automatic()
        admission = sessions.admit(secret, limits.rate, limits.burst, renew=renew)
    except StoreUnavailable as error:
        services.note_away(error)
        raise
    g.now = admission.now
    if admission.refused == "too-many":
        detail = f"more than {limits.rate:g} requests a second; try again later"
        raise HttpProblem("too-many-requests", detail, headers=retry_after(admission.wait))
    if admission.key is None or admission.confirmed_at is None:
        return None
    return BrowserSession(digest(secret), admission.key, admission.confirmed_at, admission.now)


def is_automatic() -> bool:
    """True if an open page sent the request by itself: it refreshes, or opens its stream."""
    return request.method != "POST" and ("HX-Request" in request.headers or request.path == STREAM)


def is_secure() -> bool:
    """True if cookies are for HTTPS only: always, unless the console is used on its own host."""
    return not names_loopback()


def cookie_name(name: str = SESSION) -> str:
    """The full name: with the prefix that binds it to the host, or with the port.

    Browsers send cookies of a host to all its ports, where another Boyd may run.
    """
    return f"__Host-{name}" if is_secure() else f"{name}-{request.host.rpartition(':')[2]}"


def cookie_value(name: str = SESSION) -> str | None:
    """The value that the browser has sent."""
    return request.cookies.get(cookie_name(name)) or None


def set_cookie(
    response: Response, name: str, value: str, secure: bool, lifetime: int | None = None
) -> None:
    """Have the browser keep a value until it is closed, or for a *lifetime* in seconds."""
    response.set_cookie(
        cookie_name(name),
        value,
        lifetime,
        path="/",
        secure=secure,
        httponly=True,
        samesite="Lax",
    )


def delete_cookie(response: Response, name: str = SESSION) -> None:
    """Have the browser forget a value."""
    response.delete_cookie(cookie_name(name), path="/", secure=is_secure(), httponly=True)
