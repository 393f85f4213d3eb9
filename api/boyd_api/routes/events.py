"""`/events`: what happens to the agent, as it happens (server-sent events)."""

from __future__ import annotations

from flask import Response

from boyd.store import AgentStore, Topic
from boyd_api import sse
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask

routes = Routes("events")


@routes.get(
    "/events",
    scope="read",
    answers={200: Media(sse.MEDIA_TYPE, "Lines of `id`, `event` and `data`, without end.")},
    headers=sse.HEADERS,
)
def follow(ask: Ask) -> Response:
    """Send the agent's events as they happen, as server-sent events.

    `data` is an event as JSON. A line with a colon is sent every 15 s. The event `missed` says that
    some after `Last-Event-ID` are kept no longer, or that Redis has lost that one itself.
    """
    return sse.stream(ask, _Events(ask.agent.store))


class _Events:
    """The events of one agent; implements `sse.Feed`."""

    def __init__(self, store: AgentStore) -> None:
        self.topic: Topic = (store.agent_id, None)
        self._events = store.events

    def newest(self) -> str:
        return self._events.newest()

    def first(self) -> str:
        return self.newest()

    def reaches(self, id: str) -> bool:
        return self._events.reaches(id)

    def after(self, id: str) -> list[sse.Sent]:
        return [sse.Sent(one.id, one.kind, one.to_json()) for one in self._events.after(id)]

    def over(self) -> bool:
        return False
