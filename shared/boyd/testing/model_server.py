"""A scripted model behind a real HTTP server, for tests and demonstrations.

    with ScriptedModel([call("disk_usage", {"path": "/"}), say("It is full.")]) as model:
        settings = ModelSettings(base_url=f"{model.url}/v1", model="scripted")
        ...
    assert model.requests[1].body["messages"][-1]["role"] == "tool"

It serves chat completions at `/v1/chat/completions` and Anthropic's messages at `/v1/messages`.
From a shell: `python -m boyd.testing.model_server script.json`.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from boyd.models import Model, explain
from boyd.testing.scripted_replies import (
    ChatCompletions,
    Messages,
    Reply,
    ScriptedCall,
    call,
    calls,
    cut_after,
    empty,
    error_event,
    hang,
    length,
    say,
    silence,
    status,
    unfinished,
)

__all__ = [
    "Received",
    "Reply",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "call",
    "calls",
    "cut_after",
    "empty",
    "error_event",
    "hang",
    "length",
    "say",
    "silence",
    "status",
    "unfinished",
]

_PATHS: dict[str, Literal["openai", "anthropic"]] = {
    "/v1/chat/completions": "openai",
    "/v1/messages": "anthropic",
}
_OVER = Reply(status=500, message="the script is over")


@dataclass(frozen=True)
class Received:
    """A request; `headers` have lower-case names, and `body` is the parsed `raw`."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]

    @property
    def wire(self) -> Literal["openai", "anthropic"]:
        """The wire format of the client."""
        return _PATHS[self.path]


#: A reply, or a function of the request that returns one.
Step = Reply | Callable[[Received], Reply]


class Script(Model):
    """The file of a script: one reply for each request; with `forever`, the last one repeats."""

    replies: list[Reply] = Field(min_length=1)
    forever: bool = False

    @classmethod
    def from_file(cls, path: Path) -> Script:
        """Load a script.

        Raises:
            OSError: the file cannot be read.
            ValueError: the script is invalid; says where and why.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ValueError(explain(error)) from None


class ScriptedModel:
    """The server, which runs within a `with`; `requests` has the requests so far."""

    def __init__(self, replies: Sequence[Step], *, forever: bool = False, port: int = 0) -> None:
        """Prepare the script.

        Args:
            replies: one for each request, or functions of the request.
            forever: repeat the last one; otherwise requests beyond the script get a 500.
            port: the port on 127.0.0.1; 0 takes a free one.
        """
        self.requests: list[Received] = []
        self._replies = list(replies)
        self._forever = forever
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), _handler_for(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="scripted-model", daemon=True
        )

    @property
    def url(self) -> str:
        """Its address, without `/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def is_over(self) -> bool:
        """Every reply was sent."""
        with self._lock:
            return len(self.requests) >= len(self._replies)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply_to(self, received: Received) -> tuple[int, Reply]:
        """Record a request; return its number, from 0, and the reply."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(received)
        last = len(self._replies) - 1
        if number > last and not (self._forever and self._replies):
            return number, _OVER
        step = self._replies[min(number, last)]
        return number, step if isinstance(step, Reply) else step(received)

    def pause(self, seconds: float | None) -> None:
        """Wait, at most until the server closes."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler_for(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        scripted = model

    return Handler


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    scripted: ScriptedModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Send the next reply."""
        self.close_connection = True
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = _object(raw)
        if self.path not in _PATHS or body is None:
            self._document(
                404 if body is not None else 400, "unknown path, or the body is not a JSON object"
            )
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, raw, body)
        number, reply = self.scripted.reply_to(received)
        if reply.wait:
            self.scripted.pause(reply.wait)
        if reply.status != 200:
            self._document(reply.status, reply.message, reply.retry_after)
        else:
            self._stream(reply, _encode(received, reply, number))

    def _document(self, code: int, message: str, retry_after: float | str | None = None) -> None:
        error = {"message": message, "type": "scripted_error"}
        content = json.dumps({"type": "error", "error": error}).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("connection", "close")
        if retry_after is not None:
            value = retry_after if isinstance(retry_after, str) else f"{retry_after:g}"
            self.send_header("retry-after", value)
        if 300 <= code < 400:
            self.send_header("location", "/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, reply: Reply, encoded: ChatCompletions | Messages) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for event in _until_end(reply, encoded):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if reply.end == "silence":
            self.scripted.pause(None)
        elif reply.end == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif reply.end != "cut":
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


def _encode(received: Received, reply: Reply, number: int) -> ChatCompletions | Messages:
    if received.wire == "anthropic":
        return Messages(reply, number)
    asked = received.body.get("stream_options")
    return ChatCompletions(
        reply, number, counts=isinstance(asked, dict) and asked.get("include_usage") is True
    )


def _until_end(reply: Reply, encoded: ChatCompletions | Messages) -> Iterator[bytes]:
    """The events up to the end of the stream."""
    if reply.end in ("normal", "unmarked"):
        yield from encoded.content()
        yield from encoded.ending()
        if reply.end == "normal":
            yield encoded.marker()
        return
    whole = (
        chain(encoded.content(), encoded.ending()) if reply.after is not None else encoded.content()
    )
    yield from islice(whole, reply.after)
    if reply.end == "error":
        yield encoded.error()


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until a signal arrives; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m boyd.testing.model_server", description="A model that follows a script."
    )
    parser.add_argument("script", type=Path, help="a JSON file: {replies: [...], forever: false}")
    parser.add_argument("--port", type=int, default=0, help="to listen on; any when absent")
    given = parser.parse_args(arguments)
    try:
        script = Script.from_file(given.script)
    except (OSError, ValueError) as error:
        print(f"{given.script}: {error}", file=sys.stderr)
        return 2
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ScriptedModel(script.replies, forever=script.forever, port=given.port) as model:
        print(f"{model.url}/v1", flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
