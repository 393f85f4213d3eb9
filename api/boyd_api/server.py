"""Serves the application with waitress until it is told to stop, and then lets requests end."""

from __future__ import annotations

import resource
import signal
import socket
import threading
import time
from collections.abc import Callable

from flask import Flask
from waitress.adjustments import Adjustments
from waitress.task import ThreadedTaskDispatcher

from boyd.settings.process import Settings
from boyd_api.connections import Listener

#: Seconds that requests in flight have to end after SIGTERM.
DRAIN = 15.0
#: How many bytes a body may have beyond our own limit, to be refused with the connection kept.
_MARGIN = 1_048_576
_MAX_HEADERS = 32_768
#: Files that are open besides connections.
_OTHER_FILES = 128
#: Seconds between two looks at the signals, at most.
_LOOK = 1.0


class Server:
    """One listening socket and its threads."""

    def __init__(self, app: Flask, listening: socket.socket, settings: Settings) -> None:
        """Begin to listen; *listening* is bound already."""
        self._stopping = threading.Event()
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(settings.api.threads)
        adjustments = Adjustments(
            threads=settings.api.threads,
            max_request_body_size=settings.api.max_body + _MARGIN,
            max_request_header_size=_MAX_HEADERS,
            # Notices that a client has left while its request is being worked on.
            channel_request_lookahead=1,
            clear_untrusted_proxy_headers=True,
            ident=None,
        )
        services = app.extensions.get("boyd")
        self._listener = Listener(
            app,
            listening,
            adjustments,
            room=min(settings.api.connections, _files() - _OTHER_FILES),
            largest=max(settings.intake.max_body, settings.api.max_body) + _MARGIN,
            refused=services.refusals.note if services else lambda *_: None,
            dispatcher=dispatcher,
        )

    def stop(self) -> None:
        """Take no more connections, and end when the requests in flight have been answered."""
        if self._stopping.is_set():
            return
        # Woken first: once it knows, it closes what it is woken by.
        self._listener.pull_trigger()
        self._stopping.set()

    def run(self, stopping: Callable[[], None]) -> None:
        """Serve until `stop`; *stopping* is then called, to end what would stay long."""
        while not self._stopping.is_set():
            self._listener.turn(_LOOK)
        stopping()
        self._listener.del_channel()
        self._listener.socket.close()
        deadline = time.monotonic() + DRAIN
        while self._busy() and time.monotonic() < deadline:
            self._listener.turn(0.1)
        self._listener.task_dispatcher.shutdown(timeout=0.1)
        self._listener.watched.close()

    def _busy(self) -> bool:
        channels = list(self._listener.active_channels.values())
        return any(channel.busy or channel.total_outbufs_len for channel in channels)


def _files() -> int:
    """How many files this process may have open, as many as it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, max(soft, 65_536)) if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def serve(
    app: Flask, listening: socket.socket, settings: Settings, stopping: Callable[[], None]
) -> None:
    """Serve *app* until SIGTERM or SIGINT."""
    server = Server(app, listening, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(stopping)
