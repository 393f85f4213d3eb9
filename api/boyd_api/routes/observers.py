"""`/observers`: the agent's observers and how they do."""

from __future__ import annotations

from boyd.models import Model, ObserverHealth
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("observers")


class ObserverState(ObserverHealth):
    """An observer and how it has been doing."""

    id: str


class ObserverList(Model):
    """All observers of the agent."""

    observers: list[ObserverState]


@routes.get("/observers", scope="read", answers={200: ObserverList})
def show(ask: Ask) -> ObserverList:
    """List the observers with their health."""
    names = ask.agent.entry.catalog.observers
    health = ask.agent.store.iterations.health(names)
    found = [ObserverState(id=name, **dict(health.get(name) or ObserverHealth())) for name in names]
    return ObserverList(observers=found)
