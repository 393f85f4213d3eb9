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
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from boyd.models import JsonObject, Model, explain
from boyd.testing.scripted_replies import ChatCompletions, Messages, ScriptedCall
from boyd.testing.scripted_replies import Reply as Reply

_PATHS: dict[str, Literal["openai", "anthropic"]] = {
    "/v1/chat/completions": "openai",
    "/v1/messages": "anthropic",
}
_OVER = Reply(status=500, message="the script is over")


def say(text: str, **fields: Any) -> Reply:
    """A reply with a text."""
    return Reply(text=text, **fields)


def call(name: str, arguments: JsonObject | str | None = None, **fields: Any) -> Reply:
    """A reply with one tool call."""
    return calls((name, {} if arguments is None else arguments), **fields)


def calls(*pairs: tuple[str, JsonObject | str], **fields: Any) -> Reply:
    """A reply with several tool calls."""
    scripted = [ScriptedCall(name=name, arguments=arguments) for name, arguments in pairs]
    return Reply(calls=scripted, **fields)


def empty(**fields: Any) -> Reply:
    """An empty reply."""
    return Reply(**fields)


def status(code: int, retry_after: float | str | None = None, **fields: Any) -> Reply:
    """An HTTP error with an error document."""
    return Reply(status=code, retry_after=retry_after, **fields)


def cut_after(events: int, reply: Reply | None = None) -> Reply:
    """A connection lost after some events of *reply*."""
    return _with_fields(reply, end="cut", after=events)


def unfinished(reply: Reply | None = None) -> Reply:
    """A stream that ends after the whole reply, without a reason or a marker."""
    return _with_fields(reply, end="unfinished")


def error_event(kind: str = "server_error", reply: Reply | None = None) -> Reply:
    """A stream with an error event after the whole reply."""
    return _with_fields(reply, end="error", error=kind)


def hang(seconds: float, reply: Reply | None = None) -> Reply:
    """A delayed *reply*."""
    return _with_fields(reply, wait=seconds)


def silence(events: int = 0, reply: Reply | None = None) -> Reply:
    """A stream that stalls after some events of *reply*."""
    return _with_fields(reply, end="silence", after=events)


def length(reply: Reply) -> Reply:
    """*reply* truncated by the token limit, in the middle of its last call if it has calls."""
    calls = list(reply.calls)
    if calls:
        text = calls[-1].text
        calls[-1] = calls[-1].patched({"arguments": text[: len(text) // 2]})
    return _with_fields(reply, finish="length", calls=calls)


def _with_fields(reply: Reply | None, **fields: Any) -> Reply:
    return (reply or say("this is what comes first")).model_copy(update=fields)


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
        handler = type("Handler", (_Handler,), {"scripted": self})
        self._server = _Server(("127.0.0.1", port), handler)
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

    def __exit__(self, *_: object) -> None:
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


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    scripted: ScriptedModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.close_connection = True
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if self.path not in _PATHS or not isinstance(body, dict):
            code = 404 if isinstance(body, dict) else 400
            self._document(code, "unknown path, or the body is not a JSON object")
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
    stream_options = received.body.get("stream_options")
    counts = isinstance(stream_options, dict) and stream_options.get("include_usage") is True
    return ChatCompletions(reply, number, counts)


def _until_end(reply: Reply, encoded: ChatCompletions | Messages) -> Iterator[bytes]:
    """The events up to the end of the stream."""
    is_whole = reply.end in ("normal", "unmarked")
    ending = encoded.ending() if is_whole or reply.after is not None else ()
    yield from islice(chain(encoded.content(), ending), None if is_whole else reply.after)
    if reply.end == "normal":
        yield encoded.marker()
    elif reply.end == "error":
        yield encoded.error()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until a signal arrives; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m boyd.testing.model_server", description="A model that follows a script."
    )
    parser.add_argument("script", type=Path, help="a JSON file: {replies: [...], forever: false}")
    parser.add_argument("--port", type=int, default=0, help="to listen on; any when absent")
    options = parser.parse_args(arguments)
    try:
        script = Script.from_file(options.script)
    except (OSError, ValueError) as error:
        print(f"{options.script}: {error}", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ScriptedModel(script.replies, forever=script.forever, port=options.port) as model:
        print(f"{model.url}/v1", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
