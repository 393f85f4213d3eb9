"""A small web service to be watched: it answers, it fills a folder, and it can be killed.

    python service.py 8765 --scratch /tmp/scratch

`GET /` says hello. `GET /health` answers 200, or 503 when the scratch folder holds more than
`--max-mb` megabytes. Every `--write-every` seconds it writes half a megabyte into that folder,
until it is too full. Nobody has to stop it: when `/health` was not asked for `--idle-exit` seconds,
nobody watches any more, and it ends by itself.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MB = 1_000_000
CHUNK = b"\0" * (MB // 2)


class Service(ThreadingHTTPServer):
    """The service and what it remembers."""

    daemon_threads = True

    def __init__(self, port: int, scratch: Path, max_mb: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.scratch = scratch
        self.max_bytes = max_mb * MB
        self.asked_at = time.monotonic()

    def full(self) -> bool:
        """True if the scratch folder holds too much."""
        return folder_size(self.scratch) > self.max_bytes

    def idle(self) -> float:
        """Seconds since the last health check."""
        return time.monotonic() - self.asked_at


class Handler(BaseHTTPRequestHandler):
    """Answers the two paths."""

    server: Service

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path == "/health":
            self.server.asked_at = time.monotonic()
            full = self.server.full()
            self._answer(503 if full else 200, "scratch folder full" if full else "ok")
        elif self.path == "/":
            self._answer(200, "hello")
        else:
            self._answer(404, "not found")

    def _answer(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a health check every few seconds would fill the log."""


def folder_size(folder: Path) -> int:
    """Bytes in the files of *folder*."""
    total = 0
    for path in folder.glob("scratch-*.bin"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # cleaned up just now
            continue
    return total


def main() -> None:
    """Serve until stopped or forgotten."""
    arguments = _arguments()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    service = Service(arguments.port, arguments.scratch, arguments.max_mb)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    threading.Thread(target=service.serve_forever, daemon=True).start()
    print(f"serving on http://127.0.0.1:{service.server_port}", flush=True)
    _work(service, stopped, arguments.write_every, arguments.idle_exit)
    service.shutdown()
    service.server_close()


def _work(service: Service, stopped: threading.Event, write_every: float, idle_exit: float) -> None:
    while service.idle() < idle_exit:
        if not service.full():
            (service.scratch / f"scratch-{time.time_ns()}.bin").write_bytes(CHUNK)
        if stopped.wait(min(write_every, max(0.0, idle_exit - service.idle()))):
            print("stopped", flush=True)
            return
    print(f"nobody asked for /health for {idle_exit:g} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small web service to be watched.")
    parser.add_argument("port", type=int, nargs="?", default=8765)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--max-mb", type=float, default=20.0)
    parser.add_argument("--write-every", type=float, default=5.0)
    parser.add_argument("--idle-exit", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
