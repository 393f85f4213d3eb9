"""Everything that the range is made of: the sites, and Boyd's processes that look after them."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from archive_kit import postgresql, postgresql_programs
from faults.world import RedisProcess
from harness import Deployment, wait_until
from range.layout import new_layout, nginx_program
from range.site import Site
from range.sites import DatabaseSite, DiskSite, ProxySite, ServiceSite

WORKERS = ("w0", "w1", "w2")
SITES: tuple[type[Site], ...] = (DatabaseSite, ProxySite, ServiceSite, DiskSite)


def missing() -> str | None:
    """A program that the range needs and this machine lacks, if there is one."""
    if postgresql_programs() is None:
        return "PostgreSQL is not installed: there is no initdb"
    return None if nginx_program() else "nginx is not installed"


class World:
    """Workers and a beat for the agents of all lanes, and what these look after."""

    def __init__(self, folder: Path, redis_url: str, sites: list[Site]) -> None:
        self.sites = sites
        self.killed = 0
        self.deployment = Deployment(redis_url, folder)
        self.deployment.environment["RANGE"] = str(folder)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the processes of Boyd."""
        for name in (*WORKERS, "b0"):
            self._launch(name)
        fleet = self.deployment.store.fleet
        wait_until(lambda: len(fleet.workers()) == len(WORKERS) + 1, 60)

    def kill(self, pid: int) -> None:
        """Kill the worker that this process belongs to, if it still runs, and start another one."""
        with self._lock, suppress(ProcessLookupError, StopIteration):
            group = os.getpgid(pid)
            name = next(n for n in WORKERS if self.deployment.processes[n].pid == group)
            self.deployment.kill(name, signal.SIGKILL)
            self.killed += 1
            time.sleep(0.2)
            self._launch(name)

    def _launch(self, name: str) -> None:
        lanes = [site.lane for site in self.sites]
        agents = [part for lane in lanes for part in ("--agent", f"range.agents:{lane}")]
        kind = ("worker", "--concurrency", "8") if name in WORKERS else ("beat",)
        self.deployment.start(name, kind[0], *agents, *kind[1:], ready=False)


@contextmanager
def make_world(seed: int, lanes: Collection[str]) -> Iterator[World]:
    """A world with those lanes until the end of the block."""
    programs = postgresql_programs()
    assert programs is not None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boyd-range-")))
        layout = new_layout(folder, stack.enter_context(postgresql(programs)).port)
        layout.write()
        sites = [kind(layout, seed) for kind in SITES if kind.lane in lanes]
        for site in sites:
            stack.callback(site.stop)
            site.start()
        redis = RedisProcess(folder)
        stack.callback(redis.signal, signal.SIGKILL)
        world = World(folder, redis.url, sites)
        with world.deployment:
            world.start()
            yield world
