"""The REST API of GitHub, whose rate limit is respected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from boyd.plugin import Context
from boyd.plugins.http_service import HttpAccess, HttpService, ServiceError

#: The version of the API that is spoken.
API_VERSION = "2022-11-28"
PAGE = 100
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": API_VERSION}


class RateLimit:
    """The requests that are left, as the latest answer says; each process learns it by itself.

    With fewer than *reserve* left, nothing more is asked until they are renewed.
    """

    def __init__(self, reserve: int, clock: Callable[[], float] = time.time) -> None:
        self._reserve = max(1, reserve)
        self._clock = clock
        self._until = 0.0

    def check(self) -> None:
        """Check that a request may be sent.

        Raises:
            ServiceError: none may be, for some time.
        """
        left = self._until - self._clock()
        if left > 0:
            raise ServiceError(f"GitHub's rate limit is used up; asked again in {left:.0f} s")

    def learn(self, headers: Mapping[str, str], *, refused: bool = False) -> None:
        """Take note of an answer; *refused* if it was not given for the limit."""
        reset = _number(headers.get("x-ratelimit-reset"))
        remaining = headers.get("x-ratelimit-remaining")
        if headers.get("retry-after") is not None:
            self._until = self._clock() + _number(headers["retry-after"])
        elif remaining is not None and _number(remaining) < self._reserve:
            self._until = reset
        elif refused:
            # GitHub asks to wait for a minute if it does not say how long.
            self._until = self._clock() + 60


def _number(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


class Repository:
    """A repository, with certain credentials; `unread` are lists with more pages than were read."""

    def __init__(
        self, name: str, url: str, access: HttpAccess, timeout: float, limit: RateLimit
    ) -> None:
        self.name = name
        self._service = HttpService(url, access, timeout)
        self._limit = limit
        self.unread: set[str] = set()

    def get(self, ctx: Context, path: str, **params: Any) -> Any:
        """GET what is below the repository."""
        return self.send(ctx, "GET", path, params=params)

    def find(self, ctx: Context, path: str) -> Any | None:
        """GET what is below the repository; None if it is not there."""
        try:
            return self.get(ctx, path)
        except ServiceError as error:
            if error.status == 404:
                return None
            raise

    def pages(
        self, ctx: Context, path: str, key: str = "", pages: int = 3, **params: Any
    ) -> Iterator[Any]:
        """The items of the first pages of a list, in a field *key* if it has one."""
        for page in range(1, pages + 1):
            found = self.get(ctx, path, per_page=PAGE, page=page, **params)
            items = found[key] if key else found
            yield from items
            if len(items) < PAGE:
                return
        self.unread.add(path)

    def send(
        self,
        ctx: Context,
        method: Literal["GET", "POST", "PATCH", "DELETE"],
        path: str,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request, unless the rate limit forbids it.

        Raises:
            ServiceError: it was not sent, refused, or has no usable answer.
        """
        self._limit.check()
        try:
            found, headers = self._service.exchange(
                ctx, method, f"/repos/{self.name}{path}", body=body, params=params, headers=_HEADERS
            )
        except ServiceError as error:
            refused = error.status == 429 or "rate limit" in str(error)
            self._limit.learn(error.headers, refused=refused)
            raise
        self._limit.learn(headers)
        return found
