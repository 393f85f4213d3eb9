"""Calls of Slack's Web API."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import requests

#: The type of bodies; without a charset Slack warns in each answer.
_JSON = "application/json; charset=utf-8"
#: Seconds to wait where Slack names no time.
_WAIT = 30.0


class SlackError(Exception):
    """A call that Slack did not carry out, or whose answer is missing; it shows no token.

    `code` is Slack's word for the reason; empty without an answer. `wait` are the seconds for which
    Slack wants no further calls.
    """

    def __init__(self, message: str, code: str = "", wait: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.wait = wait


class SlackApi:
    """The methods that a bot may call."""

    def __init__(self, session: requests.Session, url: str, token: str, timeout: float) -> None:
        self._session = session
        self._url = url
        self._token = token
        self._timeout = timeout

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method, such as `chat.postMessage`, once; its answer.

        Raises:
            SlackError: Slack refused it, or there is no usable answer.
        """
        sent = {name: value for name, value in arguments.items() if value is not None}
        try:
            response = self._session.post(
                f"{self._url}/{method}",
                data=json.dumps(sent).encode(),
                headers={"Content-Type": _JSON, "Authorization": f"Bearer {self._token}"},
                timeout=self._timeout,
                allow_redirects=False,
            )
        except (requests.RequestException, UnicodeError) as error:
            reason = f"{urlsplit(self._url).netloc} does not answer: {type(error).__name__}"
            raise SlackError(reason) from None
        return _read(method, response)


def _read(method: str, response: requests.Response) -> dict[str, Any]:
    if response.status_code == 429:
        text = response.headers.get("Retry-After", "")
        wait = float(text) if text.isascii() and text.isdigit() and len(text) < 6 else _WAIT
        raise SlackError(f"Slack wants no {method} for {wait:g} s", "ratelimited", max(1.0, wait))
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if response.status_code != 200 or not isinstance(answer, dict):
        raise SlackError(f"Slack answered {method} with {response.status_code}")
    if answer.get("ok") is not True:
        code = str(answer.get("error", "unknown"))[:100]
        raise SlackError(f"Slack refused {method}: {code}", code)
    return answer
