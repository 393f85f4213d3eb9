"""Redis servers of a test's own, which can be killed and started again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import redis

from harness import free_port, server_program, wait_until
from signals import signal_process


class RedisServer:
    """A Redis that keeps its port; what it keeps on disk is a matter of its *options*.

    It is started by commands that begin with *prefix*, and logs to *folder*.
    """

    def __init__(self, folder: Path, *options: str, prefix: Sequence[str] = ()) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._log = folder / "redis.log"
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._command = [*prefix, str(server_program()), *place, "--save", "", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not self.running:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.spawn()
        wait_until(self._answers)

    def spawn(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal; it is gone afterwards if that ends it."""
        process = self._process  # another one may be started when it is gone
        if process is None:
            return
        if process.poll() is None:
            signal_process(process.pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait()

    def _answers(self) -> bool:
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
