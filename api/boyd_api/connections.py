"""The connections of the server: who may stay, who is closed for others, and what streams.

waitress reads requests and answers them in threads. Its own loop looks at every connection in each
turn and stops to accept any when there are too many; here a turn looks at those where something
has happened (epoll), and the oldest idle connection makes room for a new one.
"""

from __future__ import annotations

import copy
import select
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask

from boyd_api.problems import MEDIA_TYPE, Problem

#: Under this name the environment of a request has the function that hands its answer over.
HAND_OVER = "boyd.hand_over"
#: What is in the path of requests that may bring a larger body.
INLET = "/intake/"

#: Seconds in which the head of a request has to come, after its connection or its first byte.
HEAD = 10.0
#: Seconds that a connection may be idle, or stand still with half a body or answer.
IDLE = 60.0
#: Seconds between two looks at all connections.
SCAN = 1.0
#: How many connections are accepted in one turn, and closed at once when there are too many.
_AT_ONCE = 64
#: Bytes that may wait for a client before a stream gives it no more.
_AHEAD = 262_144

#: What waitress refuses by itself, as a problem; the rest is a bad request, or our fault.
_REFUSALS = {413: "too-large", 431: "too-large"}


class Refusal(ErrorTask):  # type: ignore[misc]  # waitress has no annotations
    """Answers, in the form of all errors, what does not get as far as the application (H1)."""

    def execute(self) -> None:
        """Write the answer, and close the connection: what follows cannot be told apart."""
        error = self.request.error
        name = "internal" if error.code == 500 else _REFUSALS.get(error.code, "bad-request")
        problem = Problem(name, error.body if name == "bad-request" else None)
        path = getattr(self.request, "path", None) or ""
        if INLET in path:
            self.channel.server.refused(path.rpartition("/")[2], name, str(problem))
        body = problem.told(uuid.uuid4().hex).to_json().encode()
        self.status = f"{problem.kind.status} {HTTPStatus(problem.kind.status).phrase}"
        self.response_headers += [("Content-Type", MEDIA_TYPE), ("Cache-Control", "no-store")]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Streaming(Protocol):
    """An answer that goes on when its request has been served."""

    def begin(self, channel: Channel) -> None:
        """Go on over that connection."""

    def cancel(self) -> None:
        """Do not begin: nobody listens any more."""


class Task(WSGITask):  # type: ignore[misc]
    """Serves a request; an answer that is handed over leaves its thread, and stays open."""

    streaming: Streaming | None = None

    def service(self) -> None:
        """Serve the request."""
        try:
            super().service()
        finally:
            if self.streaming is not None and not self.channel.streaming:
                self.streaming.cancel()

    def execute(self) -> None:
        """Call the application, which may hand its answer over."""
        self.get_environment()[HAND_OVER] = self._hand_over
        super().execute()

    def _hand_over(self, streaming: Streaming) -> None:
        self.streaming = streaming

    def finish(self) -> None:
        """End the answer, unless it goes on."""
        if self.streaming is None or not self.wrote_header:
            super().finish()
            return
        self.close_on_finish = False
        with self.channel.requests_lock:
            # What was sent ahead is not answered: the connection is closed at the end.
            del self.channel.requests[1:]
        self.channel.chunked = self.chunked_response
        self.channel.streaming = True
        self.streaming.begin(self.channel)


class Parser(HTTPRequestParser):  # type: ignore[misc]
    """Reads a request; a large body only where it may be one."""

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head."""
        super().parse_header(header_plus)
        if INLET not in (self.path or ""):
            self.adj = self.adj.elsewhere  # type: ignore[has-type]


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection."""

    task_class = Task
    error_task_class = Refusal
    parser_class = Parser
    #: Whether its answer goes on, and in chunks.
    streaming = False
    chunked = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        #: When it began to do what it does now: to wait, or to send the head of a request.
        self.since = time.monotonic()
        super().__init__(*arguments, **more)

    @property
    def busy(self) -> bool:
        """True while a request is being served or its answer still streams."""
        return bool(self.requests) or self.streaming

    def expired(self, now: float, wall: float) -> bool:
        """True once the connection has used up its time limit."""
        if self.busy:
            return bool(self.total_outbufs_len) and self.last_activity < wall - IDLE
        half = self.request is not None and not self.request.headers_finished
        fresh = self.request is None and self.last_activity == self.creation_time
        if half or fresh:
            return now - self.since > HEAD
        return bool(self.last_activity < wall - IDLE)

    def received(self, data: bytes) -> bool:
        """Take what has come; while an answer goes on nothing else is asked."""
        if self.streaming:
            return True
        if self.request is None:
            self.since = time.monotonic()
        return bool(super().received(data))

    def service(self) -> None:
        """Serve a request, in a thread."""
        super().service()
        self.since = time.monotonic()
        self.server.touch(self)

    def write_soon(self, data: Any) -> int:
        """Send now what can be sent, and the rest when the client takes it."""
        written = super().write_soon(data)
        if self.total_outbufs_len:
            self.server.touch(self)
        return int(written)

    def _flush_some(self, do_close: bool = True) -> bool:
        """Send what waits; the loop and the thread of a stream may both come to this."""
        with self.outbuf_lock:
            return bool(super()._flush_some(do_close=do_close))

    @property
    def gone(self) -> bool:
        """True once the client has disconnected or the connection is closing."""
        return not self.connected or self.will_close

    @property
    def lags(self) -> bool:
        """True while too much of what was sent waits for the client to read it."""
        return bool(self.total_outbufs_len > _AHEAD)

    def send_piece(self, text: str) -> None:
        """Send a piece of an answer that goes on."""
        data = text.encode()
        framed = b"%X\r\n%s\r\n" % (len(data), data) if self.chunked else data
        try:
            self.write_soon(framed)
        except ClientDisconnected:
            self.connected = False

    def end_answer(self) -> None:
        """End an answer that goes on, and close the connection once all of it is sent."""
        with suppress(ClientDisconnected):
            self.write_soon(b"0\r\n\r\n" if self.chunked else b"")
        self.close_when_flushed = True
        self.server.touch(self)


class Watched(dict[int, Any]):
    """The sockets of a server by their number, and what is waited for at each."""

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._flags: dict[int, int] = {}

    def __delitem__(self, fd: int) -> None:
        super().__delitem__(fd)
        if self._flags.pop(fd, 0):
            self._epoll.unregister(fd)

    def watch(self, *objects: Any) -> None:
        """Wait from now on for what each of the objects can do next."""
        for one in objects:
            fd = one._fileno  # noqa: SLF001  # waitress keeps it under no other name
            if fd is not None and self.get(fd) is one:
                self._wait_for(fd, _flags(one))

    def turn(self, seconds: float) -> None:
        """Let those go on where something happens within that time."""
        for fd, flags in self._epoll.poll(seconds):
            one = self.get(fd)
            if one is not None:
                wasyncore.readwrite(one, flags)
                self.watch(one)

    def close(self) -> None:
        """Close all of them."""
        wasyncore.close_all(self)
        self._epoll.close()

    def _wait_for(self, fd: int, flags: int) -> None:
        before = self._flags.get(fd, 0)
        if flags == before:
            return
        self._flags[fd] = flags
        if not before:
            self._epoll.register(fd, flags)
        elif flags:
            self._epoll.modify(fd, flags)
        else:
            self._epoll.unregister(fd)


def _flags(one: Any) -> int:
    flags = select.EPOLLIN | select.EPOLLPRI if one.readable() else 0
    return flags | select.EPOLLOUT if one.writable() and not one.accepting else flags


class Listener(TcpWSGIServer):  # type: ignore[misc]
    """Accepts connections and looks after them."""

    channel_class = Channel

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        adjustments: Adjustments,
        *,
        room: int,
        largest: int,
        refused: Callable[[str, str, str], None],
        dispatcher: Any,
    ) -> None:
        """Listen.

        Args:
            app: the application.
            listening: the socket, bound already.
            adjustments: of waitress.
            room: how many connections may be open.
            largest: how many bytes a body may have where it may be large.
            refused: told of format, reason and detail of refused intake.
            dispatcher: the threads.
        """
        self.watched = Watched()
        self.refused = refused
        self._room = room
        self._touched: deque[Channel] = deque()
        self._next_scan = 0.0
        adjustments.elsewhere = copy.copy(adjustments)
        adjustments.max_request_body_size = largest
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        super().__init__(
            app,
            self.watched,
            True,
            listening,
            dispatcher=dispatcher,
            adj=adjustments,
            sockinfo=where,
            bind_socket=False,
        )
        self.watched.watch(self, self.trigger)

    def touch(self, channel: Channel) -> None:
        """Have the loop look at a connection that a thread has changed."""
        self._touched.append(channel)
        self.pull_trigger()

    def turn(self, seconds: float) -> None:
        """Let connections go on where something happens within that time."""
        self.watched.turn(seconds)
        while self._touched:
            self.watched.watch(self._touched.popleft())
        if time.monotonic() >= self._next_scan:
            self._scan()

    def readable(self) -> bool:
        """True while the server accepts connections."""
        return bool(self.accepting)

    def handle_accept(self) -> None:
        """Accept who waits; the oldest idle connections make room."""
        for _ in range(_AT_ONCE):
            try:
                accepted = self.accept()
            except OSError:
                self.logger.warning("a connection could not be accepted", exc_info=True)
                self._make_room(_AT_ONCE)
                return
            if accepted is None:
                return
            connection, address = accepted
            self.set_socket_options(connection)
            if len(self.active_channels) >= self._room:
                self._make_room(_AT_ONCE)
            self.watched.watch(
                self.channel_class(self, connection, address, self.adj, map=self.watched)
            )

    def _make_room(self, number: int) -> None:
        """Close the connections that have been idle, or half-open, for longest."""
        idle = [one for one in self.active_channels.values() if not one.busy]
        idle.sort(key=lambda one: one.since)
        for one in idle[: min(number, max(1, len(idle) // 2))]:
            one.handle_close()

    def _scan(self) -> None:
        """Close who has had their time; look at everybody, should anything have been missed."""
        now, wall = time.monotonic(), time.time()
        self._next_scan = now + SCAN
        for one in list(self.active_channels.values()):
            if one.expired(now, wall):
                one.handle_close()
            else:
                self.watched.watch(one)
