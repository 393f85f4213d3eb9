"""Everything that a deployment is made of, as processes that can be hurt and healed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import requests

from boyd.errors import StoreError
from faults.clocks import Clock, tidy
from faults.observation_gaps import longest
from harness import Deployment, free_port, wait_until
from redis_kit import RedisServer
from signals import signal_group

AGENTS = ("storm0", "storm1")
#: Seconds between SIGTERM and SIGKILL, as a supervisor has them.
GRACE = 30.0


class RedisProcess(RedisServer):
    """A Redis that keeps every write, and comes back with all of them."""

    def __init__(
        self,
        folder: Path,
        data: Path | None = None,
        fsync: str = "always",
        clock: Clock | None = None,
    ) -> None:
        """Log to *folder*; *data* is where it writes, absent: there too."""
        durable = ("--dir", str(data or folder), "--appendonly", "yes", "--appendfsync", fsync)
        super().__init__(folder, *durable, prefix=clock.command if clock else ())
        self.clock = clock
        self.start()


class World:
    """Three workers, two beats and two API processes on one Redis."""

    workers: tuple[str, ...] = ("w0", "w1", "w2")
    beats: tuple[str, ...] = ("b0", "b1")
    apis: tuple[str, ...] = ("a0", "a1")
    others: tuple[str, ...] = ()
    agents: tuple[str, ...] = AGENTS
    #: Seconds that agents observed nothing, at most, in each world that has ended.
    blind_times: ClassVar[list[float]] = []

    def __init__(self, folder: Path, server: Any = None) -> None:
        """On *server*, which has a `url` and passes a `signal` on; absent: a Redis of its own."""
        self.redis: Any = server or RedisProcess(folder)
        self.deployment = self._deployment(folder)
        self.deployment.environment.update(
            {
                "BOYD_API__RATE": "100000",
                "BOYD_API__BURST": "100000",
                "BOYD_PRINCIPAL_BYTES": str(2**30),
                "BOYD_LOG_LEVEL": "info",
            }
        )
        self.ports = {name: free_port() for name in self.apis}
        #: The clocks that processes look at when they are started; the others look at the true one.
        self.clocks: dict[str, Clock] = {}
        #: The ports through which processes reach Redis; the others go there directly.
        self.lines: dict[str, int] = {}

    def start(self) -> None:
        """Start everything, and wait until it is there."""
        for name in self._names:
            self.launch(name)
        live = len(self.workers) + len(self.beats)
        fleet = self.deployment.store.fleet
        wait_until(lambda: len(fleet.workers()) == live, 60)
        wait_until(lambda: all(self._ready(name) for name in self.apis), 60)

    def launch(self, name: str) -> None:
        """Start a process, or start it again."""
        clock = self.clocks.get(name)
        self.deployment.prefix = clock.command if clock else []
        port = self.lines.get(name)
        url = f"redis://127.0.0.1:{port}/0" if port else self.redis.url
        self.deployment.environment["BOYD_REDIS_URL"] = url
        self.deployment.start(name, *self._arguments(name), ready=False)

    def shift(self, name: str, seconds: float) -> None:
        """Put a process's clock so far ahead; one that looks at the true clock is restarted."""
        if name in self.clocks:
            self.clocks[name].shift(seconds)
            return
        self.clocks[name] = Clock(self.deployment.folder / f"clock-{name}", seconds)
        self.signal(name, signal.SIGKILL)
        self.launch(name)

    def alive(self, name: str) -> bool:
        return self.deployment.processes[name].poll() is None

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process and all that it started."""
        if self.alive(name):
            signal_group(self.deployment.processes[name].pid, number)
        if number == signal.SIGKILL:
            self.deployment.processes[name].wait()

    def end_group(self, name: str) -> None:
        """Send SIGTERM to a process and all that it started, and wait for its end."""
        self.signal(name, signal.SIGTERM)
        try:
            self.deployment.processes[name].wait(GRACE)
        except subprocess.TimeoutExpired:
            self.signal(name, signal.SIGKILL)

    def heal(self) -> None:
        """Let everything run again."""
        self.redis.signal(signal.SIGCONT)
        for name in self._names:
            self.signal(name, signal.SIGCONT)
            if not self.alive(name):
                self.launch(name)

    def check(self) -> list[str]:
        """Violations of promises that concern only this kind of world."""
        return []

    def end(self) -> None:
        """Kill everything."""
        self.redis.signal(signal.SIGCONT)
        # Where the clock of Redis was set, times do not tell how long something took.
        if not getattr(self.redis, "clock", None):
            with suppress(StoreError):
                self.blind_times.append(longest(self.deployment, self.agents))
        self.deployment.__exit__()
        self.redis.signal(signal.SIGKILL)
        tidy()

    def url(self, name: str) -> str:
        """The address of an API process."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def trust(self, name: str) -> str | bool:
        """The authority to trust there; True: those of the system."""
        return True

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.workers, *self.beats, *self.apis, *self.others)

    def _deployment(self, folder: Path) -> Deployment:
        return Deployment(self.redis.url, folder)

    def _ready(self, name: str) -> bool:
        try:
            return requests.get(f"{self.url(name)}/readyz", verify=self.trust(name), timeout=60).ok
        except requests.RequestException:
            return False

    def _arguments(self, name: str) -> Sequence[str]:
        agents = [part for agent in self.agents for part in ("--agent", f"agents.storm:{agent}")]
        if name in self.workers:
            return ("worker", *agents, "--concurrency", "4")
        if name in self.beats:
            return ("beat", *agents)
        if name in self.others:
            return (name,)
        return ("api", "--port", str(self.ports[name]))
