"""The stream that tells open pages what has changed, so that they read it again.

Every browser has one, however many tabs it has open.
"""

from __future__ import annotations

from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.http.hints import HintFeed

pages = Pages()


@pages.get("/stream")
def follow(page: PageRequest) -> PageResult:
    """Send hints, as they come, while the session is open."""
    services = page.services
    feed = HintFeed(services.hints, frozenset(page.ctx.agents))
    session_id = page.session.id if page.session else None
    return services.streams.respond(feed, session_id, services.store.login_sessions.is_open)
