"""Connects a sandbox to its destinations: what it may reach listens in its own network.

A sandbox with destinations has a network of its own without a way out. There, an address stands for
each destination; a connection to it is passed on to the destination by the worker.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

#: Seconds in which a destination has to accept a connection.
_CONNECT = 10.0
_CHUNK = 65536


class Forwarder:
    """Passes connections of a sandbox on, until it is closed."""

    def __init__(self, listeners: Sequence[socket.socket], destinations: Sequence[str]) -> None:
        """Accept from each of *listeners* for the destination of the same place."""
        self._open: set[socket.socket] = set(listeners)
        self._lock = threading.Lock()
        self._closed = False
        for listener, destination in zip(listeners, destinations, strict=True):
            _in_background(self._accept, listener, destination)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._closed = True
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._open.clear()

    def _keep(self, *sockets: socket.socket) -> bool:
        with self._lock:
            self._open.update(sockets)
            closed = self._closed
        if closed:
            self.close()
        return not closed

    def _accept(self, listener: socket.socket, destination: str) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                if self._keep(accepted):
                    _in_background(self._connect, accepted, destination)

    def _connect(self, accepted: socket.socket, destination: str) -> None:
        host, _, port = destination.rpartition(":")
        try:
            there = socket.create_connection((host, int(port)), _CONNECT)
        except OSError:
            accepted.close()  # as if the destination had refused it
            return
        there.settimeout(None)
        if self._keep(there):
            _in_background(_pump, there, accepted)
            _pump(accepted, there)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until *source* ends."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _in_background(function: object, *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()  # type: ignore[arg-type]
