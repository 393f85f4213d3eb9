"""The disk or the memory of Redis is full for a while: nobody is told what is not so."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import requests

from boyd.errors import StoreError
from faults.invariants import Invariants
from faults.load import Load
from faults.small_disk import SmallDisk, SupervisedRedis, missing
from faults.storm import settle
from faults.world import AGENTS, RedisProcess, World
from harness import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

#: Seconds that Redis has no room: longer than all leases, and than an action's outcome is kept in
#: hand when it cannot be recorded.
FULL = 12.0


@dataclass
class Told:
    """The answers to a client that asks again and again, and gives up at once."""

    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    made: list[tuple[str, str]] = field(default_factory=list)


class Watcher:
    """Asks all the time for something that is written, and notes what it is told."""

    def __init__(self, world: World) -> None:
        self.told = Told()
        self._world = world
        self._headers = world.deployment.key("watcher", "admin")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Told:
        self._thread.start()
        return self.told

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _ask(self) -> None:
        body = {"title": "watch", "description": "whether there is room"}
        while not self._over.wait(0.1):
            for name in self._world.apis:
                url = f"{self._world.url(name)}/api/v0/agents/storm0/runs"
                response = requests.post(url, json=body, headers=self._headers, timeout=60)
                kind = response.json()["type"] if not response.ok else ""
                self.told.answers[response.status_code, kind] += 1
                if response.ok:
                    self.told.made.append(("storm0", response.json()["id"]))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk; where none can be mounted it is skipped."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    small_disk = SmallDisk(tmp_path / "disk")
    yield small_disk
    small_disk.unmount()


@pytest.mark.long
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_full_disk_of_redis_costs_time_only(disk: SmallDisk, tmp_path: Path, fsync: str) -> None:
    """With `always` Redis ends itself and is started again, with `everysec` it refuses writes."""
    with SupervisedRedis(tmp_path, disk, fsync) as server, _world(tmp_path, server) as world:
        _stands(world, disk.fill, disk.free)

        assert bool(server.ended) == (fsync == "always")


@pytest.mark.long
def test_full_memory_of_redis_costs_time_only(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path)
    with _world(tmp_path, server) as world, redis.Redis.from_url(server.url) as operator:
        full = partial(operator.config_set, "maxmemory", "1mb")
        room = partial(operator.config_set, "maxmemory", "0")
        _stands(world, full, room)


class _world:  # noqa: N801 - reads as a function
    """A world on that Redis, started, and killed at the end."""

    def __init__(self, folder: Path, server: RedisProcess) -> None:
        self._world = World(folder, server)

    def __enter__(self) -> World:
        self._world.start()
        return self._world

    def __exit__(self, *_: object) -> None:
        self._world.end()


def _stands(world: World, full: Callable[[], Any], room: Callable[[], Any]) -> None:
    """Have no room for a while, under load; all is as promised afterwards."""
    load = Load(world, seed=1)
    load.start()
    wait_until(lambda: len(load.acknowledged.answers) > 3, 30)
    pids = {name: process.pid for name, process in world.deployment.processes.items()}
    with Watcher(world) as watcher:
        full()
        wait_until(lambda: any(status == 503 for status, _ in watcher.answers), 30)
        time.sleep(FULL)  # the fault itself
        room()
        before = time.monotonic()
        since = wait_until(partial(_now, world), 30)
        wait_until(lambda: all(_goes_on(world, agent, since) for agent in AGENTS), 30)
        print(f"recovered {time.monotonic() - before:.1f} s after there was room")
    load.stop()
    load.acknowledged.runs.extend(watcher.made)
    settle(world)

    assert set(watcher.answers) <= {(201, ""), (503, "/problems/unavailable")}
    assert Invariants(world, load.acknowledged).check() == []
    assert pids == {name: p.pid for name, p in world.deployment.processes.items() if not p.poll()}
    logs = "".join(world.deployment.log(name) for name in (*world.workers, *world.beats))
    assert "Traceback" not in logs


def _now(world: World) -> datetime | None:
    """The time of Redis, or None while it does not answer."""
    try:
        return world.deployment.store.clock.now()
    except StoreError:
        return None


def _goes_on(world: World, agent: str, since: datetime) -> bool:
    """Check for an iteration that began after *since* and was completed."""
    history = world.deployment.agent(agent).history
    try:
        return any(result.success and result.started_at > since for result in history.results(3))
    except StoreError:
        return False
