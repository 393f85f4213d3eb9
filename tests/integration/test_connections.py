"""Many connections to a real API process: they cost it little, and keep nobody out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from harness import Deployment, wait_until

pytestmark = pytest.mark.real

HEAD = b"GET /api/v0/health HTTP/1.1\r\nHost: x\r\n"


class Crowd:
    """Connections that are kept open."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url)
        self._kept = ExitStack()

    def open(self, sent: bytes) -> socket.socket:
        """A connection on which that was sent."""
        address = (str(self._where.hostname), self._where.port or 0)
        connection = self._kept.enter_context(socket.create_connection(address, 120))
        connection.sendall(sent)
        return connection

    def leave(self) -> None:
        """Close them."""
        self._kept.close()


@pytest.fixture
def url(deployment: Deployment) -> str:
    """An API process with room for 600 connections, which a key may open at once."""
    deployment.environment["BOYD_API__CONNECTIONS"] = "600"
    deployment.environment["BOYD_API__BURST"] = "1000"
    deployment.worker("worker", "agents.traced:traced")
    return deployment.api("api")


@pytest.fixture
def crowd(url: str) -> Iterator[Crowd]:
    """A crowd that leaves in the end."""
    clients = Crowd(url)
    yield clients
    clients.leave()


def test_health_and_freeze_answer_beside_1100_half_open_connections(
    deployment: Deployment, url: str, crowd: Crowd
) -> None:
    headers = deployment.key("ann", "admin")
    for _ in range(1100):
        crowd.open(HEAD)

    began = time.monotonic()
    assert requests.get(f"{url}/api/v0/health", timeout=60).status_code == 200
    frozen = requests.post(f"{url}/api/v0/freeze", json={}, headers=headers, timeout=60)
    assert frozen.json()["success"] is True
    print(f"answered beside 1100 half-open connections in {time.monotonic() - began:.2f} s")


def test_the_newest_connections_stay_and_may_go_on(crowd: Crowd) -> None:
    old, *_ = [crowd.open(HEAD) for _ in range(1100)]
    new = crowd.open(HEAD)

    new.sendall(b"\r\n")
    assert new.recv(12) == b"HTTP/1.1 200"
    assert is_closed(old)


@pytest.mark.long
def test_500_streams_get_every_event_and_cost_little(
    deployment: Deployment, url: str, crowd: Crowd
) -> None:
    headers = deployment.key("ann", "admin")
    process = psutil.Process(deployment.processes["api"].pid)
    for _ in range(20):
        requests.get(f"{url}/api/v0/loop/status", headers=headers, timeout=60)
    before, threads = process.memory_info().rss, process.num_threads()
    ask = f"GET /api/v0/events HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\n"
    streams = [crowd.open(f"{ask}\r\n".encode()) for _ in range(500)]
    for stream in streams:
        read_until(stream, b"retry: 2000")
    size = (process.memory_info().rss - before) / len(streams)
    refused = crowd.open(f"{ask}\r\n".encode())
    assert refused.recv(12) == b"HTTP/1.1 503"

    triggered = requests.post(f"{url}/api/v0/loop/trigger", json={}, headers=headers, timeout=60)
    assert triggered.json()["success"] is True
    for stream in streams:
        read_until(stream, b"event: iteration.completed")
    print(f"a stream takes {size / 1000:.0f} kB")
    assert process.num_threads() <= threads + 4
    assert size < 50_000

    crowd.leave()
    again = Crowd(url)
    wait_until(lambda: again.open(f"{ask}\r\n".encode()).recv(12) == b"HTTP/1.1 200")
    again.leave()


def test_open_streams_do_not_keep_a_process_from_ending(
    deployment: Deployment, url: str, crowd: Crowd
) -> None:
    headers = deployment.key("ann", "admin")
    ask = f"GET /api/v0/events HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\n"
    stream = crowd.open(f"{ask}\r\n".encode())
    read_until(stream, b"retry: 2000")

    assert deployment.stop("api", 10) == 0
    assert read_until(stream, b"0\r\n\r\n")


def read_until(connection: socket.socket, text: bytes) -> bytes:
    """Read up to a piece that contains a text."""
    data = b""
    while text not in data:
        piece = connection.recv(65_536)
        assert piece, f"it was closed after {data!r}"
        data += piece
    return data


def is_closed(connection: socket.socket) -> bool:
    """Check that the other side closes the connection within the socket's time limit."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
