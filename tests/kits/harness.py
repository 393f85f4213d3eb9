"""Real processes for tests: starts workers and beats, kills them, and reads their effects."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import IO, Any, Self

import requests

from boyd.embedded.redis_server import find_program
from boyd.errors import StoreUnavailable
from boyd.messaging.celery_app import CeleryDispatcher, make_app
from boyd.models import Actor, LoopResult, Mode, Scope
from boyd.models.actor import GroupRights
from boyd.runtime import Launcher, Resolver
from boyd.security.approval_signatures import ApprovalSigner
from boyd.store import AgentStore, Retention, Store, connect
from boyd.store.server.connection import Client
from signals import signal_group
from warm import FOLDERS, Forked, Nursery

#: Where processes find agents and kits of tests, and the same code as this one.
PYTHONPATH = os.pathsep.join(filter(None, (*FOLDERS, os.environ.get("PYTHONPATH"))))


#: With what the deployment signs approvals.
SECRET = "for the tests only, and long enough"

#: How many times as long as on an idle machine something may take.
BUSY = float(os.environ.get("TEST_PATIENCE", "6"))


#: Ports that neither the system nor `boyd up` gives to others, and how many a process has of them.
PORTS, BLOCK = range(10_000, 20_000), 100

#: The Redis for messages of each cluster, by the cluster's URL.
BROKERS: dict[str, str] = {}


def server_program() -> Path:
    """The Redis server that tests start: the embedded one, or what `TEST_REDIS_SERVER` names."""
    return find_program(os.environ.get("TEST_REDIS_SERVER"))


@cache
def _own_ports() -> tuple[socket.socket, Iterator[int]]:
    """The ports of this process, again and again, and what keeps other processes from them.

    A server may bind its port seconds after it was chosen, on a busy machine.
    """
    # Tests may have seeded the other generator, which then gives several processes the same ports.
    dice = random.SystemRandom()
    while True:
        first = dice.randrange(PORTS.start, PORTS.stop, BLOCK)
        try:
            guard = socket.create_server(("127.0.0.1", first))
        except OSError:
            continue
        return guard, cycle(range(first + 1, first + BLOCK))


def free_port() -> int:
    """A TCP port that nobody uses now, and that no other process of tests takes."""
    _, ports = _own_ports()
    while True:
        port = next(ports)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def wait_until(condition: Callable[[], Any], timeout: float = 20.0) -> Any:
    """Wait until *condition* is true and return what it gave.

    It fails after *timeout* seconds, or several times as many: the machine may be busy. A Redis
    that does not answer is one that will.
    """
    deadline = time.monotonic() + BUSY * timeout
    while True:
        away: StoreUnavailable | None = None
        try:
            if value := condition():
                return value
        except StoreUnavailable as error:
            away = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {BUSY * timeout:g} s: {condition}") from away
        time.sleep(0.01)


def patient_client(url: str) -> Client:
    """A client of Redis for a test itself: the machine may stand still for seconds."""
    return connect(url, timeout=60)


#: A process that runs `boyd`, however it was started.
Process = subprocess.Popen[bytes] | Forked


@cache
def nursery() -> Nursery:
    """The process that others are forked from: one for all tests of this process."""
    return Nursery()


class Deployment:
    """A Redis with workers and beats as processes of their own.

    Agents are written as `module:name` of a module in `tests/agents`. `EFFECTS` names a file
    that their actions append to: what happened outside Redis.
    """

    #: Whether processes are forked from one that has imported all they need.
    forks = False

    def __init__(self, redis_url: str, folder: Path) -> None:
        self.redis_url = redis_url
        self.folder = folder
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self.processes: dict[str, Process] = {}
        self.environment: dict[str, str] = {"BOYD_APPROVAL_SECRET": SECRET}
        # Commands run in login shells, without the profile of whoever runs the tests.
        self.environment["HOME"] = str(folder)
        if redis_url in BROKERS:
            self.environment["BOYD_BROKER_URL"] = BROKERS[redis_url]
        #: What is put in front of each command.
        self.prefix: list[str] = []
        self._client = connect(redis_url)
        self.store = Store(self._client, "deployment")
        self._app = make_app(BROKERS.get(redis_url, redis_url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):  # it has ended just now
                    os.killpg(process.pid, signal.SIGCONT)
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._app.close()
        self._client.close()

    def start(self, name: str, *arguments: str, ready: bool = True) -> int:
        """Start `boyd` with *arguments*; with *ready*, wait until it has announced itself."""
        environment = self.surroundings()
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self._run(arguments, environment, log)
        self.processes[name] = process
        if ready:
            wait_until(lambda: self._announced(process, name), 30)
        return process.pid

    def surroundings(self) -> dict[str, str]:
        """The environment of its processes."""
        return {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "BOYD_REDIS_URL": self.redis_url,
            "EFFECTS": str(self.effects_file),
            **self.environment,
        }

    def worker(self, name: str, agent: str, *arguments: str) -> int:
        """Start a worker for *agent*."""
        return self.start(name, "worker", "--agent", agent, *arguments)

    def beat(self, name: str, agent: str) -> int:
        """Start a beat for *agent*."""
        return self.start(name, "beat", "--agent", agent)

    def api(self, name: str, *arguments: str) -> str:
        """Start an API process; its URL, once it answers."""
        url = f"http://127.0.0.1:{free_port()}"
        self.start(name, "api", "--port", url.rpartition(":")[2], *arguments, ready=False)
        wait_until(lambda: self._answers(url, name), 30)
        return url

    def key(self, principal: str, *scopes: Scope, **more: Any) -> dict[str, str]:
        """Headers that carry a new key."""
        maker = Actor(principal="tests")
        _, text = self.store.api_keys.create(
            principal, principal, scopes, by=maker, **{"person": True, **more}
        )
        return {"Authorization": f"Bearer {text}"}

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process and all it started."""
        signal_group(self.processes[name].pid, number)
        if number == signal.SIGKILL:
            self.processes[name].wait()

    def stop(self, name: str, timeout: float = 20.0) -> int:
        """Ask a process to stop; its exit status."""
        self.processes[name].terminate()
        return self.processes[name].wait(BUSY * timeout)

    def log(self, name: str) -> str:
        """The log of a process."""
        return (self.folder / f"{name}.log").read_text()

    def agent(self, agent_id: str) -> AgentStore:
        """The state of one agent."""
        return self.store.agent(agent_id)

    def launcher(self, agent_id: str, mode: Mode = "manual") -> Launcher:
        """A launcher for the iterations of one agent."""
        return Launcher(self.agent(agent_id), CeleryDispatcher(self._app), mode)

    def resolver(self, agent_id: str) -> Resolver:
        """A resolver for the approvals of one agent, which signs as the API does."""
        signer = ApprovalSigner(self.environment["BOYD_APPROVAL_SECRET"])
        return Resolver(
            self.agent(agent_id),
            CeleryDispatcher(self._app),
            Retention(),
            signer,
            rights=GroupRights(),
        )

    def ended(self, agent_id: str, iteration: int, timeout: float = 30.0) -> LoopResult:
        """The result of an iteration, once it has ended."""
        history = self.agent(agent_id).history
        result: LoopResult = wait_until(lambda: history.get(iteration), timeout)
        return result

    def effects(self) -> list[str]:
        """The lines that actions and observers have written outside Redis, in order."""
        return self.effects_file.read_text().split()

    def _answers(self, url: str, name: str) -> bool:
        code = self.processes[name].poll()
        if code is not None:
            raise AssertionError(f"{name} ended with {code}:\n{self.log(name)}")
        try:
            return requests.get(f"{url}/healthz", timeout=10).ok
        except requests.RequestException:
            return False

    def _run(
        self, arguments: Sequence[str], environment: dict[str, str], log: IO[bytes]
    ) -> Process:
        if self.forks and not self.prefix and "LD_PRELOAD" not in environment:
            return nursery().start(arguments, environment, log.fileno())
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "boyd_cli", *arguments],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _announced(self, process: Process, name: str) -> bool:
        if process.poll() is not None:
            raise AssertionError(f"{name} ended with {process.returncode}:\n{self.log(name)}")
        return any(worker.pid == process.pid for worker in self.store.fleet.workers())
