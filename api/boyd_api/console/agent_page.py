"""The page of one agent."""

from __future__ import annotations

from boyd_api.console.pages import PageRequest, PageResult, Pages

pages = Pages()


@pages.get("/agents/<agent>")
def agent(page: PageRequest) -> PageResult:
    """Show what the agent does now, and what it has done last."""
    status = page.ctx.agent.store.loop.status()
    return page.render("agent.html", entry=page.ctx.agent.entry, status=status)
