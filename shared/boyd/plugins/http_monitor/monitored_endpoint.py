"""Monitored endpoints: their options, in seconds, and their restarts."""

from __future__ import annotations

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

from boyd.plugin import Plugin
from boyd.plugin.discovery import import_object
from boyd.plugin.http_session import Session
from boyd.plugins.command import run_checked


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
    return {name: value.get_secret_value() for name, value in headers.items()}


def public_url(url: str) -> str:
    """The URL without credentials and query, which may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


class RestartFailed(Exception):
    """The restart was attempted and did not succeed."""


def restart(endpoint: MonitoredEndpoint) -> str:
    """Restart an endpoint; returns the output, and raises any exception if it failed."""
    how = endpoint.restart
    if isinstance(how, CommandRestart):
        return run_checked(how.argv, how.timeout, how.cwd)
    if isinstance(how, HttpRestart):
        return _request(how)
    if isinstance(how, FunctionRestart):
        return _call(how, endpoint.id)
    raise RestartFailed(f"{endpoint.title} has no restart configured")


def describe_restart(endpoint: MonitoredEndpoint) -> str:
    """A description of the restart."""
    how = endpoint.restart
    if isinstance(how, CommandRestart):
        where = f" in {how.cwd}" if how.cwd else ""
        return f"Would run {how.argv}{where}, for at most {how.timeout:g} s"
    if isinstance(how, HttpRestart):
        return f"Would send {how.method} {public_url(how.url)} and expect 2xx"
    if isinstance(how, FunctionRestart):
        return f"Would call {how.function}({endpoint.id!r})"
    return f"Would do nothing: {endpoint.title} has no restart configured"


def _request(how: HttpRestart) -> str:
    body: dict[str, Any] = {"data": how.body} if isinstance(how.body, str) else {"json": how.body}
    with Session() as session:
        try:
            response = session.request(
                how.method,
                how.url,
                headers=plain(how.headers),
                timeout=how.timeout,
                allow_redirects=False,
                stream=True,
                **body,
            )
        except requests.RequestException as error:
            # The message of the error quotes the URL, which may contain a secret.
            reason = f"{how.method} {public_url(how.url)} failed: {type(error).__name__}"
            raise RestartFailed(reason) from None
        with response:
            answer = f"{how.method} {public_url(how.url)} answered {response.status_code}"
            if response.status_code // 100 != 2:
                raise RestartFailed(answer)
            return answer


def _call(how: FunctionRestart, endpoint_id: str) -> str:
    answer = import_object(how.function)(endpoint_id)
    if answer is False:
        raise RestartFailed(f"{how.function} returned False")
    return "" if answer is None else str(answer)
