"""`/state`: who the agent is, what it can do, what it did last."""

from __future__ import annotations

from boyd.models import LoopResult, Model
from boyd_api.past import last_result
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask

routes = Routes("state")


class Identity(Model):
    """Who the agent is; `model` is that of its language model, if it has one."""

    id: str
    name: str
    model: str | None = None


class Capabilities(Model):
    """The ids of the agent's parts."""

    observers: list[str]
    orienters: list[str]
    decision_strategies: list[str]
    actions: list[str]


class LoopHistory(Model):
    """How many iterations have ended, and the last one in full."""

    total_loops: int
    last_loop: LoopResult | None = None


class State(Model):
    """The agent at a glance."""

    agent: Identity
    capabilities: Capabilities
    history: LoopHistory


@routes.get("/state", scope="read", answers={200: State})
def show(ask: Ask) -> Answer:
    """Show who the agent is, what it can do, and its last iteration."""
    entry, catalog = ask.agent.entry, ask.agent.entry.catalog
    last = last_result(ask.agent.store)
    state = State(
        agent=Identity(id=entry.id, name=entry.name),
        capabilities=Capabilities(
            observers=catalog.observers,
            orienters=catalog.orienters,
            decision_strategies=catalog.strategies,
            actions=[action.id for action in catalog.actions],
        ),
        history=LoopHistory(total_loops=last.iteration if last else 0, last_loop=last),
    )
    return Answer(state, nulls=True)
