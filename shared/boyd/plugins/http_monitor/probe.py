"""Checks of endpoints, one by one and concurrently."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import requests

from boyd.plugin.http_session import Session, proxy_for
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls, StillHangs
from boyd.plugins.http_monitor.monitored_endpoint import MonitoredEndpoint, plain

#: Seconds added to the time limit of a check before it is abandoned.
GRACE = 0.25


@dataclass(frozen=True)
class Check:
    """The result of a check; `error` contains no header, credential or query; `ms` is the time."""

    status: int | None
    error: str | None
    ms: float

    @property
    def healthy(self) -> bool:
        """True if the endpoint answered as expected."""
        return self.error is None


class Prober:
    """Checks endpoints concurrently, each within its own time limit.

    A server that sends its headers byte by byte keeps its check busy, and no other.
    """

    def __init__(self) -> None:
        self._calls = BoundedCalls()

    def check_all(self, endpoints: Sequence[MonitoredEndpoint]) -> list[Check]:
        """Check *endpoints*, one thread each; the results are in the same order."""
        checks = self._calls.make(
            {one.id: BoundedCall(partial(check, one), one.timeout + GRACE) for one in endpoints}
        )
        return [_made(endpoint, checks[endpoint.id]) for endpoint in endpoints]


def _made(endpoint: MonitoredEndpoint, outcome: Check | Exception) -> Check:
    if isinstance(outcome, StillHangs):
        return Check(None, "the previous check still hangs", 0.0)
    if isinstance(outcome, Exception):
        return Check(None, _too_slow(endpoint), endpoint.timeout * 1000)
    return outcome


def check(endpoint: MonitoredEndpoint) -> Check:
    """Check an endpoint once; never raises, and never reads the response body."""
    began = time.perf_counter()
    try:
        status = _ask(endpoint)
    except Exception as error:  # noqa: BLE001 - any error is a failed check
        reason = f"{_reason(endpoint, error)}{_way(endpoint)}"
        return Check(None, reason, (time.perf_counter() - began) * 1000)
    took = (time.perf_counter() - began) * 1000
    if status == endpoint.expected_status:
        return Check(status, None, took)
    reason = f"answered {status}, expected {endpoint.expected_status}{_way(endpoint)}"
    return Check(status, reason, took)


def _way(endpoint: MonitoredEndpoint) -> str:
    """The end of a reason: the proxy, which may have failed or answered itself."""
    proxy = proxy_for(endpoint.url)
    return f" (through the proxy {proxy})" if proxy else ""


def _ask(endpoint: MonitoredEndpoint) -> int:
    with (
        Session() as session,
        session.request(
            endpoint.method,
            endpoint.url,
            headers=plain(endpoint.headers),
            timeout=endpoint.timeout,
            # A redirect could send our headers to another host.
            allow_redirects=not endpoint.headers and endpoint.expected_status // 100 != 3,
            stream=True,
        ) as response,
    ):
        return response.status_code


def _reason(endpoint: MonitoredEndpoint, error: Exception) -> str:
    """The reason of a failure in our own words: those of requests quote the URL and the headers."""
    if isinstance(error, requests.Timeout):
        return _too_slow(endpoint)
    if isinstance(error, requests.TooManyRedirects):
        return "too many redirects"
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return f"{_kind(error)}: {cause.strerror}"
    return _kind(error)


def _kind(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "TLS failed"
    if isinstance(error, requests.ConnectionError):
        return "connection failed"
    return f"request failed ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors behind *error*: requests and urllib3 wrap the system's error several times."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            linked = [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
            waiting += [item for item in linked if isinstance(item, BaseException)]


def _too_slow(endpoint: MonitoredEndpoint) -> str:
    return f"no answer within {endpoint.timeout:g} s"
