"""HTTP for plugins: a requests session that never waits for ever."""

from __future__ import annotations

from typing import Any

import requests

DEFAULT_TIMEOUT = 10.0
MAX_REDIRECTS = 5


class Session(requests.Session):
    """A session in which every request has a time limit (10 s unless given) and few redirects."""

    def __init__(self) -> None:
        super().__init__()
        self.max_redirects = MAX_REDIRECTS
        self.headers["User-Agent"] = "boyd"

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send a request, as `requests.Session.request` does, with a time limit."""
        options["timeout"] = options.get("timeout") or DEFAULT_TIMEOUT
        return super().request(method, url, **options)
