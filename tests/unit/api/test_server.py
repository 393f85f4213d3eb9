"""Requests that do not reach the application are refused in the form of all errors."""

from __future__ import annotations

import json
import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from flask import Flask

from api_kit import Site, make_desk
from boyd.settings.process_settings import Settings
from boyd_api.http.connections import Listener
from boyd_api.http.server import ApiServer
from harness import wait_until

BASE = b"Host: x\r\nContent-Type: application/json\r\n"


@pytest.fixture
def port(server: object) -> Iterator[int]:
    """The port of an API that takes bodies of up to 100 bytes."""
    site = Site(make_desk(server)[0], server, max_body=100)
    listening = socket.create_server(("127.0.0.1", 0))
    number = listening.getsockname()[1]
    served = ApiServer(site.app, listening, site.services.settings)
    thread = threading.Thread(target=served.run, args=(site.services.stop,))
    thread.start()
    yield number
    served.stop()
    thread.join(120)
    assert not thread.is_alive()


def answer(port: int, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to *sent*."""
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as file:
            status = int(file.readline().split()[1])
            headers = {}
            while line := file.readline().decode().strip():
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            return status, headers, file.read(int(headers["content-length"]))


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"POST /api/v0/pause HTTP/1.1\r\nContent-Length: 9999999999\r\n" + BASE, "too-large"),
        (b"POST /api/v0/pause HTTP/1.1\r\nContent-Length: -1\r\n" + BASE, "bad-request"),
        (b"POST /api/v0/pause HTTP/1.1\r\nTransfer-Encoding: x\r\n" + BASE, "bad-request"),
        (
            b"POST /api/v0/pause HTTP/1.1\r\nContent-Length: 2\r\n"
            b"Transfer-Encoding: chunked\r\n" + BASE,
            "bad-request",
        ),
        (b"POST /api/v0/pause HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" + BASE, "bad-request"),
        (b"GET /healthz HTTP/1.1\r\n", "bad-request"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "bad-request"),
        (b"GET /healthz HTTP/1.1\r\nX: a\r\n b\r\n" + BASE, "bad-request"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n", "too-large"),
        (b"GET /healthz HTTP/1.1\r\nno header\r\n", "bad-request"),
        (b"nonsense\r\n", "bad-request"),
    ],
)
def test_requests_refused_by_the_server_itself_get_a_problem(
    port: int, sent: bytes, name: str
) -> None:
    status, headers, body = answer(port, sent + b"\r\n")
    problem = json.loads(body)

    assert status == {"too-large": 413, "bad-request": 400}[name]
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert problem["type"] == f"/problems/{name}"
    assert problem["status"] == status
    assert problem["error"] == problem["detail"]
    assert len(problem["instance"]) == 32


def test_a_request_without_fault_gets_through(port: int) -> None:
    status, headers, _ = answer(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

    assert status == 200
    assert headers["content-type"] == "application/json"


def test_a_body_that_is_a_little_too_large_leaves_the_connection_open(port: int) -> None:
    head = b"POST /api/v0/runs HTTP/1.1\r\nContent-Length: 200\r\n" + BASE + b"\r\n"
    status, headers, body = answer(port, head + b" " * 200)

    assert status in (401, 413)
    assert headers.get("connection") != "close"
    assert json.loads(body)["status"] == status


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    two = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.sendall(request * 3 + two)
        with connection.makefile("rb") as file:
            received = file.read()

    answers = received.split(b"HTTP/1.1 200")[1:]
    assert len(answers) == 4
    assert len({len(answer) for answer in answers[:3]}) == 1
    assert b'"status"' in answers[3]


@pytest.mark.long
def test_clients_that_read_nothing_get_one_answer(port: int) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    before = _memory()
    with ExitStack() as open_:
        for _ in range(100):
            connection = open_.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            connection.sendall(request * 40)
        for _ in range(20):
            assert answer(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
        # All answers are 2 GB, one of each 50 MB.
        assert _memory() - before < 300_000_000


@pytest.mark.long
@pytest.mark.parametrize("between_sums", [0.0, 3600.0])
def test_connections_are_closed_when_their_clients_leave_too_much_unread(
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    between_sums: float,
) -> None:
    monkeypatch.setattr("boyd_api.http.connections._SUM", between_sums)
    monkeypatch.setattr("boyd_api.http.connections.BACKLOG", 200_000)
    # After this one comes the first sum.
    assert answer(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with ExitStack() as open_:
        for _ in range(10):
            connection = open_.enter_context(socket.create_connection(("127.0.0.1", port), 120))
            connection.sendall(request * 40)
        wait_until(lambda: "closing connections" in caplog.text)
        assert answer(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200


def _memory() -> int:
    """The resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def test_half_a_head_is_not_waited_for_long(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = HTTPConnection("127.0.0.1", port, timeout=120)
    used.request("GET", "/healthz")
    assert used.getresponse().read()
    used.auto_open = 0
    with ExitStack() as stack, monkeypatch.context() as impatient:
        silent, half = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 120))
            for _ in range(2)
        )
        half.sendall(b"GET /healthz HTTP/1.1\r\n")
        impatient.setattr("boyd_api.http.connections.HEAD", 0.1)
        assert is_closed(silent)
        assert is_closed(half)
    used.request("GET", "/healthz")
    assert used.getresponse().status == 200
    used.close()


def test_an_idle_connection_outlives_a_step_of_the_system_clock(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = HTTPConnection("127.0.0.1", port, timeout=120)
    idle.request("GET", "/healthz")
    assert idle.getresponse().read()
    idle.auto_open = 0
    by_system = time.time
    with monkeypatch.context() as stepped:
        stepped.setattr("boyd_api.http.connections.HEAD", 0.1)
        await_scan(port)  # by now the server has noted the last activity
        stepped.setattr(time, "time", lambda: by_system() + 3600)
        await_scan(port)
    idle.request("GET", "/healthz")
    assert idle.getresponse().status == 200
    idle.close()


def test_a_request_that_a_busy_server_has_not_read_yet_is_in_time(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = threading.Event()
    accept = Listener.handle_accept

    def accept_slowly(listener: Listener) -> None:
        accept(listener)
        sent.wait(120)

    monkeypatch.setattr(Listener, "handle_accept", accept_slowly)
    monkeypatch.setattr("boyd_api.http.connections.SCAN", 0.0)
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        monkeypatch.setattr("boyd_api.http.connections.HEAD", 0.0)
        sent.set()
        assert connection.recv(12) == b"HTTP/1.1 200"


def await_scan(port: int) -> None:
    """Wait until the server has closed a connection that sends nothing."""
    with socket.create_connection(("127.0.0.1", port), 120) as silent:
        assert is_closed(silent)


def is_closed(connection: socket.socket) -> bool:
    """Check that the server closes the connection within the socket's time limit."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_stopping_server_answers_the_request_in_flight() -> None:
    app, is_begun, go_on = Flask("slow"), threading.Event(), threading.Event()

    @app.get("/slow")
    def slow() -> str:
        is_begun.set()
        go_on.wait(120)
        return "done"

    listening = socket.create_server(("127.0.0.1", 0))
    served = ApiServer(app, listening, Settings())
    thread = threading.Thread(target=served.run, args=(lambda: None,))
    thread.start()
    request = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(answer, listening.getsockname()[1], request)
        try:
            assert is_begun.wait(120)
            served.stop()
            thread.join(1)
            assert thread.is_alive(), "it waits for the request"
        finally:
            go_on.set()
        assert reply.result(120)[::2] == (200, b"done")
    thread.join(120)
    assert not thread.is_alive()


def test_a_stopped_server_may_be_stopped_again() -> None:
    served = ApiServer(Flask("idle"), socket.create_server(("127.0.0.1", 0)), Settings())
    served.stop()
    served.run(lambda: None)

    served.stop()


def test_an_error_that_no_application_catches_is_answered_too() -> None:
    app = Flask("panic")

    @app.get("/panic")
    def panic() -> str:
        raise GeneratorExit

    listening = socket.create_server(("127.0.0.1", 0))
    served = ApiServer(app, listening, Settings())
    thread = threading.Thread(target=served.run, args=(lambda: None,))
    thread.start()
    try:
        request = b"GET /panic HTTP/1.1\r\nHost: x\r\n\r\n"
        assert answer(listening.getsockname()[1], request)[0] == 500
    finally:
        served.stop()
        thread.join(120)


#: Has sixteen threads allocate at the same time, and writes what glibc says of its arenas.
ARENAS = """
import ctypes, sys, threading
from boyd_api.http.server import share_arenas

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
share_arenas()
meeting = threading.Barrier(16)

def allocate():
    meeting.wait()
    libc.malloc(1000)
    meeting.wait()

threads = [threading.Thread(target=allocate) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_the_threads_of_an_api_process_share_two_arenas(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-P", "-c", ARENAS, str(tmp_path / "arenas")], check=True)

    assert (tmp_path / "arenas").read_text().count("<heap nr=") == 2
