"""`/state`: who the agent is, what it can do, what it did last."""

from __future__ import annotations

from boyd.models.responses import Capabilities, Identity, LoopHistory, StateResponse
from boyd_api.past import last_result
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask

routes = Routes("state")


@routes.get("/state", scope="read", answers={200: StateResponse})
def show(ask: Ask) -> Answer:
    """Show who the agent is, what it can do, and its last iteration."""
    entry, catalog = ask.agent.entry, ask.agent.entry.catalog
    last = last_result(ask.agent.store)
    state = StateResponse(
        agent=Identity(id=entry.id, name=entry.name, model=entry.model),
        capabilities=Capabilities(
            observers=catalog.observers,
            orienters=catalog.orienters,
            decision_strategies=catalog.strategies,
            actions=[action.id for action in catalog.actions],
        ),
        history=LoopHistory(total_loops=last.iteration if last else 0, last_loop=last),
    )
    return Answer(state, nulls=("agent/model", "history/lastLoop"))
