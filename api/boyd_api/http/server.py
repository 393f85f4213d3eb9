"""HTTP server: runs the application with waitress, and drains requests before it stops."""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from flask import Flask
from waitress.adjustments import Adjustments
from waitress.task import ThreadedTaskDispatcher

from boyd.settings.process_settings import Settings
from boyd_api.http.connections import Listener

#: Seconds that requests in flight may take after SIGTERM.
DRAIN = 15.0
#: Bytes beyond our own limit of a body, within which it is refused and the connection kept.
_MARGIN = 1_048_576
_MAX_HEADERS = 32_768
#: Open files besides connections.
_OTHER_FILES = 128
#: The most arenas of glibc, and their number among the parameters of `mallopt`.
_ARENAS = 2
_M_ARENA_MAX = -8
#: Seconds between two checks of signals, at most.
_LOOK = 1.0


class ApiServer:
    """A listening socket and its threads."""

    def __init__(self, app: Flask, listening: socket.socket, settings: Settings) -> None:
        """Start listening; *listening* is bound already."""
        self._stopping = threading.Event()
        self._woken = threading.Event()
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(settings.api.threads)
        adjustments = Adjustments(
            threads=settings.api.threads,
            max_request_body_size=settings.api.max_body + _MARGIN,
            max_request_header_size=_MAX_HEADERS,
            # Notices that a client has disconnected while its request is served.
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
            refused=services.refusals.report if services else lambda *_: None,
            dispatcher=dispatcher,
        )

    def stop(self) -> None:
        """Accept no more connections, and end when the requests in flight were answered."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        try:
            self._listener.pull_trigger()
        finally:
            self._woken.set()

    def run(self, stopping: Callable[[], None]) -> None:
        """Serve until `stop`; *stopping* is then called to end streams and waiting requests."""
        while not self._stopping.is_set():
            self._listener.turn(_LOOK)
        stopping()
        self._listener.del_channel()
        self._listener.socket.close()
        deadline = time.monotonic() + DRAIN
        while self._busy() and time.monotonic() < deadline:
            self._listener.turn(0.1)
        self._listener.task_dispatcher.shutdown(timeout=0.1)
        # The trigger is closed below, and `stop` may still be about to pull it.
        self._woken.wait()
        self._listener.poller.close()

    def _busy(self) -> bool:
        channels = list(self._listener.active_channels.values())
        return any(channel.busy or channel.total_outbufs_len for channel in channels)


def _files() -> int:
    """The number of files that this process may open, after raising the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, max(soft, 65_536)) if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    if soft != resource.RLIM_INFINITY and limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def share_arenas() -> None:
    """Let all threads take memory from a few arenas, if the C library is glibc.

    By default most get one of their own, which keeps what their largest response took.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def serve(
    app: Flask, listening: socket.socket, settings: Settings, stopping: Callable[[], None]
) -> None:
    """Serve *app* until SIGTERM or SIGINT."""
    share_arenas()
    server = ApiServer(app, listening, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(stopping)
