"""Server-sent events: what grows in Redis, sent on as it comes, for as long as somebody listens."""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator

from flask import Response, request

from boyd.store import is_later
from boyd_api.connections import HAND_OVER, Channel
from boyd_api.problems import Problem, retry_after
from boyd_api.serving import Ask
from boyd_api.streaming import Feed, Line, Sent, Stream, Streams

__all__ = ["HEADERS", "MEDIA_TYPE", "Feed", "Sent", "stream"]

MEDIA_TYPE = "text/event-stream"
#: What a route that streams reads of the request.
HEADERS = {"Last-Event-ID": "The id of the last event that was received: goes on after it."}

#: Milliseconds after which a client should connect again.
RETRY = 2000

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_LARGEST = 2**64


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
    streams = ask.services.streams
    if not streams.places.take():
        detail = "too many event streams are open"
        raise Problem("unavailable", detail, headers=retry_after(5))
    key_id = ask.key.id if ask.key else None
    made = _Answer(streams, Stream(feed, start, key_id, ask.services.store.access.is_good))
    answer = Response(_begun(made, missed), mimetype=MEDIA_TYPE)
    answer.headers["Cache-Control"] = "no-cache"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


def _is_id(text: str) -> bool:
    match = _ID.fullmatch(text)
    return match is not None and all(int(part) < _LARGEST for part in match.groups())


def _begun(made: _Answer, missed: bool) -> Iterator[str]:
    """The beginning of the answer; all of it where the server cannot take it over."""
    opening = f"retry: {RETRY}\n\n" + ("event: missed\ndata: {}\n\n" if missed else "")
    hand_over = request.environ.get(HAND_OVER)
    if hand_over is None:
        return _Pieces(made, opening)
    hand_over(made)
    return iter([opening])


class _Answer:
    """An answer that goes on; implements `connections.Streaming`."""

    def __init__(self, streams: Streams, stream: Stream) -> None:
        self._streams = streams
        self._stream = stream

    def begin(self, channel: Channel | _Pieces) -> None:
        line: Line = channel
        self._streams.begin(self._stream, line)

    def cancel(self) -> None:
        self._streams.places.free()


class _Pieces(Iterator[str]):
    """The pieces of a stream, for a server that asks for them in a thread of its own."""

    def __init__(self, made: _Answer, opening: str) -> None:
        self._made = made
        self._opening: str | None = opening
        self._pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.gone = False
        self.lags = False

    def __next__(self) -> str:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            self._made.begin(self)
            return opening
        piece = self._pieces.get()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Listen no more."""
        if self._opening is not None:
            self._made.cancel()
        self._opening, self.gone = None, True

    def send_piece(self, text: str) -> None:
        self._pieces.put(text)

    def end_answer(self) -> None:
        self._pieces.put(None)
