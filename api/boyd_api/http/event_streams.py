"""Server-sent events: sends streams that grow in Redis to clients, all from one thread.

Streams of the same topic that have sent equally much share what is read for them.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from flask import Response, request

from boyd.errors import StoreError
from boyd.store import Topic, is_later
from boyd_api.http.change_watcher import BLOCK, ChangeSignal, ChangeWatcher, Slots
from boyd_api.http.connections import HAND_OVER, Handover, StreamConnection
from boyd_api.http.problems import HttpProblem, retry_after

log = logging.getLogger("boyd.api")

MEDIA_TYPE = "text/event-stream"
#: The headers that a route with a stream reads.
HEADERS = {"Last-Event-ID": "The id of the last event received: the stream resumes after it."}

#: Milliseconds after which a client should reconnect.
RETRY = 2000
#: Seconds between two heartbeats.
HEARTBEAT = 15.0
#: Seconds between two looks without any signal, and until the watcher follows a new topic.
LOOK = 1.0
SOON = 0.1
#: Seconds in which events are sent together.
TOGETHER = 0.02
#: Seconds for which the validity of a key is cached.
_VALID = 1.0

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_LARGEST = 2**64


@dataclass(frozen=True)
class ServerSentEvent:
    """One event; one without a kind has nothing to show and only advances the position."""

    id: str
    kind: str | None = None
    data: str = ""

    @property
    def text(self) -> str:
        """The event as it is sent."""
        if self.kind is None:
            return f"id: {self.id}\n\n"
        return f"id: {self.id}\nevent: {self.kind}\ndata: {self.data}\n\n"


class EventFeed(Protocol):
    """The source of a stream."""

    topic: Topic

    @property
    def interval(self) -> float:
        """Seconds between two signs of life."""
        return HEARTBEAT

    @property
    def group(self) -> Hashable:
        """Streams of the same group that have sent equally much share what is read for them."""
        return self.topic

    @property
    def sign_of_life(self) -> str:
        """The text that is sent from time to time, so that nobody takes the stream for dead."""
        return ":\n\n"

    def newest(self) -> str:
        """The id of the newest event."""

    def first(self) -> str:
        """The id after which a new client starts."""

    def reaches(self, id: str) -> bool:
        """True while every event after that one is kept."""

    def after(self, id: str) -> Sequence[ServerSentEvent]:
        """Some events after that one, oldest first: no more than fit into memory."""

    def over(self) -> bool:
        """True when no further event will come."""


@dataclass(eq=False)
class EventStream:
    """One open stream.

    Attributes:
        last: the id of the event sent last.
        key_id: of the key or identity that opened it, if one was needed.
        is_valid: tells if the key or identity is still valid.
    """

    feed: EventFeed
    last: str
    key_id: str | None
    is_valid: Callable[[str], bool]
    opened: float = field(default_factory=time.monotonic)
    heartbeat: float = field(init=False)
    seen: int = -1
    looked: float = 0.0
    connection: StreamConnection | None = None
    signal: ChangeSignal | None = None
    holds: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.heartbeat = self.opened + self.feed.interval

    def due(self, now: float) -> bool:
        """True when there may be new events."""
        assert self.signal is not None
        interval = SOON if now < self.opened + 2 * BLOCK else LOOK
        return self.signal.count > self.seen or now >= self.looked + interval


class EventStreams:
    """All open streams of one process, in one thread."""

    def __init__(self, changes: ChangeWatcher, most: int, stopping: threading.Event) -> None:
        """Create it for at most so many streams, which end once *stopping* is set."""
        self.slots = Slots(most)
        self._changes = changes
        self._stopping = stopping
        self._lock = threading.Lock()
        self._new: list[EventStream] = []
        self._open: list[EventStream] = []
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._valid: dict[str, tuple[float, bool]] = {}

    def respond(
        self, feed: EventFeed, key_id: str | None, is_valid: Callable[[str], bool]
    ) -> Response:
        """Respond with *feed* from `Last-Event-ID` on, until it is over or the client leaves.

        Raises `HttpProblem` if the id is invalid or too many streams are open.
        """
        sent = request.headers.get("Last-Event-ID")
        match = _ID.fullmatch(sent) if sent is not None else None
        if sent is not None and not (match and max(map(int, match.groups())) < _LARGEST):
            raise HttpProblem("bad-request", "Last-Event-ID is not the id of an event")
        missed = sent is not None and not feed.reaches(sent)
        start = feed.first() if sent is None else sent
        if missed:
            # Redis has lost that event, so later events may have smaller ids.
            newest = feed.newest()
            start = newest if is_later(start, newest) else start
        if request.method == "HEAD":
            return Response(mimetype=MEDIA_TYPE)
        if not self.slots.take():
            detail = "too many event streams are open"
            raise HttpProblem("unavailable", detail, headers=retry_after(5))
        stream = EventStream(feed, start, key_id, is_valid)
        pending = Handover(partial(self.begin, stream), self.slots.free)
        opening = f"retry: {RETRY}\n\n" + ("event: missed\ndata: {}\n\n" if missed else "")
        response = Response(_first_pieces(pending, opening), mimetype=MEDIA_TYPE)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
        return response

    def begin(self, stream: EventStream, connection: StreamConnection) -> None:
        """Send a stream over that connection; its slot is freed when it ends."""
        stream.connection = connection
        stream.signal = stream.holds.enter_context(self._changes.following(stream.feed.topic))
        stream.holds.callback(self.slots.free)
        with self._lock:
            self._new.append(stream)
            if self._thread is None:
                self._changes.on_change = self.wake
                self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Look at all streams."""
        self._woken.set()

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            young = any(now < stream.opened + 2 * BLOCK for stream in self._open)
            self._woken.wait(SOON if young else LOOK)
            self._woken.clear()
            with self._lock:
                self._open += self._new
                self._new = []
            try:
                self._pass()
            except Exception:  # the thread has to outlive any error of a feed
                log.exception("event streams could not be sent")
            if self._stopping.wait(TOGETHER) and not self._open and not self._new:
                return

    def _pass(self) -> None:
        now = time.monotonic()
        connections = [(stream, stream.connection) for stream in self._open]
        stopping = self._stopping.is_set()
        self._end([stream for stream, open in connections if stopping or not open or open.is_gone])
        due: dict[tuple[Hashable, str], list[EventStream]] = {}
        for stream in self._open:
            if stream.due(now) and stream.connection is not None and not stream.connection.lags:
                due.setdefault((stream.feed.group, stream.last), []).append(stream)
        for group in due.values():
            with self._ending_on_error(group):
                self._send(group, now)
        refused = []
        for stream in self._open:
            with self._ending_on_error([stream]):
                if not self._keep_alive(stream, now):
                    refused.append(stream)
        self._end(refused)

    @contextmanager
    def _ending_on_error(self, group: list[EventStream]) -> Iterator[None]:
        """Log an unexpected error and end the streams that it concerns; all others go on."""
        try:
            yield
        except Exception:
            agent_id, _ = group[0].feed.topic
            log.exception("closing the event streams of agent %s: they cannot be sent", agent_id)
            self._end(group)

    def _send(self, group: list[EventStream], now: float) -> None:
        counts = [stream.signal.count if stream.signal else 0 for stream in group]
        events, over = read_feed(group[0].feed, group[0].last)
        text = "".join(event.text for event in events)
        for stream, count in zip(group, counts, strict=True):
            stream.looked = now
            if events and stream.connection is not None:
                stream.last = events[-1].id
                stream.connection.send_piece(text)
            else:
                stream.seen = count
        if events:
            self.wake()  # there may be more than was read
        elif over:
            self._end(group)

    def _keep_alive(self, stream: EventStream, now: float) -> bool:
        """Send a heartbeat when it is time; False when the key is not valid any more."""
        if now < stream.heartbeat or stream.connection is None:
            return True
        if not self._is_valid(stream, now):
            return False
        stream.heartbeat = now + stream.feed.interval
        stream.connection.send_piece(stream.feed.sign_of_life)
        return True

    def _is_valid(self, stream: EventStream, now: float) -> bool:
        if stream.key_id is None:
            return True
        checked, valid = self._valid.get(stream.key_id, (float("-inf"), True))
        if now - checked > _VALID:
            try:
                valid = stream.is_valid(stream.key_id)
            except StoreError:
                return True
            self._valid = {k: v for k, v in self._valid.items() if now - v[0] <= _VALID}
            self._valid[stream.key_id] = (now, valid)
        return valid

    def _end(self, streams: Iterable[EventStream]) -> None:
        ending = set(streams)
        self._open = [stream for stream in self._open if stream not in ending]
        for stream in ending:
            if stream.connection is not None and not stream.connection.is_gone:
                stream.connection.end_answer()
            stream.holds.close()


def read_feed(feed: EventFeed, last: str) -> tuple[Sequence[ServerSentEvent], bool]:
    """Events after *last*, and True if no further ones will come."""
    try:
        over = feed.over()  # asked first: events added in between are read
        return feed.after(last), over
    except StoreError:
        return [], False  # Redis is away; the stream stays, and resumes when it is back


def _first_pieces(pending: Handover, opening: str) -> Iterator[str]:
    """The start of the response; all of it where the server cannot take the stream over."""
    hand_over = request.environ.get(HAND_OVER)
    if hand_over is None:
        return _Pieces(pending, opening)
    hand_over(pending)
    return iter([opening])


class _Pieces(Iterator[str]):
    """The pieces of a stream, for a server that iterates over them in a thread of its own."""

    def __init__(self, pending: Handover, opening: str) -> None:
        self._pending = pending
        self._opening: str | None = opening
        self._pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.is_gone = False
        self.lags = False

    def __next__(self) -> str:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            self._pending.begin(self)
            return opening
        piece = self._pieces.get()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Stop iterating."""
        if self._opening is not None:
            self._pending.cancel()
        self._opening, self.is_gone = None, True

    def send_piece(self, text: str) -> None:
        self._pieces.put(text)

    def end_answer(self) -> None:
        self._pieces.put(None)
