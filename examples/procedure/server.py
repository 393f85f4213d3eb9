"""A small web server behind the proxy of this example; after a while it is worn out.

    python server.py web1 8771 --worn-after 60

`GET /` says who answers, `GET /status` whether it is worn: it still answers then, but wants to be
restarted, as a server with a memory leak does. Nobody has to stop it: when the agent has not asked
`GET /status?agent` for `--idle-exit` seconds, it ends by itself.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """The server and when it began."""

    daemon_threads = True

    def __init__(self, name: str, port: int, worn_after: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.name = name
        self.worn_after = worn_after
        self.began = self.asked_at = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began


class Handler(BaseHTTPRequestHandler):
    """Answers the two paths."""

    server: Server

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path.startswith("/status"):
            if self.path.endswith("?agent"):
                self.server.asked_at = time.monotonic()
            age = self.server.age
            state = {"age": round(age, 1), "worn": age > self.server.worn_after}
            self._answer(json.dumps(state), "application/json")
        else:
            self._answer(f"hello from {self.server.name}\n", "text/plain")

    def _answer(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: checks come every half second."""


def main() -> None:
    """Serve until stopped or forgotten."""
    parser = argparse.ArgumentParser(description="A small web server that wears out.")
    parser.add_argument("name")
    parser.add_argument("port", type=int)
    parser.add_argument("--worn-after", type=float, default=60.0)
    parser.add_argument("--idle-exit", type=float, default=60.0)
    given = parser.parse_args()
    server = Server(given.name, given.port, given.worn_after)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while time.monotonic() - server.asked_at < given.idle_exit and not stopped.wait(0.5):
        pass
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
