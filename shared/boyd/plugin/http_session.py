"""HTTP for plugins: a requests session that never waits for ever."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import HTTPBasicAuth
from requests.utils import (
    get_auth_from_url,
    get_environ_proxies,
    prepend_scheme_if_needed,
    select_proxy,
)

from boyd.sandbox.destinations import refuse_destination
from boyd.settings.model import is_loopback

DEFAULT_TIMEOUT = 10.0


def proxy_for(url: str) -> str | None:
    """The proxy of the environment that requests to *url* go through, as `host:port`."""
    if _is_here(url):
        return None
    proxy = select_proxy(url, get_environ_proxies(url))
    if proxy is None:
        return None
    whole: str = prepend_scheme_if_needed(proxy, "http")  # type: ignore[no-untyped-call]
    return urlsplit(whole).netloc.rpartition("@")[2]


def _is_here(url: str | bytes | None) -> bool:
    text = url.decode() if isinstance(url, bytes) else url or ""
    return is_loopback(urlsplit(text).hostname or "")


def _as_written(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Add the login in the URL, if there is one; the headers stay as they are."""
    user, password = get_auth_from_url(request.url or "")
    return HTTPBasicAuth(user, password)(request) if user or password else request


MAX_REDIRECTS = 5


class Session(requests.Session):
    """A session in which every request has a time limit (10 s unless given) and few redirects.

    Cookies last for one request with its redirects: plugins share the session, and an action must
    not pass its login on to others.

    With *destinations* (`host:port`) it reaches no others, also when it is redirected.

    It uses the proxies of the environment, but never for this host: they would ask their own. It
    does not read `~/.netrc`, whose entry for a host would replace the header `Authorization`.
    """

    def __init__(self, destinations: Collection[str] | None = None) -> None:
        super().__init__()
        self._destinations = destinations
        self.max_redirects = MAX_REDIRECTS
        self.headers["User-Agent"] = "boyd"
        self.auth = _as_written

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send a request, as `requests.Session.request` does, with a time limit."""
        self.cookies.clear()
        options["timeout"] = options.get("timeout") or DEFAULT_TIMEOUT
        return super().request(method, url, **options)

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        """The settings for a request, without the environment's proxies for this host."""
        own = dict(proxies or {})
        settings = super().merge_environment_settings(url, proxies, stream, verify, cert)
        return {**settings, "proxies": own} if _is_here(url) else settings

    def rebuild_proxies(self, prepared_request: requests.PreparedRequest, proxies: Any) -> Any:
        """The proxies for a redirect, likewise."""
        if _is_here(prepared_request.url):
            return {}
        return super().rebuild_proxies(prepared_request, proxies)  # type: ignore[no-untyped-call]

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: Any) -> None:
        """Send no credentials to another host that a redirect names."""
        if self.should_strip_auth(response.request.url, prepared_request.url):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a prepared request, or one that follows a redirect.

        Raises:
            requests.ConnectionError: it is to a destination that is not among those of the action.
        """
        refused = refuse_destination(request.url or "", self._destinations)
        if refused:
            raise requests.ConnectionError(refused, request=request)
        return super().send(request, **options)
