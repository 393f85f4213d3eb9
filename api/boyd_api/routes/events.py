"""`/events`: what happens to the agent, as it happens (server-sent events)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from flask import Response, request

from boyd.errors import StoreError
from boyd.models import Event
from boyd.store import AgentEvents, is_later
from boyd_api.problems import Problem, retry_after
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask

routes = Routes("events")

#: Seconds between two signs of life, and between two looks whether anybody still listens.
HEARTBEAT = 15.0
LOOK = 1.0
#: Milliseconds after which a client should connect again.
RETRY = 2000

_ID = re.compile(r"(\d{1,20})-(\d{1,20})")
_LARGEST = 2**64


@routes.get(
    "/events",
    scope="read",
    answers={200: Media("text/event-stream", "Lines of `id`, `event` and `data`, without end.")},
    headers={"Last-Event-ID": "The id of the last event that was received: goes on after it."},
)
def follow(ask: Ask) -> Response:
    """Send the agent's events as they happen, as server-sent events.

    `data` is an event as JSON. A line with a colon is sent every 15 s. The event `missed` says that
    some after `Last-Event-ID` are kept no longer, or that Redis has lost that one itself.
    """
    sent = request.headers.get("Last-Event-ID")
    if sent is not None and not _is_id(sent):
        raise Problem("bad-request", "Last-Event-ID is not the id of an event")
    events = ask.agent.store.events
    missed = sent is not None and not events.reaches(sent)
    newest = events.newest()
    # What Redis has lost cannot be gone on from: events to come may be before it.
    start = newest if sent is None or is_later(sent, newest) else sent
    if request.method == "HEAD":
        return Response(mimetype="text/event-stream")
    if not ask.services.streams.take():
        detail = "too many event streams are open"
        raise Problem("unavailable", detail, headers=retry_after(5))
    answer = Response(_lines(ask, events, start, missed), mimetype="text/event-stream")
    answer.call_on_close(ask.services.streams.free)
    answer.headers["Cache-Control"] = "no-cache"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


def _is_id(text: str) -> bool:
    match = _ID.fullmatch(text)
    return match is not None and all(int(part) < _LARGEST for part in match.groups())


def _lines(ask: Ask, events: AgentEvents, last: str, missed: bool) -> Iterator[str]:
    tail = ask.services.tail
    tail.start()
    beat = time.monotonic() + HEARTBEAT
    yield f"retry: {RETRY}\n\n"
    if missed:
        yield "event: missed\ndata: {}\n\n"
    while not ask.services.stopping.is_set() and not ask.gone():
        seen = tail.count
        if time.monotonic() >= beat:
            if not _still_allowed(ask):
                return
            beat = time.monotonic() + HEARTBEAT
            yield ":\n\n"
        found = _after(events, last)
        if found:
            last = found[-1].id
            yield "".join(map(_text, found))
        else:
            tail.wait(seen, LOOK)


def _after(events: AgentEvents, last: str) -> list[Event]:
    try:
        return events.after(last)
    except StoreError:
        return []  # Redis is away; the stream stays, and goes on when it is back


def _still_allowed(ask: Ask) -> bool:
    """Whether the key that opened the stream is still good."""
    if ask.key is None:
        return True
    try:
        return ask.services.store.access.is_good(ask.key.id)
    except StoreError:
        return True


def _text(event: Event) -> str:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {event.to_json()}\n\n"
