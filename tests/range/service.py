"""A small web service of the range: it answers, and can be made slow or made to leak a file.

    python service.py 18000 --starts /tmp/starts --folder /tmp/disk

`GET /` answers 200 after it has written a file into `--folder` and removed it, or 507 when there
is no room for it. `GET /slow` makes every later answer slow. `GET /leak` fills the folder's disk
with a file that has no name any more. A restart ends both. Each start adds a line to `--starts`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

CHUNK = bytes(65_536)
#: Seconds that a slow service takes to answer.
SLOW = 3.0


class Service(ThreadingHTTPServer):
    """The service and what is wrong with it."""

    daemon_threads = True

    def __init__(self, port: int, folder: Path | None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder = folder
        self.delay = 0.0
        self.leaked: IO[bytes] | None = None

    def has_room(self) -> bool:
        """Write a file, if there is a folder for it."""
        if self.folder is None:
            return True
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, buffering=0) as file:
                file.write(CHUNK)
                os.fsync(file.fileno())
        except OSError:
            return False
        return True

    def leak(self) -> None:
        """Fill the disk with a file that nobody can find."""
        assert self.folder is not None
        self.leaked = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 - a leak
        with suppress(OSError):
            while True:
                self.leaked.write(CHUNK)


class Handler(BaseHTTPRequestHandler):
    """Answers the three paths."""

    server: Service

    def do_GET(self) -> None:
        """Answer a request."""
        time.sleep(self.server.delay)
        if self.path == "/slow":
            self.server.delay = SLOW
        elif self.path == "/leak":
            self.server.leak()
        elif not self.server.has_room():
            return self._answer(507)
        return self._answer(200)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self, status: int) -> None:
        # Who asked may have given up.
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--starts", type=Path, required=True)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    service = Service(arguments.port, arguments.folder)
    with arguments.starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    service.serve_forever()


if __name__ == "__main__":
    main()
