"""The two ways to an MCP server: streamable HTTP to a URL, and the pipes of a program."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import requests
from requests_hardened.ip_filter import InvalidIPAddress
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
)

from boyd.errors import causes
from boyd.models import JsonObject
from boyd.outbound.guarded_session import GuardedSession
from boyd.outbound.public_addresses import check_url
from boyd.plugins.command import kill_group
from boyd.plugins.mcp_client.mcp_connection import (
    MAX_MESSAGE,
    MAX_RECEIVED,
    VERSION_HEADER,
    Deadline,
    parse_message,
    reply_to,
)
from boyd.plugins.mcp_client.remote_server import RemoteServer, RequestRefused, ServerFailure
from boyd.sandbox.subprocess_call import follow_parent

_ACCEPT = "application/json, text/event-stream"
_SESSION = "Mcp-Session-Id"
_CHUNK = 65_536
#: How often a stream that ended early is resumed, and the seconds in between.
_RESUMPTIONS = 3
_PAUSE = 1.0
#: Characters quoted of an answer that is an error.
_QUOTED = 300
#: The most characters of a session's id.
_MAX_SESSION = 1000
#: Seconds to end a session in.
_SESSION_GRACE = 2.0
#: The least seconds of a time limit that the session takes.
_LEAST = 0.1
_UNSENT = (NewConnectionError, NameResolutionError, ConnectTimeoutError)

#: The variables of the worker that a program gets; secrets are among the others.
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
#: Bytes kept of the end of what a program says on standard error.
_SAID = 1000
#: Seconds in which a program may end by itself once its input is closed.
_PROGRAM_GRACE = 0.5


@dataclass
class _Place:
    """The place in a stream of events: the last event's id, and the pause before it is resumed."""

    last: str = ""
    pause: float = _PAUSE


class HttpWire:
    """A server at a URL, with at most one session; each request has a connection of its own."""

    def __init__(self, server: RemoteServer) -> None:
        """Prepare; raises `ServerFailure` for a refused URL, `ConfigError` without a secret."""
        self._url = server.url or ""
        refused = check_url(self._url, allow_private=server.allow_private)
        if refused:
            raise ServerFailure(f"its URL is refused: {refused}")
        self._allow_private = server.allow_private
        self._fixed = {name: secret.read() for name, secret in server.headers.items()}
        trusted = os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._options: dict[str, Any] = {"verify": trusted, **server.access.options()}
        self._session = ""
        self._version: dict[str, str] = {}
        self._received = 0

    def exchange(
        self, message: JsonObject, headers: Mapping[str, str], until: Deadline
    ) -> JsonObject:
        """POST a request; its response, from the body or from a stream of events."""
        self._version = _version_in(headers)
        place = _Place()
        with self._request("POST", message, headers, until) as response:
            self._session = self._session or _session_in(response)
            answer = self._response(response, message, until, place)
        if answer is None and place.last and headers == self._version:
            answer = self._resume(message, until, place)
        if answer is None:
            raise ServerFailure("it ended the answer early", sent=True)
        return answer

    def _resume(self, message: JsonObject, until: Deadline, place: _Place) -> JsonObject | None:
        """The response in a stream that the server lets go on, as older revisions may."""
        for _ in range(_RESUMPTIONS):
            time.sleep(min(place.pause, until.seconds_left()))
            try:
                with self._request("GET", None, {"Last-Event-ID": place.last}, until) as response:
                    answer = self._response(response, message, until, place)
            except ServerFailure as failure:
                raise ServerFailure(str(failure), sent=True) from None
            if answer is not None:
                return answer
        return None

    def send(self, message: JsonObject, headers: Mapping[str, str], until: Deadline) -> None:
        """POST a notification or an answer."""
        self._version = _version_in(headers)
        with self._request("POST", message, headers, until) as response:
            _check_status(response, b"")

    def close(self) -> None:
        """End the session, if the server keeps one."""
        with suppress(ServerFailure):
            if self._session:
                with self._request("DELETE", None, {}, Deadline(_SESSION_GRACE)):
                    pass

    @contextmanager
    def _request(
        self,
        method: str,
        message: JsonObject | None,
        headers: Mapping[str, str],
        until: Deadline,
    ) -> Iterator[requests.Response]:
        """The response, until the deadline; what goes wrong with it is a `ServerFailure`."""
        http = GuardedSession(
            allow_private=self._allow_private, timeout=max(_LEAST, until.seconds_left())
        )
        limit = threading.Timer(until.seconds_left(), http.line.cut)
        limit.daemon = True
        limit.start()
        try:
            with http.request(
                method,
                self._url,
                json=message,
                headers={**self._fixed, **self._session_headers(), **headers},
                stream=True,
                allow_redirects=False,
                **self._options,
            ) as response:
                yield response
        except (requests.RequestException, HTTPError, OSError) as error:
            raise self._failure(error, not until.seconds_left()) from None
        finally:
            limit.cancel()
            http.close()

    def _session_headers(self) -> dict[str, str]:
        session = {_SESSION: self._session} if self._session else {}
        packing = {"Accept": _ACCEPT, "Accept-Encoding": "identity"}
        return {**packing, **self._version, **session}

    def _failure(self, error: Exception, late: bool) -> ServerFailure:
        reasons = list(causes(error))
        host = urlsplit(self._url).netloc
        if any(isinstance(reason, InvalidIPAddress) for reason in reasons):
            return ServerFailure(f"the address of {host} is not public; see allow_private")
        sent = not any(isinstance(reason, _UNSENT) for reason in reasons)
        if late:
            return ServerFailure(f"{host} did not answer in time", sent)
        kind = type(reasons[-1]).__name__
        return ServerFailure(f"the connection to {host} failed ({kind})", sent)

    def _response(
        self, response: requests.Response, message: JsonObject, until: Deadline, place: _Place
    ) -> JsonObject | None:
        """The response to *message* in an HTTP response, unless its stream ends without one."""
        if not _is_stream(response):
            body = b"".join(self._chunks(response))
            if not until.seconds_left():  # what was cut off may look complete
                raise ServerFailure("it did not answer in time", sent=True)
            return _check_status(response, body) or parse_message(body)
        _check_status(response, b"")
        with suppress(HTTPError, requests.RequestException, OSError):  # it may be resumed
            for event in self._events(response, place):
                received = parse_message(event)
                answer = reply_to(received)
                if answer is not None:
                    self.send(answer, self._version, until)
                elif "method" not in received and received.get("id") == message["id"]:
                    return received
        if not until.seconds_left():
            raise ServerFailure("it did not answer in time", sent=True)
        return None

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        """The body as it arrives."""
        while chunk := response.raw.read1(_CHUNK, decode_content=False):
            self._received += len(chunk)
            if self._received > MAX_RECEIVED:
                raise ServerFailure(f"it sent more than {MAX_RECEIVED} bytes", sent=True)
            yield chunk

    def _events(self, response: requests.Response, place: _Place) -> Iterator[bytes]:
        """The data of each event that has any."""
        data: list[bytes] = []
        for line in self._lines(response):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line and any(data):
                yield b"\n".join(data)
            if not line:
                data = []
            elif name == b"data":
                data.append(value)
            elif name == b"id" and len(value) <= _MAX_SESSION:
                place.last = value.decode("latin-1")
            elif name == b"retry" and value.isdigit() and len(value) < 7:
                place.pause = int(value) / 1000

    def _lines(self, response: requests.Response) -> Iterator[bytes]:
        rest = b""
        for chunk in self._chunks(response):
            *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
            if len(rest) > MAX_MESSAGE:
                raise ServerFailure(
                    f"it sent a message of more than {MAX_MESSAGE} bytes", sent=True
                )
            yield from lines


def _is_stream(response: requests.Response) -> bool:
    kind = str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()
    return kind == "text/event-stream"


def _session_in(response: requests.Response) -> str:
    session = str(response.headers.get(_SESSION, ""))
    return (
        session
        if session.isascii() and session.isprintable() and len(session) <= _MAX_SESSION
        else ""
    )


def _version_in(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name == VERSION_HEADER}


def _check_status(response: requests.Response, body: bytes) -> JsonObject | None:
    """The error of the protocol in a client error; None after a success.

    Raises:
        RequestRefused: it is another client error.
        ServerFailure: it is any other error.
    """
    status = response.status_code
    if 200 <= status < 300:
        return None
    if not 400 <= status < 500:
        raise ServerFailure(f"it answered {status}{_quote(body)}", sent=status >= 500)
    with suppress(ServerFailure):
        message = parse_message(body)
        if isinstance(message.get("error"), dict):
            return message
    raise RequestRefused(f"it answered {status}{_quote(body)}", -status)


def _quote(body: bytes) -> str:
    text = " ".join(body[:_QUOTED].decode("utf-8", "replace").split())
    return f": {text}" if text else ""


class StdioWire:
    """A server as a process group of its own, which does not outlive the conversation."""

    def __init__(self, server: RemoteServer, folder: Path) -> None:
        """Start it; raises `ServerFailure` if that is impossible, `ConfigError` without a secret.

        *folder* is the one it is started in unless its options name another.
        """
        secrets = {name: secret.read() for name, secret in server.secrets.items()}
        own = {name: os.environ[name] for name in PASSED if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - from the agent file, no shell
                server.argv,
                cwd=folder / (server.cwd or ""),
                env={**own, **server.env, **secrets},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # One that ignores the end of its input must not outlive a killed worker.
                preexec_fn=partial(follow_parent, signal.SIGKILL, os.getpid()),
            )
        except (OSError, ValueError) as error:
            raise ServerFailure(f"{server.argv[0]} cannot be started: {error}") from None
        self._selector = selectors.DefaultSelector()
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream.fileno(), False)
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._buffer = b""
        self._said = b""
        self._received = 0

    @property
    def _in(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was started with pipes"
        return self._process.stdin

    @property
    def _out(self) -> IO[bytes]:
        assert self._process.stdout is not None, "it was started with pipes"
        return self._process.stdout

    @property
    def _err(self) -> IO[bytes]:
        assert self._process.stderr is not None, "it was started with pipes"
        return self._process.stderr

    def exchange(
        self, message: JsonObject, headers: Mapping[str, str], until: Deadline
    ) -> JsonObject:
        """Send a request and wait for its response; there are no *headers* here."""
        self.send(message, headers, until)
        while True:
            received = parse_message(self._line(until))
            answer = reply_to(received)
            if answer is not None:
                self.send(answer, {}, until)
            elif "method" not in received and received.get("id") == message["id"]:
                return received

    def send(self, message: JsonObject, headers: Mapping[str, str], until: Deadline) -> None:
        """Send a message, and read what the server says meanwhile."""
        left = memoryview(json.dumps(message).encode() + b"\n")
        self._selector.register(self._in, selectors.EVENT_WRITE)
        has_begun = False
        try:
            while left:
                if self._wait(until, has_begun):
                    with suppress(BlockingIOError):
                        left = left[os.write(self._in.fileno(), left) :]
                        has_begun = True
        except OSError:
            raise self._failure(has_begun) from None
        finally:
            self._selector.unregister(self._in)

    def close(self) -> None:
        """End the whole process group, at the latest after a moment."""
        self._selector.close()
        with suppress(OSError):
            self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PROGRAM_GRACE)
        kill_group(self._process)
        self._out.close()
        self._err.close()

    def _line(self, until: Deadline) -> bytes:
        """The next line that is not empty."""
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if end:
                self._buffer = rest
                if line.strip():
                    return line
            elif len(self._buffer) > MAX_MESSAGE:
                raise ServerFailure(f"it sent a message of more than {MAX_MESSAGE} bytes", True)
            else:
                self._wait(until, True)

    def _wait(self, until: Deadline, sent: bool) -> bool:
        """Take in what the server says; True: it can be written to."""
        ready = self._selector.select(until.seconds_left())
        if not ready and not until.seconds_left():
            raise ServerFailure(f"it did not answer in time{self._last_words}", sent)
        writable = False
        for key, _ in ready:
            if key.fileobj is self._in:
                writable = True
            elif key.fileobj is self._out:
                self._hear(os.read(self._out.fileno(), _CHUNK), sent)
            else:
                self._note(os.read(self._err.fileno(), _CHUNK))
        if not until.seconds_left():
            raise ServerFailure(f"it did not answer in time{self._last_words}", sent)
        return writable

    def _hear(self, chunk: bytes, sent: bool) -> None:
        if not chunk:
            raise self._failure(sent)
        self._received += len(chunk)
        self._buffer += chunk
        if self._received > MAX_RECEIVED:
            raise ServerFailure(f"it sent more than {MAX_RECEIVED} bytes", sent)

    def _note(self, chunk: bytes) -> None:
        self._said = (self._said + chunk)[-_SAID:]
        if not chunk:
            self._selector.unregister(self._err)

    def _failure(self, sent: bool) -> ServerFailure:
        with suppress(OSError):
            self._said = (self._said + os.read(self._err.fileno(), _CHUNK))[-_SAID:]
        return ServerFailure(f"it ended, or closed its output{self._last_words}", sent)

    @property
    def _last_words(self) -> str:
        words = " ".join(self._said.decode("utf-8", "replace").split())
        return f"; its last words: {words}" if words else ""
