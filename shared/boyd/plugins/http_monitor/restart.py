"""Restarts of endpoints: by command, request or function."""

from __future__ import annotations

from typing import Any

import requests

from boyd.plugin.discovery import import_object
from boyd.plugin.http_session import Session
from boyd.plugins.command import run_checked
from boyd.plugins.http_monitor.endpoints import (
    CommandRestart,
    FunctionRestart,
    HttpRestart,
    MonitoredEndpoint,
)
from boyd.plugins.http_monitor.probe import plain, public_url


class RestartFailed(Exception):
    """The restart was attempted and did not succeed."""


def restart(endpoint: MonitoredEndpoint) -> str:
    """Restart an endpoint; returns the output.

    Raises:
        Exception: it failed, or cannot be restarted.
    """
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
