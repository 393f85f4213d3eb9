"""Serves the application with waitress until it is told to stop, and then lets requests end."""

from __future__ import annotations

import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import waitress
from flask import Flask
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.task import ErrorTask

from boyd.settings import Settings
from boyd_api.problems import MEDIA_TYPE, Problem

#: Seconds that requests in flight have to end after SIGTERM.
DRAIN = 15.0
#: How many bytes a body may have beyond our own limit, to be refused with the connection kept.
_MARGIN = 1_048_576
_MAX_HEADERS = 32_768
_CONNECTIONS = 1000
#: Seconds that a connection may be idle.
_IDLE = 60
#: Seconds between two looks at the signals, at most.
_LOOK = 1.0

#: What waitress refuses by itself, as a problem; the rest is a bad request, or our fault.
_REFUSALS = {413: "too-large", 431: "too-large"}


class _Refusal(ErrorTask):  # type: ignore[misc]  # waitress has no annotations
    """Answers, in the form of all errors, what does not get as far as the application (H1)."""

    def execute(self) -> None:
        """Write the answer, and close the connection: what follows cannot be told apart."""
        error = self.request.error
        name = "internal" if error.code == 500 else _REFUSALS.get(error.code, "bad-request")
        problem = Problem(name, error.body if name == "bad-request" else None)
        body = problem.told(uuid.uuid4().hex).to_json().encode()
        self.status = f"{problem.kind.status} {HTTPStatus(problem.kind.status).phrase}"
        self.response_headers += [("Content-Type", MEDIA_TYPE), ("Cache-Control", "no-store")]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):  # type: ignore[misc]
    error_task_class = _Refusal


class Server:
    """One listening socket and its threads."""

    def __init__(self, app: Flask, listening: socket.socket, settings: Settings) -> None:
        """Begin to listen; *listening* is bound already."""
        self._stopping = threading.Event()
        self._connections: dict[int, Any] = {}
        self._server = waitress.create_server(
            app,
            map=self._connections,
            sockets=[listening],
            threads=settings.api.threads,
            max_request_body_size=max(settings.api.max_body, settings.intake.max_body) + _MARGIN,
            max_request_header_size=_MAX_HEADERS,
            connection_limit=_CONNECTIONS,
            channel_timeout=_IDLE,
            # Notices that a client has left while its request is being worked on.
            channel_request_lookahead=1,
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=True,
            ident=None,
        )
        self._server.channel_class = _Channel

    def stop(self) -> None:
        """Take no more connections, and end when the requests in flight have been answered."""
        if self._stopping.is_set():
            return
        # Woken first: once it knows, it closes what it is woken by.
        self._server.pull_trigger()
        self._stopping.set()

    def run(self, stopping: Callable[[], None]) -> None:
        """Serve until `stop`; *stopping* is then called, to end what would stay long."""
        while not self._stopping.is_set():
            self._turn()
        stopping()
        self._server.del_channel()
        self._server.socket.close()
        deadline = time.monotonic() + DRAIN
        while self._busy() and time.monotonic() < deadline:
            self._turn(0.1)
        self._server.task_dispatcher.shutdown(timeout=0.1)
        wasyncore.close_all(self._connections)

    def _turn(self, seconds: float = _LOOK) -> None:
        wasyncore.loop(timeout=seconds, use_poll=True, map=self._connections, count=1)

    def _busy(self) -> bool:
        channels = list(self._server.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)


def serve(
    app: Flask, listening: socket.socket, settings: Settings, stopping: Callable[[], None]
) -> None:
    """Serve *app* until SIGTERM or SIGINT."""
    server = Server(app, listening, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(stopping)
