"""Another Redis becomes the master, or the broker is another; all goes on by itself."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from boyd.errors import StoreUnavailable
from boyd.models import Actor
from boyd.store import Store, connect
from faults.invariants import Invariants
from faults.load import Load
from faults.sentinels import Watched
from faults.storm import settle
from faults.world import AGENTS, RedisProcess, World
from harness import Deployment, wait_until
from redis_kit import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.slow]

#: Seconds from a failover until every agent has completed an iteration that began after it.
RECOVERED = 20.0
#: Seconds until a worker whose broker fell silent has noticed and made up for it.
HEARD = 50.0


class Pair(World):
    """Two workers, a beat and an API process."""

    workers = ("w0", "w1")
    beats = ("b0",)
    apis = ("a0",)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Watched]:
    """Servers enough for two failovers."""
    watched_redis = Watched(tmp_path, replicas=3)
    yield watched_redis
    watched_redis.signal(signal.SIGKILL)


@pytest.fixture
def world(servers: Watched, tmp_path: Path) -> Iterator[Pair]:
    """A deployment that knows the sentinels only."""
    pair = Pair(tmp_path, servers)
    pair.start()
    yield pair
    pair.end()


@pytest.mark.long
def test_a_failover_is_survived_by_all_without_a_restart(servers: Watched, world: Pair) -> None:
    load = Load(world, seed=1)
    load.start()
    wait_until(_more_answers(load, 2), 30)
    wait_until(lambda: servers.settled(3), 30)

    killed = servers.master()
    servers.kill_copied(killed)
    print(f"recovered {_recovery(world, load):.1f} s after the master was killed")
    assert servers.master() != killed

    wait_until(lambda: servers.settled(2), 30)
    before = servers.hand_over()
    print(f"recovered {_recovery(world, load):.1f} s after a planned failover")
    assert servers.master() != before

    wait_until(lambda: _consumers(servers) >= len(world.workers), RECOVERED)
    load.stop()
    settle(world)
    assert Invariants(world, load.acknowledged).check() == []
    assert all(world.alive(name) for name in (*world.workers, *world.beats, *world.apis))


def _recovery(world: Pair, load: Load) -> float:
    """Seconds until every agent has completed an iteration, and a client was answered."""
    began, acknowledged = time.time(), load.acknowledged
    runs, items = len(acknowledged.runs), len(acknowledged.answers)
    for agent in AGENTS:
        wait_until(_asking(partial(_has_completed, world, agent, began)), RECOVERED)
    wait_until(
        lambda: len(acknowledged.runs) > runs and len(acknowledged.answers) > items, RECOVERED
    )
    return time.time() - began


def _has_completed(world: Pair, agent: str, began: float) -> bool:
    results = world.deployment.agent(agent).history.results(5)
    return any(result.success and result.started_at.timestamp() > began for result in results)


def _asking(condition: Callable[[], Any]) -> Callable[[], Any]:
    """A condition that is not met while Redis is away."""

    def attempt_write() -> Any:
        try:
            return condition()
        except StoreUnavailable:
            return None

    return attempt_write


def _consumers(servers: Watched) -> int:
    """Count the workers that wait for messages of the master."""
    with servers.ask(servers.master()) as server:
        return sum(connection["cmd"] == "brpop" for connection in server.client_list())


def test_a_demoted_master_is_left(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path)
    with connect(server.url) as client, redis.Redis.from_url(server.url) as operator:
        before = client.client_id()
        operator.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="does not accept writes"):
            Store(client).agent("storm0").loop_control.pause("why", Actor(principal="somebody"))
        operator.execute_command("REPLICAOF", "NO", "ONE")
        assert client.client_id() != before
    server.signal(signal.SIGKILL)


@pytest.mark.long
def test_messages_lost_by_a_separate_broker_are_resent(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = RedisServer(tmp_path / "broker")
    broker.start()
    world = Pair(tmp_path)
    world.deployment.environment["BOYD_BROKER_URL"] = broker.url
    try:
        world.start()
        load = Load(world, seed=2)
        load.start()
        for _ in range(3):
            wait_until(_more_answers(load, 2), 30)
            broker.signal(signal.SIGKILL)
            broker.start()
            print(f"recovered {_recovery(world, load):.1f} s after the broker was lost")
        load.stop()
        settle(world)
        assert Invariants(world, load.acknowledged).check() == []
        assert "cmdstat_brpop" not in world.deployment.store.client.info("commandstats")
        with redis.Redis.from_url(broker.url) as client:
            assert client.keys("boyd:*") == []
    finally:
        world.end()
        broker.signal(signal.SIGKILL)


def _more_answers(load: Load, number: int) -> Callable[[], bool]:
    answers = load.acknowledged.answers
    enough = len(answers) + number
    return lambda: len(answers) >= enough


class Line:
    """A line to a local port on which everything can fall silent, with no end to be noticed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = [self._listening]
        self._silent = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(120)
        for end in self._ends:
            end.close()

    def silence(self) -> None:
        """Let nothing more through of what is connected now; new connections are well."""
        silent, self._silent = self._silent, threading.Event()
        silent.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [client, server]
                for way in ((client, server), (server, client)):
                    thread = threading.Thread(target=_pass, args=(*way, self._silent))
                    thread.start()
                    self._threads.append(thread)


def _pass(source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if not silent.is_set():
                sink.sendall(data)
        if not silent.is_set():
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.long
def test_a_worker_that_hears_nothing_from_its_broker_consumes_again(
    deployment: Deployment,
) -> None:
    port = int(deployment.redis_url.rpartition(":")[2].partition("/")[0])
    with Line(port) as line:
        deployment.environment["BOYD_BROKER_URL"] = f"redis://127.0.0.1:{line.port}/0"
        deployment.worker("w", "agents.traced:traced")
        launcher = deployment.launcher("traced")
        assert deployment.ended("traced", launcher.trigger("test").iteration).success
        line.silence()
        trigger = launcher.trigger("test")

        assert deployment.ended("traced", trigger.iteration, HEARD).success
        assert deployment.processes["w"].poll() is None
