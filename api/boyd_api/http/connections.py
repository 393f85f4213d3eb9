"""Connections of the server: accepts them, closes idle ones, and keeps streams open.

waitress reads requests and answers them in threads. Its own loop looks at every connection in each
turn and stops accepting when there are too many; here a turn looks only at connections with an
event (epoll), and the oldest idle connection is closed for a new one.
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
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask

from boyd.plugin.plugin_boundary import contain
from boyd_api.http.problems import MEDIA_TYPE, HttpProblem

#: Name in the WSGI environment of the function that hands a response over to the server.
HAND_OVER = "boyd.hand_over"
#: Part of the path of requests that may have a larger body.
INLET = "/intake/"

#: Seconds in which the head of a request has to come, after its connection or its first byte.
HEAD = 10.0
#: Seconds that a connection may be idle, or stall within a body or a response.
IDLE = 60.0
#: Seconds between two scans of all connections.
SCAN = 1.0
#: Connections to accept in one turn, and to close at once when there are too many.
_AT_ONCE = 64
#: Bytes that may wait for a client before its stream pauses.
_AHEAD = 262_144
#: Bytes of answers that clients may leave unread, all together, and seconds between two sums.
BACKLOG = 64 * 1_048_576
_SUM = 0.05

#: Problems of the errors of waitress, by status; the rest is a bad request or internal.
_PROBLEMS = {413: "too-large", 431: "too-large"}


class ErrorResponseTask(ErrorTask):  # type: ignore[misc]  # waitress has no annotations
    """Responds with a problem to requests that do not reach the application."""

    def execute(self) -> None:
        """Write the response, and close the connection: the next request cannot be found in it."""
        error = self.request.error
        name = "internal" if error.code == 500 else _PROBLEMS.get(error.code, "bad-request")
        problem = HttpProblem(name, error.body if name == "bad-request" else None)
        path = getattr(self.request, "path", None) or ""
        if INLET in path:
            self.channel.server.refused(path.rpartition("/")[2], name, str(problem))
        body = problem.document_for(uuid.uuid4().hex).to_json().encode()
        self.status = f"{problem.kind.status} {HTTPStatus(problem.kind.status).phrase}"
        self.response_headers += [("Content-Type", MEDIA_TYPE), ("Cache-Control", "no-store")]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class StreamConnection(Protocol):
    """The connection that a stream is sent over."""

    @property
    def is_gone(self) -> bool:
        """True once the client has disconnected."""

    @property
    def lags(self) -> bool:
        """True while the client has not read enough of what was sent."""

    def send_piece(self, text: str) -> None:
        """Send a piece."""

    def end_answer(self) -> None:
        """End the response."""


@dataclass(frozen=True)
class Handover:
    """A response that continues after its request was served.

    One of the two is called: `begin` with its connection, or `cancel` if the client has left.
    """

    begin: Callable[[StreamConnection], None]
    cancel: Callable[[], None]


class ServingTask(WSGITask):  # type: ignore[misc]
    """Serves a request; a response that is handed over leaves its thread and stays open."""

    handover: Handover | None = None

    def service(self) -> None:
        """Serve the request."""
        try:
            super().service()
        finally:
            if self.handover is not None and not self.channel.streaming:
                self.handover.cancel()

    def execute(self) -> None:
        """Call the application, which may hand its response over."""
        self.get_environment()[HAND_OVER] = partial(setattr, self, "handover")
        # Waitress would not answer for an error that is no `Exception`.
        contain(super().execute)

    def finish(self) -> None:
        """End the response, unless it continues."""
        if self.handover is None or not self.wrote_header:
            super().finish()
            return
        self.close_on_finish = False
        with self.channel.requests_lock:
            # Pipelined requests are not answered: the connection is closed at the end.
            del self.channel.requests[1:]
        self.channel.chunked = self.chunked_response
        self.channel.streaming = True
        self.handover.begin(self.channel)


class RequestParser(HTTPRequestParser):  # type: ignore[misc]
    """Reads a request, with a larger size limit for intake."""

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head."""
        super().parse_header(header_plus)
        self._check_framing(header_plus.split(b"\r\n")[1:])
        if INLET not in (self.path or ""):
            self.adj = self.adj.elsewhere  # type: ignore[has-type]

    def _check_framing(self, lines: list[bytes]) -> None:
        """Refuse what a proxy before us may have read in another way.

        Raises:
            ParsingError: the lengths, the hosts or the lines of the head can be taken in two ways.
        """
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("both Content-Length and Transfer-Encoding are given")
        if self.version != "1.1" and "TRANSFER_ENCODING" in self.headers:
            raise ParsingError(f"HTTP/{self.version} has no Transfer-Encoding")
        hosts = sum(line[:5].lower() == b"host:" for line in lines)
        if hosts > 1 or (hosts == 0 and self.version == "1.1"):
            raise ParsingError(f"one Host is needed, not {hosts}")
        if any(line[:1] in (b" ", b"\t") for line in lines):
            raise ParsingError("a header continues on a line of its own")


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection."""

    task_class = ServingTask
    error_task_class = ErrorResponseTask
    parser_class = RequestParser
    #: True while its response continues, and if that is chunked.
    streaming = False
    chunked = False
    #: True while a pipelined request waits until the answer before it has been read.
    parked = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        #: Start of its current state: idle, or receiving the head of a request.
        self.since = time.monotonic()
        super().__init__(*arguments, **more)
        self.creation_time = self.last_activity

    @property
    def last_activity(self) -> float:
        """The time of the last activity, by a clock that nobody sets."""
        return self._active_at

    @last_activity.setter
    def last_activity(self, _wall: float) -> None:
        """Take note of an activity; waitress assigns the time of the system."""
        self._active_at = time.monotonic()

    @property
    def busy(self) -> bool:
        """True while a request is being served or its response still streams."""
        return bool(self.requests) or self.streaming

    def is_overdue(self, now: float) -> bool:
        """True once the connection has used up its time limit."""
        if self.busy:
            return bool(self.total_outbufs_len) and self.last_activity < now - IDLE
        half = self.request is not None and not self.request.headers_finished
        fresh = self.request is None and self.last_activity == self.creation_time
        if half or fresh:
            return now - self.since > HEAD
        return self.last_activity < now - IDLE

    @property
    def has_input(self) -> bool:
        """True while the client has sent something that was not read yet."""
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def received(self, data: bytes) -> bool:
        """Take received data; it is ignored while a response streams."""
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

    def writable(self) -> bool:
        """True while something waits to be sent, or for that."""
        return bool(self.parked or super().writable())

    def handle_write(self) -> None:
        """Send what waits, and then serve the next of several pipelined requests."""
        if self.parked:
            self._flush_exception(self._flush_some)
            if not self.total_outbufs_len:
                self.parked = False
                self.server.add_task(self)
        super().handle_write()

    def write_soon(self, data: Any) -> int:
        """Send now what can be sent, and the rest when the client reads."""
        written = super().write_soon(data)
        if self.total_outbufs_len:
            self.server.touch(self)
        return int(written)

    def _flush_some(self, do_close: bool = True) -> bool:
        """Send buffered data; the loop and the thread of a stream may both call this."""
        with self.outbuf_lock:
            return bool(super()._flush_some(do_close=do_close))

    @property
    def is_gone(self) -> bool:
        """True once the client has disconnected or the connection is closing."""
        return not self.connected or self.will_close

    @property
    def lags(self) -> bool:
        """True while too much data waits for the client to read it."""
        return bool(self.total_outbufs_len > _AHEAD)

    def send_piece(self, text: str) -> None:
        """Send a piece of a streamed response."""
        data = text.encode()
        framed = b"%X\r\n%s\r\n" % (len(data), data) if self.chunked else data
        try:
            self.write_soon(framed)
        except ClientDisconnected:
            self.connected = False

    def end_answer(self) -> None:
        """End a streamed response, and close the connection once all of it is sent."""
        with suppress(ClientDisconnected):
            self.write_soon(b"0\r\n\r\n" if self.chunked else b"")
        self.close_when_flushed = True
        self.server.touch(self)


class Poller(dict[int, Any]):
    """The sockets of a server by file descriptor, with the events awaited at each."""

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._flags: dict[int, int] = {}

    def __delitem__(self, fd: int) -> None:
        super().__delitem__(fd)
        if self._flags.pop(fd, 0):
            self._epoll.unregister(fd)

    def watch(self, *objects: Any) -> None:
        """Wait from now on for the events that each of the objects needs next."""
        for each in objects:
            fd = each._fileno  # noqa: SLF001  # waitress keeps it under no other name
            if fd is not None and self.get(fd) is each:
                self._wait_for(fd, _flags(each))

    def turn(self, seconds: float) -> None:
        """Handle the events of that many seconds."""
        for fd, flags in self._epoll.poll(seconds):
            ready = self.get(fd)
            if ready is not None:
                wasyncore.readwrite(ready, flags)
                self.watch(ready)

    def close(self) -> None:
        """Close all sockets."""
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


def _flags(watched: Any) -> int:
    flags = select.EPOLLIN | select.EPOLLPRI if watched.readable() else 0
    return flags | select.EPOLLOUT if watched.writable() and not watched.accepting else flags


class Listener(TcpWSGIServer):  # type: ignore[misc]
    """Accepts connections and closes those that exceed their time limits."""

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
        """Listen on the socket, which is bound already.

        At most *room* connections may be open, and the body of an intake request may have *largest*
        bytes; *refused* receives format, reason and detail of refused intake.
        """
        self.poller = Poller()
        self.refused = refused
        self._room = room
        self._touched: deque[Channel] = deque()
        self._next_scan = 0.0
        self._next_sum = 0.0
        adjustments.elsewhere = copy.copy(adjustments)
        adjustments.max_request_body_size = largest
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        super().__init__(
            app,
            self.poller,
            True,
            listening,
            dispatcher=dispatcher,
            adj=adjustments,
            sockinfo=where,
            bind_socket=False,
        )
        self.poller.watch(self, self.trigger)

    def touch(self, channel: Channel) -> None:
        """Have the loop look at a connection that a thread has changed."""
        self._touched.append(channel)
        self.pull_trigger()

    def add_task(self, task: Any) -> None:
        """Serve the next request of a connection, once the answers before it have been read."""
        if isinstance(task, Channel) and task.total_outbufs_len:
            task.parked = True
            self.touch(task)
            return
        super().add_task(task)

    def turn(self, seconds: float) -> None:
        """Handle the events of that many seconds, and scan all connections when it is time."""
        self.poller.turn(seconds)
        if self._touched and time.monotonic() >= self._next_sum:
            self._shed()
        while self._touched:
            self.poller.watch(self._touched.popleft())
        if time.monotonic() >= self._next_scan:
            self._scan()

    def readable(self) -> bool:
        """True while the server accepts connections."""
        return bool(self.accepting)

    def handle_accept(self) -> None:
        """Accept waiting connections; the oldest idle ones are closed for them."""
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
            channel = self.channel_class(self, connection, address, self.adj, map=self.poller)
            self.poller.watch(channel)

    def _make_room(self, number: int) -> None:
        """Close the connections that have been idle, or half-open, for longest."""
        idle = [channel for channel in self.active_channels.values() if not channel.busy]
        idle.sort(key=lambda channel: channel.since)
        for channel in idle[: min(number, max(1, len(idle) // 2))]:
            channel.handle_close()

    def _shed(self) -> None:
        """Close the connections that leave most unread, when all leave too much."""
        self._next_sum = time.monotonic() + _SUM
        lazy = [channel for channel in self.active_channels.values() if channel.total_outbufs_len]
        unread = sum(channel.total_outbufs_len for channel in lazy)
        if unread <= BACKLOG:
            return
        self.logger.warning("closing connections: clients leave %d bytes unread", unread)
        lazy.sort(key=lambda channel: -channel.total_outbufs_len)
        for channel in lazy:
            unread -= channel.total_outbufs_len
            channel.handle_close()
            if unread <= BACKLOG / 2:
                return

    def _scan(self) -> None:
        """Close connections beyond their time limits; poll all others, in case one was missed."""
        self._shed()  # the last answers may have come just after a sum
        now = time.monotonic()
        self._next_scan = now + SCAN
        for channel in list(self.active_channels.values()):
            # A turn may last longer than a limit on a busy machine: what came meanwhile is in time.
            if channel.is_overdue(now) and (channel.busy or not channel.has_input):
                channel.handle_close()
            else:
                self.poller.watch(channel)
