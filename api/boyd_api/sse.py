"""Server-sent events: what grows in Redis, sent on as it comes, for as long as somebody listens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from flask import Response, request

from boyd.errors import StoreError
from boyd.store import Topic, is_later
from boyd_api.problems import Problem, retry_after
from boyd_api.serving import Ask
from boyd_api.tail import BLOCK

MEDIA_TYPE = "text/event-stream"
#: What a route that streams reads of the request.
HEADERS = {"Last-Event-ID": "The id of the last event that was received: goes on after it."}

#: Seconds between two signs of life, and between two looks whether anybody still listens.
HEARTBEAT = 15.0
LOOK = 1.0
#: Seconds between two looks at the beginning, until the tail follows what is listened to.
SOON = 0.1
#: Milliseconds after which a client should connect again.
RETRY = 2000

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_LARGEST = 2**64


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


def stream(ask: Ask, feed: Feed) -> Response:
    """Send *feed* from `Last-Event-ID` on, until it is over or nobody listens any more.

    Raises:
        Problem: the id is none, or too many streams are open.
    """
    sent = request.headers.get("Last-Event-ID")
    if sent is not None and not _is_id(sent):
        raise Problem("bad-request", "Last-Event-ID is not the id of an event")
    missed = sent is not None and not feed.reaches(sent)
    start = feed.first() if sent is None else sent
    if missed:
        # What Redis has lost cannot be gone on from: events to come may be before it.
        newest = feed.newest()
        start = newest if is_later(start, newest) else start
    if request.method == "HEAD":
        return Response(mimetype=MEDIA_TYPE)
    if not ask.services.streams.take():
        detail = "too many event streams are open"
        raise Problem("unavailable", detail, headers=retry_after(5))
    answer = Response(_lines(ask, feed, start, missed), mimetype=MEDIA_TYPE)
    answer.call_on_close(ask.services.streams.free)
    answer.headers["Cache-Control"] = "no-cache"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


def _is_id(text: str) -> bool:
    match = _ID.fullmatch(text)
    return match is not None and all(int(part) < _LARGEST for part in match.groups())


def _lines(ask: Ask, feed: Feed, last: str, missed: bool) -> Iterator[str]:
    began = time.monotonic()
    beat = began + HEARTBEAT
    yield f"retry: {RETRY}\n\n"
    if missed:
        yield "event: missed\ndata: {}\n\n"
    with ask.services.tail.listening(feed.topic) as bell:
        while not ask.services.stopping.is_set() and not ask.gone():
            seen, now = bell.count, time.monotonic()
            if now >= beat:
                if not _still_allowed(ask):
                    return
                beat = now + HEARTBEAT
                yield ":\n\n"
            found, over = _more(feed, last)
            if found:
                last = found[-1].id
                yield "".join(one.text for one in found)
            elif over:
                return
            else:
                bell.wait(seen, SOON if now < began + 2 * BLOCK else LOOK)


def _more(feed: Feed, last: str) -> tuple[Sequence[Sent], bool]:
    """What came after *last*, and whether that was all."""
    try:
        over = feed.over()  # asked first: what comes in between is read
        return feed.after(last), over
    except StoreError:
        return [], False  # Redis is away; the stream stays, and goes on when it is back


def _still_allowed(ask: Ask) -> bool:
    """Whether the key that opened the stream is still good."""
    if ask.key is None:
        return True
    try:
        return ask.services.store.access.is_good(ask.key.id)
    except StoreError:
        return True
