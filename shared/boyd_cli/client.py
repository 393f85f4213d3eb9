"""A client of the HTTP API.

    api = Client("https://boyd.example", key).of("office")
    run = api.post("/runs", Run, {"title": "look", "description": "please"})

Answers are read into models; what the API refuses is raised as `ApiProblem`.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Generic, Self, TypeVar
from urllib.parse import quote, urlsplit

import requests
from pydantic import ValidationError
from requests.auth import AuthBase
from urllib3.exceptions import NewConnectionError

from boyd.errors import ApiProblem, ApiUnavailable, ConfigError
from boyd.models import Event, Model, Timestamp, explain, utc_now
from boyd.models.investigation import Logged, read_entry
from boyd.text.version import VERSION

log = logging.getLogger("boyd.client")

_M = TypeVar("_M", bound=Model)
_T = TypeVar("_T")

BASE = "/api/v0"
#: Seconds to connect, and to wait for an answer.
CONNECT = 5.0
TIMEOUT = 30.0
#: Seconds of silence after which an event stream counts as broken; heartbeats come every 15 s.
SILENCE = 45.0
#: The number of retries of a dropped connection, and the pause in seconds.
RETRIES = 2
PAUSE = 0.3
#: The name of problems reported by plugin endpoints.
REFUSED = "refused"
#: Clock differences below this many seconds are ignored; the header `Date` has whole seconds.
_EXACT = 2.0
_UNTRUSTED = "its certificate cannot be verified"


class _Bearer(AuthBase):
    """Sends the key, and keeps requests from using `~/.netrc`."""

    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class _Clock(Model):
    """The time in the answer that costs the API least."""

    timestamp: Timestamp


class Client:
    """A connection to the API of a deployment, or to one of its agents.

    Requests raise `ApiProblem` if they are refused or the answer is not valid, `ApiUnavailable` if
    the API does not answer, and `ValueError` if a body has what JSON cannot hold, such as NaN.

    Attributes:
        url: of the API.
        agent: the agent of all paths; without one, the deployment or its default agent.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, url: str, key: str | None = None, agent: str | None = None) -> None:
        """Check *url*; connections are opened later.

        Raises:
            ConfigError: *url* is not valid.
        """
        self.url = normalize_url(url)
        self.agent = agent
        self.timeout = TIMEOUT
        self._skew = timedelta()
        self._session = requests.Session()
        self._session.auth = _Bearer(key)
        self._session.headers["User-Agent"] = f"boyd/{VERSION}"
        self._proxies = _proxies(self.url)

    def of(self, agent: str | None) -> Self:
        """A client for one agent, or with None for the deployment and its default agent."""
        other = copy(self)
        other.agent = agent
        return other

    def close(self) -> None:
        """Close all connections, also of clients from `of`."""
        self._session.close()

    def now(self) -> datetime:
        """The time by the API's clock, as of its last answer."""
        return utc_now() + self._skew

    def read_clock(self) -> datetime:
        """The time by the clock of Redis, for which it sends a request."""
        return self.get("/health", _Clock).timestamp

    def get(self, path: str, kind: type[_M], /, **query: object) -> _M:
        """GET *path*."""
        return self._read(self._send("GET", path, query=query), kind)

    def post(
        self,
        path: str,
        kind: type[_M],
        body: Mapping[str, object] | None = None,
        *,
        if_match: int | None = None,
        **query: object,
    ) -> _M:
        """POST *body* to *path*; retries have no further effect.

        Fields that are None are omitted. *if_match* is the required version of an approval.
        """
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        answer = self._send("POST", path, query=query, body=body or {}, headers=headers)
        return self._read(answer, kind)

    def delete(self, path: str, kind: type[_M]) -> _M:
        """DELETE *path*, without retries: a second attempt would find nothing."""
        return self._read(self._send("DELETE", path), kind)

    def plugin(
        self,
        method: str,
        plugin: str,
        path: str,
        kind: type[_M],
        body: Mapping[str, object] | None = None,
        **query: object,
    ) -> _M:
        """Call an endpoint of a plugin of the agent; *path* is below the plugin's own.

        Raises:
            ApiProblem: refused by the API (`not-found`: no such endpoint) or by the endpoint
                (`refused`, with its status).
            ApiUnavailable: the API does not answer.
        """
        address = f"/plugins/{quote(plugin, safe='')}{path}"
        headers = {} if method == "GET" else {"Idempotency-Key": str(uuid.uuid4())}
        answer = self._send(method, address, query=query, body=body, headers=headers)
        return self._read(answer, kind)

    def lines(self, path: str, /, **query: object) -> Iterator[str]:
        """Stream the lines of an answer."""
        answer = self._send("GET", path, query=query, silence=self.timeout)
        return (line.decode() for line in self._lines(answer))

    def events(self, last_id: str | None = None, *, follow: bool = True) -> Stream[Event]:
        """Stream the agent's events after *last_id*, or from now on.

        The stream is open when this returns. An event `missed` comes first if events after
        *last_id* have expired. Without *follow* it ends after the events that there are, and begins
        with the oldest if there is no *last_id*. `ApiUnavailable` may also be raised while reading.
        """
        answer = self._open_stream("/events", last_id, follow=None if follow else False)
        return Stream(self._lines(answer), answer.close, _read_event)

    def entries(self, investigation: str, last_id: str | None = None) -> Stream[Logged]:
        """Stream the log of an investigation after *last_id*, until it ends.

        An entry without an id comes first if the entry *last_id* is lost. `ApiUnavailable` may also
        be raised while reading.
        """
        path = f"/investigations/{quote(investigation, safe='')}/events"
        answer = self._open_stream(path, last_id)
        return Stream(self._lines(answer), answer.close, _read_logged)

    def _open_stream(self, path: str, last_id: str | None, **query: object) -> requests.Response:
        """Open a stream of server-sent events after *last_id*."""
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        return self._send("GET", path, query=query, headers=headers, silence=SILENCE)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float | None = None,
    ) -> requests.Response:
        """Send a request, with retries, and return the successful answer.

        With *silence*, the answer is a stream, which may pause for that many seconds.
        """
        agent = f"/agents/{quote(self.agent, safe='')}" if self.agent else ""
        send = functools.partial(
            self._session.request,
            method,
            f"{self.url}{BASE}{agent}{path}",
            params={
                name: _text(value) for name, value in (query or {}).items() if value is not None
            },
            json=body and {name: value for name, value in body.items() if value is not None},
            headers=headers,
            timeout=(min(CONNECT, self.timeout), silence or self.timeout),
            stream=silence is not None,
            allow_redirects=False,
            proxies=self._proxies,
        )
        until = time.monotonic() + self.timeout
        dropped = 0
        while True:
            try:
                answer = send()
            except requests.exceptions.InvalidJSONError as error:
                raise ValueError(f"the body cannot be sent as JSON: {error}") from None
            except requests.RequestException as error:
                dropped += 1
                if method == "DELETE" or dropped > RETRIES or not _was_dropped(error):
                    raise self.unavailable(error) from None
                pause = PAUSE
            else:
                pause = _retry_after(answer)
                if not pause or time.monotonic() + pause > until:
                    return self._check(answer)
            time.sleep(pause)

    def _check(self, answer: requests.Response) -> requests.Response:
        self._learn_time(answer.headers.get("Date"))
        if 200 <= answer.status_code < 300:
            if names := answer.headers.get("Boyd-Unreadable"):
                log.warning("passed over, because it cannot be read: %s", names)
            return answer
        if 300 <= answer.status_code < 400:
            where = answer.headers.get("Location", "elsewhere")
            detail = f"{self.url} redirects to {where}; use the URL of the API itself"
            raise ApiProblem("redirected", answer.status_code, detail)
        raise self._problem(answer)

    def _problem(self, answer: requests.Response) -> ApiProblem:
        try:
            document = answer.json()
            if "type" not in document and "/plugins/" in answer.url:
                # The endpoint of a plugin uses its own format.
                return ApiProblem(REFUSED, answer.status_code, str(document["error"]), document)
            name = str(document["type"]).rpartition("/")[2]
            return ApiProblem(name, answer.status_code, str(document["detail"]), document)
        except (requests.RequestException, ValueError, KeyError, TypeError):
            status = f"{answer.status_code} {answer.reason}"
            detail = f"{self.url} answered {status}, which is not a response of Boyd's API"
            return ApiProblem("unexpected", answer.status_code, detail)

    def _read(self, answer: requests.Response, kind: type[_M]) -> _M:
        try:
            return kind.from_json(answer.content)
        except ValidationError as error:
            detail = f"{self.url} sent a response that Boyd {VERSION} does not understand:"
            text = f"{detail} {explain(error)}"[:500]
            raise ApiProblem("unexpected", answer.status_code, text) from None
        except requests.RequestException as error:
            raise self.unavailable(error) from None

    def _lines(self, answer: requests.Response) -> Iterator[bytes]:
        # Chunks arrive whole; without chunks, read byte by byte so as not to wait for more.
        size = 65_536 if answer.headers.get("Transfer-Encoding") == "chunked" else 1
        try:
            yield from answer.iter_lines(chunk_size=size)
        except requests.RequestException as error:
            raise self.unavailable(error) from error

    def _learn_time(self, date: str | None) -> None:
        try:
            skew = parsedate_to_datetime(date or "") - datetime.now(UTC)
        except (ValueError, TypeError):
            return
        self._skew = skew if abs(skew.total_seconds()) > _EXACT else timedelta()

    def unavailable(self, error: requests.RequestException) -> ApiUnavailable:
        """The error to raise when *error* has prevented an answer."""
        reason = _reason(error)
        remedy = "start it with `boyd up` or `boyd api`"
        if reason == _UNTRUSTED:
            remedy = "let REQUESTS_CA_BUNDLE name a file with its authority"
        return ApiUnavailable(
            f"the API at {self.url} does not answer: {reason}; {remedy}, or name another with --url"
            " or BOYD_URL"
        )


class Stream(Iterator[_T], Generic[_T]):
    """Items as they arrive; ends when the API ends the stream."""

    def __init__(
        self,
        lines: Iterator[bytes],
        close: Callable[[], None],
        read: Callable[[Mapping[str, str]], _T],
    ) -> None:
        self._found = map(read, _read_events(lines))
        #: Closes the stream.
        self.close = close

    def __next__(self) -> _T:
        return next(self._found)


def _read_events(lines: Iterator[bytes]) -> Iterator[Mapping[str, str]]:
    """The fields of each server-sent event with data."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.decode().partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "data" in fields:
                yield fields
            fields = {}


def _read_event(fields: Mapping[str, str]) -> Event:
    if fields.get("event") == "missed":
        return Event(id="", kind="missed", at=utc_now(), data={})
    return Event.from_json(fields["data"])


def _read_logged(fields: Mapping[str, str]) -> Logged:
    if fields.get("event") == "missed":
        return Logged(id="", entry=None)
    return Logged(id=fields["id"], entry=read_entry(fields["data"]))


def normalize_url(text: str) -> str:
    """Normalise the URL of an API.

    Raises:
        ConfigError: it is not valid.
    """
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ConfigError(f"{text!r} is not an API URL, such as http://127.0.0.1:8700")
    if parts.query or parts.fragment:
        raise ConfigError(f"an API URL must not have a query: {text!r}")
    return parts.geturl().rstrip("/").removesuffix(BASE)


def _proxies(url: str) -> dict[str, str]:
    """Bypass proxies for this machine."""
    host = urlsplit(url).hostname or ""
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    return {"no_proxy": host} if here else {}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _retry_after(answer: requests.Response) -> float:
    """Seconds after which to retry; 0: not at all."""
    in_flight = b"/problems/idempotency-in-flight"
    is_busy = answer.status_code == 409 and in_flight in answer.content
    if answer.status_code != 429 and not is_busy:
        return 0.0
    try:
        return max(0.1, float(answer.headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0


def _was_dropped(error: requests.RequestException) -> bool:
    """Match errors of a connection that was established and then broke."""
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return True
    others = (requests.exceptions.SSLError, requests.exceptions.ProxyError, requests.Timeout)
    if not isinstance(error, requests.ConnectionError) or isinstance(error, others):
        return False
    return not isinstance(_cause(error), NewConnectionError)


def _cause(error: requests.RequestException) -> object:
    inner = error.args[0] if error.args else error
    return getattr(inner, "reason", None) or inner


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.ConnectTimeout):
        return "it is unreachable"
    if isinstance(error, requests.Timeout):
        return "it timed out"
    text = str(_cause(error))
    for sign, meaning in (
        ("Connection refused", "connection refused"),
        ("Name or service not known", "no such host"),
        ("Failed to resolve", "no such host"),
        ("CERTIFICATE_VERIFY_FAILED", _UNTRUSTED),
    ):
        if sign in text:
            return meaning
    return "the connection was lost" if _was_dropped(error) else text[:200]
