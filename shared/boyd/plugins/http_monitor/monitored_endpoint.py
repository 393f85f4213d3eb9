"""Monitored endpoints: their options, in seconds, and their restarts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import requests
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    model_validator,
)

from boyd.errors import causes
from boyd.plugin import Plugin
from boyd.plugin.discovery import import_object
from boyd.plugin.http_session import Session, proxy_for
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls, StillHangs
from boyd.plugins.command import run_checked
from boyd.settings.secret_references import reveal


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https URL with a host")
    return url


HttpUrl = Annotated[str, AfterValidator(_http_url)]
Method = Annotated[str, Field(pattern=r"^[A-Z]{3,16}$")]
Seconds = Annotated[float, Field(gt=0, le=86400)]

#: A secret, so that neither `repr` nor `boyd check --print` shows it.
Headers = dict[str, SecretStr]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CommandRestart(_Settings):
    """Restart with a command, given as a list of arguments and run without a shell.

    A process left behind by the command should redirect its output, as it inherits a temporary
    file. To keep a process running yourself, use the plugin `process`.
    """

    type: Literal["command"]
    argv: list[str] = Field(min_length=1)
    cwd: Path | None = None
    timeout: Seconds = 60.0


class HttpRestart(_Settings):
    """Restart with a request, which must be answered with 2xx; a table as body is sent as JSON."""

    type: Literal["http"]
    url: HttpUrl
    method: Method = "POST"
    body: JsonValue = None
    headers: Headers = Field(default_factory=dict)
    timeout: Seconds = 30.0


class FunctionRestart(_Settings):
    """Restart with a Python function, called with the id of the endpoint.

    It fails by raising or by returning False. *timeout* only extends the action's own time limit.
    """

    type: Literal["function"]
    function: str = Field(pattern=r"^[\w.]+:\w+$")
    timeout: Seconds = 60.0


Restart = Annotated[CommandRestart | HttpRestart | FunctionRestart, Field(discriminator="type")]


class MonitoredEndpoint(_Settings):
    """An endpoint to monitor.

    Attributes:
        id: its name in observations and actions.
        name: the name for people; by default the id.
        url: the address to check.
        method: the HTTP method of the check.
        expected_status: the status of a healthy answer.
        headers: headers to send.
        restart: the way to restart it; absent: it is only observed.
        timeout: seconds for the whole check, including name resolution.
        failure_threshold: consecutive failures after which the endpoint is down.
        cooldown: seconds between two attempts to restart, successful or not.
        critical: an outage is critical, and a restart needs approval.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    name: str = ""
    url: HttpUrl
    method: Method = "GET"
    expected_status: int = Field(default=200, ge=100, le=599)
    timeout: Seconds = 5.0
    headers: Headers = Field(default_factory=dict)
    failure_threshold: int = Field(default=3, ge=1)
    cooldown: float = Field(default=300.0, ge=0)
    critical: bool = False
    restart: Restart | None = None

    @property
    def title(self) -> str:
        """The display name."""
        return self.name or self.id


class Options(Plugin.Options):
    """The monitor's options.

    Attributes:
        endpoints: the endpoints to check.
        check_interval: seconds between checks of an endpoint in continuous mode.
        max_history: number of checks kept per endpoint.
        shard_size: number of endpoints checked concurrently by one member of the fan-out.
        queue: the queue of workers that can reach the endpoints; any worker if absent.
        restart_queue: the queue of workers that may restart them; `boyd.act` if absent.
    """

    endpoints: list[MonitoredEndpoint] = Field(min_length=1)
    check_interval: Seconds = 30.0
    max_history: int = Field(default=50, ge=1, le=1000)
    shard_size: int = Field(default=25, ge=1, le=200)
    queue: str | None = None
    restart_queue: str | None = None

    @model_validator(mode="after")
    def _unique_ids(self) -> Options:
        ids = [endpoint.id for endpoint in self.endpoints]
        twice = sorted({id for id in ids if ids.count(id) > 1})
        if twice:
            raise ValueError(f"two endpoints have the same id: {', '.join(twice)}")
        return self


def plain(headers: Headers) -> dict[str, str]:
    """The headers with their secret values."""
    return {name: reveal(value) for name, value in headers.items()}


def public_url(url: str) -> str:
    """The URL without credentials and query, which may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


class RestartFailed(Exception):
    """The restart was attempted and did not succeed."""


def restart(endpoint: MonitoredEndpoint) -> str:
    """Restart an endpoint; returns the output, and raises any exception if it failed."""
    method = endpoint.restart
    if isinstance(method, CommandRestart):
        return run_checked(method.argv, method.timeout, method.cwd)
    if isinstance(method, HttpRestart):
        return _request(method)
    if isinstance(method, FunctionRestart):
        return _call(method, endpoint.id)
    raise RestartFailed(f"{endpoint.title} has no restart configured")


def describe_restart(endpoint: MonitoredEndpoint) -> str:
    """A description of the restart."""
    method = endpoint.restart
    if isinstance(method, CommandRestart):
        where = f" in {method.cwd}" if method.cwd else ""
        return f"Would run {method.argv}{where}, for at most {method.timeout:g} s"
    if isinstance(method, HttpRestart):
        return f"Would send {method.method} {public_url(method.url)} and expect 2xx"
    if isinstance(method, FunctionRestart):
        return f"Would call {method.function}({endpoint.id!r})"
    return f"Would do nothing: {endpoint.title} has no restart configured"


def _request(restart: HttpRestart) -> str:
    body: dict[str, Any] = (
        {"data": restart.body} if isinstance(restart.body, str) else {"json": restart.body}
    )
    with Session() as session:
        try:
            response = session.request(
                restart.method,
                restart.url,
                headers=plain(restart.headers),
                timeout=restart.timeout,
                allow_redirects=False,
                stream=True,
                **body,
            )
        except requests.RequestException as error:
            # The message of the error quotes the URL, which may contain a secret.
            reason = f"{restart.method} {public_url(restart.url)} failed: {type(error).__name__}"
            raise RestartFailed(reason) from None
        with response:
            answer = f"{restart.method} {public_url(restart.url)} answered {response.status_code}"
            if response.status_code // 100 != 2:
                raise RestartFailed(answer)
            return answer


def _call(restart: FunctionRestart, endpoint_id: str) -> str:
    answer = import_object(restart.function)(endpoint_id)
    if answer is False:
        raise RestartFailed(f"{restart.function} returned False")
    return "" if answer is None else str(answer)


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
            {each.id: BoundedCall(partial(check, each), each.timeout + GRACE) for each in endpoints}
        )
        return [_to_check(endpoint, checks[endpoint.id]) for endpoint in endpoints]


def _to_check(endpoint: MonitoredEndpoint, outcome: Check | Exception) -> Check:
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
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return f"{_kind(error)}: {cause.strerror}"
    return _kind(error)


def _kind(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "TLS failed"
    if isinstance(error, requests.ConnectionError):
        return "connection failed"
    return f"request failed ({type(error).__name__})"


def _too_slow(endpoint: MonitoredEndpoint) -> str:
    return f"no answer within {endpoint.timeout:g} s"
