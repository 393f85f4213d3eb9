"""`/observers`: the agent's observers and how they do."""

from __future__ import annotations

from boyd.models import ObserverHealth
from boyd.models.responses import ObserverList, ObserverState
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("observers")


@routes.get("/observers", scope="read", answers={200: ObserverList})
def show(ask: Ask) -> ObserverList:
    """List the observers with their health."""
    names = ask.agent.entry.catalog.observers
    health = ask.agent.store.observers.health(names)
    found = [ObserverState(id=name, **dict(health.get(name) or ObserverHealth())) for name in names]
    return ObserverList(observers=found)
