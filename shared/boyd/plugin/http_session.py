"""HTTP for plugins: a requests session that never waits for ever."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import requests

from boyd.sandbox.destinations import refuse_destination

DEFAULT_TIMEOUT = 10.0
MAX_REDIRECTS = 5


class Session(requests.Session):
    """A session in which every request has a time limit (10 s unless given) and few redirects.

    Cookies last for one request with its redirects: plugins share the session, and an action must
    not pass its login on to others.

    With *destinations* (`host:port`) it reaches no others, also when it is redirected.
    """

    def __init__(self, destinations: Collection[str] | None = None) -> None:
        super().__init__()
        self._destinations = destinations
        self.max_redirects = MAX_REDIRECTS
        self.headers["User-Agent"] = "boyd"

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send a request, as `requests.Session.request` does, with a time limit."""
        self.cookies.clear()
        options["timeout"] = options.get("timeout") or DEFAULT_TIMEOUT
        return super().request(method, url, **options)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a prepared request, or one that follows a redirect.

        Raises:
            requests.ConnectionError: it is to a destination that is not among those of the action.
        """
        refused = refuse_destination(request.url or "", self._destinations)
        if refused:
            raise requests.ConnectionError(refused, request=request)
        return super().send(request, **options)
