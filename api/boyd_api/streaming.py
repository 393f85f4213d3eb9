"""Sends event streams on from one thread, however many are open: none holds a thread of its own.

Streams that follow the same and have come equally far share what is read for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from boyd.errors import StoreError
from boyd.store import Topic
from boyd_api.tail import BLOCK, Bell, Places, Tail

log = logging.getLogger("boyd.api")

#: Seconds between two signs of life.
HEARTBEAT = 15.0
#: Seconds between two looks whatever was told, and until the tail follows what is listened to.
LOOK = 1.0
SOON = 0.1
#: Seconds in which what comes goes on together.
TOGETHER = 0.02
#: Seconds for which it is known that a key is good.
_GOOD = 1.0


@dataclass(frozen=True)
class Sent:
    """One event; one without a kind has nothing to show, and only its place is told."""

    id: str
    kind: str | None = None
    data: str = ""

    @property
    def text(self) -> str:
        """As it is sent."""
        if self.kind is None:
            return f"id: {self.id}\n\n"
        return f"id: {self.id}\nevent: {self.kind}\ndata: {self.data}\n\n"


class Feed(Protocol):
    """What a stream sends, and what tells that there is more of it."""

    topic: Topic

    def newest(self) -> str:
        """The id of the last that there is."""

    def first(self) -> str:
        """The id after which a client begins that has received nothing."""

    def reaches(self, id: str) -> bool:
        """Whether everything after that one is still there."""

    def after(self, id: str) -> Sequence[Sent]:
        """Some of what came after that one, oldest first: not more than fits into memory."""

    def over(self) -> bool:
        """Whether nothing will come after what is there now."""


class Line(Protocol):
    """The connection that a stream goes over."""

    @property
    def gone(self) -> bool:
        """Whether nobody listens any more."""

    @property
    def lags(self) -> bool:
        """Whether what was sent before has not been taken yet."""

    def send_piece(self, text: str) -> None:
        """Send a piece."""

    def end_answer(self) -> None:
        """Say that there is no more."""


@dataclass(eq=False)
class Stream:
    """One open stream.

    Attributes:
        feed: what it sends.
        last: the id of the event that it has sent last.
        key_id: the key that opened it, if one was needed.
        good: whether a key still lets anybody in.
    """

    feed: Feed
    last: str
    key_id: str | None
    good: Callable[[str], bool]
    opened: float = field(default_factory=time.monotonic)
    beat: float = field(default_factory=lambda: time.monotonic() + HEARTBEAT)
    seen: int = -1
    looked: float = 0.0
    line: Line | None = None
    bell: Bell | None = None
    holds: ExitStack = field(default_factory=ExitStack)

    def due(self, now: float) -> bool:
        """Whether there may be more for it."""
        assert self.bell is not None
        patience = SOON if now < self.opened + 2 * BLOCK else LOOK
        return self.bell.count > self.seen or now >= self.looked + patience


class Streams:
    """All open streams of one process, in one thread."""

    def __init__(self, tail: Tail, most: int, stopping: threading.Event) -> None:
        """Open none yet.

        Args:
            tail: tells when there is more.
            most: how many may be open.
            stopping: set when the process is to end; all streams end then.
        """
        self.places = Places(most)
        self._tail = tail
        self._stopping = stopping
        self._lock = threading.Lock()
        self._new: list[Stream] = []
        self._open: list[Stream] = []
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._good: dict[str, tuple[float, bool]] = {}

    def begin(self, stream: Stream, line: Line) -> None:
        """Send a stream on over that line; its place is given back when it ends."""
        stream.line = line
        stream.bell = stream.holds.enter_context(self._tail.listening(stream.feed.topic))
        stream.holds.callback(self.places.free)
        with self._lock:
            self._new.append(stream)
            if self._thread is None:
                self._tail.on_ring = self.wake
                self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Look at all streams."""
        self._woken.set()

    def _run(self) -> None:
        while True:
            self._woken.wait(SOON if self._young() else LOOK)
            self._woken.clear()
            with self._lock:
                self._open += self._new
                self._new = []
            try:
                self._pass()
            except Exception:  # the thread has to outlive whatever a feed does
                log.exception("event streams could not be sent on")
            if self._stopping.wait(TOGETHER) and not self._open and not self._new:
                return

    def _young(self) -> bool:
        now = time.monotonic()
        return any(now < stream.opened + 2 * BLOCK for stream in self._open)

    def _pass(self) -> None:
        now = time.monotonic()
        self._end([one for one in self._open if self._left(one)])
        due: dict[tuple[Topic, str], list[Stream]] = {}
        for one in self._open:
            if one.due(now) and one.line is not None and not one.line.lags:
                due.setdefault((one.feed.topic, one.last), []).append(one)
        for group in due.values():
            with self._ending_on_error(group):
                self._send(group, now)
        silent = []
        for one in self._open:
            with self._ending_on_error([one]):
                if not self._beaten(one, now):
                    silent.append(one)
        self._end(silent)

    @contextmanager
    def _ending_on_error(self, group: list[Stream]) -> Iterator[None]:
        """Log an unexpected error and end the streams that it concerns; all others go on."""
        try:
            yield
        except Exception:
            agent_id, _ = group[0].feed.topic
            log.exception("event streams of agent %s end: they cannot be sent on", agent_id)
            self._end(group)

    def _send(self, group: list[Stream], now: float) -> None:
        """Send what is new to streams that have come equally far."""
        seen = [one.bell.count if one.bell else 0 for one in group]
        found, over = more(group[0].feed, group[0].last)
        text = "".join(each.text for each in found)
        for one, count in zip(group, seen, strict=True):
            one.looked = now
            if found and one.line is not None:
                one.last = found[-1].id
                one.line.send_piece(text)
            else:
                one.seen = count
        if found:
            self.wake()  # there may be more than was read
        elif over:
            self._end(group)

    def _left(self, one: Stream) -> bool:
        """Whether nobody listens any more."""
        return self._stopping.is_set() or one.line is None or one.line.gone

    def _beaten(self, one: Stream, now: float) -> bool:
        """Say that the stream lives, when it is time; False when its key is good no longer."""
        if now < one.beat or one.line is None:
            return True
        if not self._allowed(one, now):
            return False
        one.beat = now + HEARTBEAT
        one.line.send_piece(":\n\n")
        return True

    def _allowed(self, one: Stream, now: float) -> bool:
        """Whether the key that opened the stream is still good."""
        if one.key_id is None:
            return True
        checked, good = self._good.get(one.key_id, (float("-inf"), True))
        if now - checked > _GOOD:
            try:
                good = one.good(one.key_id)
            except StoreError:
                return True
            self._good = {k: v for k, v in self._good.items() if now - v[0] <= _GOOD}
            self._good[one.key_id] = (now, good)
        return good

    def _end(self, over: Iterable[Stream]) -> None:
        ended = set(over)
        self._open = [one for one in self._open if one not in ended]
        for one in ended:
            if one.line is not None and not one.line.gone:
                one.line.end_answer()
            one.holds.close()


def more(feed: Feed, last: str) -> tuple[Sequence[Sent], bool]:
    """What came after *last*, and whether that was all."""
    try:
        over = feed.over()  # asked first: what comes in between is read
        return feed.after(last), over
    except StoreError:
        return [], False  # Redis is away; the stream stays, and goes on when it is back
