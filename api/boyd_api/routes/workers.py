"""`/workers`: the processes that live."""

from __future__ import annotations

from boyd.models.responses import WorkerList
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("workers")


@routes.get("/workers", scope="read", reach="visible", answers={200: WorkerList})
def show(ask: Ask) -> WorkerList:
    """List the live workers of the agents that the key may see."""
    found = ask.services.store.fleet.workers()
    if ask.key is None or not ask.key.agents:
        return WorkerList(workers=found)
    seen = ask.agents
    limited = [w.patched({"agents": [a for a in w.agents if a in seen]}) for w in found]
    return WorkerList(workers=[worker for worker in limited if worker.agents])
