"""A small shop: it takes orders over HTTP and puts them into an outbox, for a courier to fetch.

    python shop.py 8766 --outbox /tmp/outbox

`POST /orders` answers 201, or 503 when `--limit` orders wait in the outbox already; `GET /health`
answers 200 or 503 alike. A thread plays the customers: an order every `--every` seconds. What
happens is printed. When nobody has touched the file `--watched` for a minute, the shop ends by
itself.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

#: Seconds between two lines that say the same, and without anybody who watches.
REPEAT = 5.0
IDLE = 60.0
LARGEST = 10_000


class Shop(ThreadingHTTPServer):
    """The shop and its outbox."""

    daemon_threads = True

    def __init__(self, port: int, outbox: Path, limit: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.outbox = outbox
        self.limit = limit
        self._lock = threading.Lock()
        self._open = True
        self._told_at = float("-inf")

    def take(self, order: bytes) -> tuple[bool, str]:
        """Take an order unless the outbox is full; returns success and the reason."""
        with self._lock:
            there_is_room, said = self.state()
            if there_is_room:
                name = f"order-{time.time_ns()}.json"
                # Renamed when it is whole, so that the courier never takes half an order.
                unfinished = self.outbox / f".{name}"
                unfinished.write_bytes(order)
                unfinished.rename(self.outbox / name)
            self._tell(there_is_room, said)
            return there_is_room, said

    def state(self) -> tuple[bool, str]:
        """The room in the outbox, also in words."""
        waiting = sum(1 for _ in self.outbox.glob("order-*.json"))
        said = f"{waiting} of {self.limit} places in the outbox are taken"
        return waiting < self.limit, said

    def _tell(self, there_is_room: bool, said: str) -> None:
        now = time.monotonic()
        if there_is_room and not self._open:
            log(f"orders are taken again: {said}")
        elif not there_is_room and now - self._told_at >= REPEAT:
            log(f"an order was refused with 503: {said}")
            self._told_at = now
        self._open = there_is_room


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    server: Shop

    def do_GET(self) -> None:
        """Say how the shop is."""
        if self.path != "/health":
            self._answer(404, "not found")
            return
        there_is_room, said = self.server.state()
        self._answer(200 if there_is_room else 503, said)

    def do_POST(self) -> None:
        """Take an order."""
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != "/orders" or length > LARGEST:
            self._answer(404 if self.path != "/orders" else 413, "not found, or too large")
            return
        taken, said = self.server.take(self.rfile.read(length))
        self._answer(201 if taken else 503, "thank you" if taken else said)

    def _answer(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a health check every few seconds would fill the log."""


def log(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}", flush=True)


def is_watched(file: Path | None) -> bool:
    """True if *file* was touched recently."""
    try:
        return file is None or time.time() - file.stat().st_mtime < IDLE
    except FileNotFoundError:
        return False


def main() -> None:
    """Sell until stopped or forgotten."""
    given = _arguments()
    given.outbox.mkdir(parents=True, exist_ok=True)
    shop = Shop(given.port, given.outbox, given.limit)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    log(f"the shop is open at http://127.0.0.1:{shop.server_port}")
    while is_watched(given.watched) and not stopped.wait(given.every):
        shop.take(b'{"wants": "tea"}\n')
    log("the shop is closed")
    shop.shutdown()
    shop.server_close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small shop.")
    parser.add_argument("port", type=int, nargs="?", default=8766)
    parser.add_argument("--outbox", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--watched", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
