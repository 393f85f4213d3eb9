"""The stream of hints: which agent had an event of which kind, so that open pages read again.

Every browser has one, however many tabs it has open.
"""

from __future__ import annotations

import json
from collections.abc import Hashable

from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.http.change_watcher import EVERYTHING, Hints
from boyd_api.http.event_streams import EventFeed, ServerSentEvent

pages = Pages()


@pages.get("/stream", scope="kiosk")
def follow(page: PageRequest) -> PageResult:
    """Send hints, as they come, while the session is open."""
    services = page.services
    feed = HintFeed(services.hints, frozenset(page.ctx.agents))
    session_id = page.session.id if page.session else None
    return services.streams.respond(feed, session_id, services.store.login_sessions.is_open)


class HintFeed(EventFeed):
    """The hints about some agents."""

    topic = EVERYTHING

    def __init__(self, hints: Hints, agents: frozenset[str]) -> None:
        self._hints = hints
        self._agents = agents

    @property
    def interval(self) -> float:
        """Seconds between two signs of life: a page that misses two is out of date."""
        return 5.0

    @property
    def group(self) -> Hashable:
        """Readers who may see the same agents share what is read."""
        return (self.topic, self._agents)

    @property
    def sign_of_life(self) -> str:
        """An event that tells whether Redis answers."""
        return f"event: alive\ndata: {json.dumps({'redis': self._hints.answers})}\n\n"

    def newest(self) -> str:
        """The id of the newest hint."""
        return f"{self._hints.newest()}-0"

    def first(self) -> str:
        """The id after which a new page starts."""
        return self.newest()

    def reaches(self, id: str) -> bool:
        """True: pages read everything again after each new connection."""
        return True

    def after(self, id: str) -> list[ServerSentEvent]:
        """One event for each agent and kind that had any since."""
        hints = self._hints.after(int(id.partition("-")[0]))
        latest = {
            (hint.agent_id, hint.kind): hint for hint in hints if hint.agent_id in self._agents
        }
        events = [
            ServerSentEvent(f"{hint.number}-0", "hint", f"{hint.kind} {hint.agent_id}")
            for hint in sorted(latest.values(), key=lambda hint: hint.number)
        ]
        # Those of other agents only advance the position.
        last = f"{hints[-1].number}-0" if hints else id
        return (
            events
            if not hints or (events and events[-1].id == last)
            else [*events, ServerSentEvent(last)]
        )

    def over(self) -> bool:
        """False: it has no end."""
        return False
