"""All agents with their states."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.models import responses
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.console.rendering import render_page
from boyd_api.routes import agent_routes

pages = Pages()


@dataclass(frozen=True)
class AgentRow:
    """An agent and its state: the word, and the shape that goes with it."""

    agent: responses.AgentState
    shape: str
    word: str


@pages.get("/agents")
def agents(page: PageRequest) -> PageResult:
    """Show all agents, those that were retired last."""
    listing = agent_routes.show(page.ctx, agent_routes.AgentsQuery(retired=True))
    rows = [AgentRow(state, *_state(state)) for state in listing.agents]
    rows.sort(key=lambda row: (row.agent.retired_at is not None, row.agent.id))
    return render_page(page, "agents.html", rows=rows)


def _state(agent: responses.AgentState) -> tuple[str, str]:
    """The shape and the word of what matters most."""
    if agent.retired_at is not None:
        return "off", "retired"
    if agent.obstacle is not None:
        return "failed", "does not work"
    if agent.revoked is not None:
        return "failed", "revoked"
    if agent.frozen is not None:
        return "frozen", "frozen"
    if agent.paused is not None:
        return "paused", "paused"
    return "ok", "running"
