"""The API under a steady load, and 1 000 approvals resolved by 50 callers.

Also the same load beside 2 000 open event streams, what a stream takes of memory, and answers
beside connections on which half a request has come.
"""

from __future__ import annotations

import http.client
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import requests

from benchmarks.kept import propose
from harness import Deployment

RATE = 200
SECONDS = 10
CONNECTIONS = 20
CALLERS, ITEMS = 50, 1000
STREAMS = 2000
HALF_OPEN = 1100

#: A request: method and path.
Asked = tuple[str, str]


class Caller:
    """One connection that is kept open."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._headers = headers

    def ask(self, request: Asked, body: str | None = None) -> int:
        """The status that a request is answered with."""
        method, path = request
        self._connection.request(method, path, body, headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status


@contextmanager
def one_core(pid: int) -> Iterator[None]:
    """Let a process, and all else, have a core each; as far as there are two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        yield
        return
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores[:1])
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores[1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


def steady(url: str, headers: dict[str, str], request_of: Callable[[int], Asked]) -> list[float]:
    """Milliseconds from when a request was due to its answer, at `RATE` requests a second."""
    began = time.perf_counter() + 0.5
    took: list[float] = []

    def call(number: int) -> None:
        caller = Caller(url, headers)
        for turn in range(RATE * SECONDS // CONNECTIONS):
            index = turn * CONNECTIONS + number
            due = began + index / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            status = caller.ask(request_of(index))
            took.append((time.perf_counter() - due) * 1000)
            if status >= 300:
                raise RuntimeError(f"{request_of(index)} was answered with {status}")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(call, range(CONNECTIONS)))
    return took


def p99(values: list[float]) -> float:
    """The value that one in a hundred exceeds."""
    return statistics.quantiles(values, n=100)[98]


def measure(deployment: Deployment, agent_id: str) -> dict[str, float]:
    """p99 of reading and of approving, and how many of the crowd's requests failed."""
    limits = {
        "BOYD_API__RATE": "100000",
        "BOYD_API__BURST": "100000",
        "BOYD_PRINCIPAL_BYTES": str(2**30),
    }
    deployment.environment.update(limits)
    url = deployment.api("api")
    headers = deployment.key("bench", "admin")
    store = deployment.agent(agent_id)
    base = "/api/v0"
    reads = (f"{base}/loop/status", f"{base}/approvals?limit=20", f"{base}/runs?limit=20")
    with one_core(deployment.processes["api"].pid):
        # The first requests make threads and connections.
        steady(url, headers, lambda n: ("GET", reads[n % len(reads)]))
        reading = steady(url, headers, lambda n: ("GET", reads[n % len(reads)]))
        waiting = [propose(store) for _ in range(RATE * SECONDS)]
        approve = f"{base}/approvals/{{}}/approve?wait=0"
        approving = steady(url, headers, lambda n: ("POST", approve.format(waiting[n])))
    failed, took = crowd(url, headers, [propose(store) for _ in range(ITEMS)])
    return {
        "read": p99(reading),
        "approve": p99(approving),
        "failed": failed,
        "crowd": took,
    }


@dataclass(frozen=True)
class StreamLoad:
    """p99 in milliseconds without streams and beside them, and bytes that a stream takes."""

    reading: tuple[float, float]
    approving: tuple[float, float]
    size: float


def beside_streams(deployment: Deployment, agent_id: str) -> StreamLoad:
    """Read and approve alone, and then while `STREAMS` streams send what happens."""
    url = deployment.api("streaming")
    headers = deployment.key("bench", "admin")
    store = deployment.agent(agent_id)
    process = psutil.Process(deployment.processes["streaming"].pid)
    reads = (f"/api/v0/agents/{agent_id}/loop/status", "/api/v0/agents", "/api/v0/keys")

    def read() -> float:
        return p99(steady(url, headers, lambda n: ("GET", reads[n % len(reads)])))

    def approve() -> float:
        waiting = [propose(store) for _ in range(RATE * SECONDS)]
        path = f"/api/v0/agents/{agent_id}/approvals/{{}}/approve?wait=0"
        return p99(steady(url, headers, lambda n: ("POST", path.format(waiting[n]))))

    with ExitStack() as stack, one_core(process.pid):
        read()
        alone = read(), approve()
        before = process.memory_info().rss
        for _ in range(STREAMS):
            got = requests.get(
                f"{url}/api/v0/agents/{agent_id}/events", headers=headers, stream=True, timeout=60
            )
            stack.callback(got.close)
            got.raise_for_status()
        size = (process.memory_info().rss - before) / STREAMS
        beside = read(), approve()
    return StreamLoad((alone[0], beside[0]), (alone[1], beside[1]), size)


def beside_half_open(deployment: Deployment) -> float:
    """Seconds until health and a freeze are answered, beside 1 100 half-open connections."""
    url = deployment.api("crowded")
    headers = deployment.key("ann", "admin")
    where = urlsplit(url)
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            address = (str(where.hostname), where.port or 0)
            connection = stack.enter_context(socket.create_connection(address, 20))
            connection.sendall(b"GET /api/v0/health HTTP/1.1\r\nHost: x\r\n")
        began = time.perf_counter()
        requests.get(f"{url}/api/v0/health", timeout=60).raise_for_status()
        frozen = requests.post(f"{url}/api/v0/freeze", json={}, headers=headers, timeout=60)
        took = time.perf_counter() - began
    frozen.raise_for_status()
    return took


def crowd(url: str, headers: dict[str, str], items: list[str]) -> tuple[int, float]:
    """Have all callers approve at once; return the number of failures and the seconds."""
    ready = threading.Barrier(CALLERS)
    began = time.perf_counter()

    def call(number: int) -> int:
        caller = Caller(url, headers)
        ready.wait()
        paths = [f"/api/v0/approvals/{item}/approve?wait=0" for item in items[number::CALLERS]]
        return sum(caller.ask(("POST", path)) != 202 for path in paths)

    with ThreadPoolExecutor(CALLERS) as pool:
        failed = sum(pool.map(call, range(CALLERS)))
    return failed, time.perf_counter() - began
