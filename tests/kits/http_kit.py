"""HTTP servers on free ports of this host, and what their handlers have in common."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers requests of all methods alike, and logs nothing."""

    def answer(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer a request; the base looks for such names."""
        self.answer()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def read_body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole response; `_` in the names of *headers* stands for `-`."""
        self.send_response_only(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the end of the block; yields the URL, without a slash at its end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
