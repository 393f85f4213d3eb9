"""The worker forwards connections of a sandbox to its destinations."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from boyd.sandbox.inside import Forwarder
from harness import wait_until

CONNECTIONS = 100


class Echo(BaseRequestHandler):
    """Sends back what it is sent."""

    def handle(self) -> None:
        """Send it back."""
        self.request.sendall(self.request.recv(100))


@pytest.fixture
def destination() -> Iterator[str]:
    """The host and port of a server."""
    with ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def refusing() -> str:
    """A host and port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def descriptors() -> int:
    """The number of files and sockets that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def ask(address: tuple[str, int], text: bytes) -> bytes:
    """Send a text through the forwarder; all that comes back until the end."""
    with socket.create_connection(address, 10) as connection:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        parts = iter(lambda: connection.recv(100), b"")
        return b"".join(parts)


@pytest.mark.parametrize("kind", ["destination", "refusing"])
def test_a_connection_that_has_ended_takes_no_descriptor_of_the_worker(
    kind: str, request: pytest.FixtureRequest
) -> None:
    name: str = request.getfixturevalue(kind)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    forwarder = Forwarder([listener], [name])
    before = descriptors()
    try:
        # A connection that is closed before its data are read is reset.
        text = b"hello" if kind == "destination" else b""
        assert {ask(address, text) for _ in range(CONNECTIONS)} == {text}

        wait_until(lambda: descriptors() < before + CONNECTIONS // 2)
    finally:
        forwarder.close()
