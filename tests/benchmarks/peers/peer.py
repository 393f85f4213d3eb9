"""A library beside Boyd: started, asked for one iteration after the other, and stopped."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from typing import Any, Self

import redis

from harness import PYTHONPATH

#: Seconds for an iteration, and for the first one, before which the workers start.
MOST, START = 120, 60


class Peer(ABC):
    """One library with its workers.

    Attributes:
        name: what it is called in the report.
    """

    name: str

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url, socket_timeout=None)

    def __enter__(self) -> Self:
        self.start()
        try:
            self.once(2, 0.0, START)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._client.close()

    @abstractmethod
    def start(self) -> None:
        """Start what does the work."""

    @abstractmethod
    def begin(self, count: int, seconds: float, key: str) -> None:
        """Begin an iteration of so many observers that wait so long; its result goes to *key*."""

    @abstractmethod
    def stop(self) -> None:
        """End what was started."""

    def once(self, count: int, seconds: float, most: int = MOST) -> float:
        """One iteration; milliseconds."""
        key = uuid.uuid4().hex
        began = time.perf_counter()
        self.begin(count, seconds, key)
        if self._client.blpop([key], timeout=most) is None:
            raise RuntimeError(f"an iteration of {self.name} did not end")
        return (time.perf_counter() - began) * 1000


class WorkerPeer(Peer):
    """A peer whose workers are processes of their own.

    Attributes:
        command: the words after `python -m` that start them.
    """

    command: tuple[str, ...]

    def start(self) -> None:
        """Start the workers."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self.command],
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Kill the workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def peer(module: str, url: str) -> Peer | None:
    """The peer of a module of this package; None when its library is not installed."""
    os.environ["PEER_URL"] = url
    try:
        instance: Peer = importlib.import_module(f"benchmarks.peers.{module}").PEER(url)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("benchmarks"):
            raise
        return None
    return instance
