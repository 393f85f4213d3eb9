"""MCP servers over HTTP that fail, trickle, drop the connection or lead elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import LATEST_MODERN_VERSION

from boyd.models import JsonObject
from boyd.plugins.mcp_client.mcp_connection import Deadline, McpConnection
from boyd.plugins.mcp_client.remote_server import RemoteServer, ServerFailure
from boyd.plugins.mcp_client.tool_server import output_of, talking
from http_kit import Handler, serve

DONE = {"content": [{"type": "text", "text": "done"}]}
EVENT = "event: message\nid: 7\nretry: 1\ndata: {}\n\n"


class Remote(Handler):
    """Answers as `conduct` says once a tool is called."""

    protocol_version = "HTTP/1.1"
    conduct = ""
    seen: list[Any]
    let_go: threading.Event

    def answer(self) -> None:
        """Answer a message, resume a stream, or end the session."""
        body = self.read_body()
        if self.command == "POST":
            self._answer(json.loads(body))
            return
        self.seen.append((self.command, dict(self.headers)))
        if self.command == "GET":
            self._stream(json.dumps({"jsonrpc": "2.0", "id": 3, "result": DONE}))
        else:
            self._say(200, {})

    def _answer(self, message: Any) -> None:
        method = message.get("method")
        self.seen.append((method, dict(self.headers)))
        if method == "server/discover":
            self._say(404, {"error": "no such route"})
        elif method == "initialize":
            info = {"protocolVersion": "2025-06-18", "capabilities": {}}
            self._result(message, {**info, "serverInfo": {"name": "r", "version": "1"}})
        elif method == "tools/call":
            getattr(self, f"_{self.conduct}")(message)
        else:
            self._say(202, None)

    def _say(self, status: int, body: Any, **headers: str) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.reply(status, text, Content_Type="application/json", **headers)

    def _result(self, message: Any, result: Any) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self._say(200, answer, Mcp_Session_Id="s1")

    def _stream(self, *data: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for datum in data:
            self.wfile.write(EVENT.format(datum).encode())
            self.wfile.flush()

    def _answers(self, message: Any) -> None:
        self._result(message, DONE)

    def _fails(self, message: Any) -> None:
        self._say(502, {"error": "bad gateway"})

    def _refuses(self, message: Any) -> None:
        self._say(403, {"error": "not you"})

    def _redirects(self, message: Any) -> None:
        self._say(307, None, Location="http://127.0.0.1:1/elsewhere")

    def _drops(self, message: Any) -> None:
        self.close_connection = True

    def _breaks(self, message: Any) -> None:
        self._stream("")

    def _floods(self, message: Any) -> None:
        note = json.dumps({"method": "notifications/message", "params": {"data": "x" * 500_000}})
        with suppress(OSError):  # the client has enough of it
            self._stream(*[note] * 20)

    def _trickles(self, message: Any) -> None:
        self._stream("")
        while not self.let_go.wait(0.2):
            try:
                self.wfile.write(b": still here\n\n")
            except OSError:
                return


@pytest.fixture(name="remote")
def _remote() -> Iterator[tuple[type[Remote], str]]:
    """The handler of a server, and its URL."""
    handler: type[Remote] = type("Handler", (Remote,), {"seen": [], "let_go": threading.Event()})
    with serve(handler) as url:
        yield handler, f"{url}/mcp"
        handler.let_go.set()


def call(url: str, **options: Any) -> Any:
    """The output of a tool."""
    server = RemoteServer(**{"url": url, "allow_private": True, "timeout": 10, **options})
    with talking(server, Path()) as connection:
        return output_of(connection.call("send", {}, {}))


def test_a_server_of_an_older_revision_has_a_session_that_is_ended(
    remote: tuple[type[Remote], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, url = remote
    handler.conduct = "answers"
    monkeypatch.setenv("TOKEN_OF_TEST", "token-of-the-test")
    secret = {"env": "TOKEN_OF_TEST"}

    assert call(url, headers={"X-Key": secret}, access={"token": secret}) == {"text": "done"}
    methods = [method for method, _ in handler.seen]
    assert methods == [
        *("server/discover", "initialize", "notifications/initialized", "tools/call", "DELETE"),
    ]
    headers = handler.seen[3][1]
    assert (headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"]) == ("s1", "2025-06-18")
    assert all(sent["X-Key"] == "token-of-the-test" for _, sent in handler.seen)
    assert all(sent["Authorization"] == "Bearer token-of-the-test" for _, sent in handler.seen)


@pytest.mark.parametrize(
    ("conduct", "sent", "reason"),
    [
        ("fails", True, "it answered 502"),
        ("refuses", False, "it answered 403"),
        ("redirects", False, "it answered 307"),
        ("drops", True, "the connection to 127.0.0.1:"),
        ("floods", True, "it sent more than 8388608 bytes"),
    ],
)
def test_a_failure_tells_whether_the_call_may_have_taken_effect(
    remote: tuple[type[Remote], str], conduct: str, sent: bool, reason: str
) -> None:
    handler, url = remote
    handler.conduct = conduct
    with pytest.raises(ServerFailure, match=reason) as failure:
        call(url)

    assert failure.value.sent is sent
    assert [method for method, _ in handler.seen].count("tools/call") == 1


def test_a_stream_that_never_ends_is_cut_off_at_the_time_limit(
    remote: tuple[type[Remote], str],
) -> None:
    handler, url = remote
    handler.conduct = "trickles"
    with pytest.raises(ServerFailure, match="it did not answer in time") as failure:
        call(url, timeout=3)

    assert failure.value.sent


def test_a_stream_that_breaks_off_is_resumed_and_the_call_is_not_repeated(
    remote: tuple[type[Remote], str],
) -> None:
    handler, url = remote
    handler.conduct = "breaks"

    assert call(url) == {"text": "done"}
    methods = [method for method, _ in handler.seen]
    assert (methods.count("tools/call"), methods.count("GET")) == (1, 1)
    assert dict(handler.seen)["GET"]["Last-Event-ID"] == "7"


def test_nothing_was_sent_to_a_server_that_is_away_or_not_public() -> None:
    for url, options, reason in (
        ("http://127.0.0.1:1/mcp", {}, "the connection to 127.0.0.1:1 failed"),
        ("http://127.0.0.1:1/mcp", {"allow_private": False}, "is not a public address"),
    ):
        with pytest.raises(ServerFailure, match=reason) as failure:
            call(url, **options)
        assert not failure.value.sent


class Starting:
    """A wire to a server that is still starting when it is asked first."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def exchange(self, message: JsonObject, *_: object) -> JsonObject:
        """Answer all but the first request as one that speaks the newest revision."""
        self.asked.append(str(message["method"]))
        if len(self.asked) == 1:
            raise ServerFailure("it did not answer in time", sent=True)
        if message["method"] == "initialize":
            return {"error": {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": "no handshake"}}
        return {"result": {"supportedVersions": [LATEST_MODERN_VERSION], "capabilities": {}}}

    def send(self, *_: object) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Close nothing."""


def test_a_server_that_was_too_slow_for_the_first_attempt_speaks_its_newest_revision() -> None:
    wire = Starting()

    assert McpConnection(wire, Deadline(60)).revision == LATEST_MODERN_VERSION
    assert wire.asked == ["server/discover", "initialize", "server/discover"]
