"""`/agents`: the agents of the deployment."""

from __future__ import annotations

from boyd.models import Model
from boyd.models.responses import AgentList, AgentState
from boyd.store import AgentEntry
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("agents")


class AgentsQuery(Model):
    """Filters the agents: `retired` ones are left out unless they are asked for."""

    retired: bool = False


@routes.get("/agents", scope="read", reach="visible", answers={200: AgentList})
def show(ask: Ask, query: AgentsQuery) -> AgentList:
    """List the agents."""
    fleet = ask.services.store.fleet
    serving = [name for w in fleet.workers() if w.role == "worker" for name in w.agents]
    shown = [e for e in ask.agents.values() if query.retired or e.retired_at is None]
    states = [_state(ask, entry, serving.count(entry.id)) for entry in shown]
    return AgentList(agents=states, frozen=ask.services.store.freezes.everywhere())


def _state(ask: Ask, entry: AgentEntry, workers: int) -> AgentState:
    status = ask.services.store.agent(entry.id).loop.status()
    return AgentState(
        id=entry.id,
        name=entry.name,
        mode=entry.mode,
        loop_interval=entry.loop_interval,
        plugins=entry.plugins,
        phase=status.phase,
        iteration=status.iteration,
        paused=status.paused,
        frozen=status.frozen,
        pending_runs=status.pending_runs,
        pending_approvals=status.pending_approvals,
        workers=workers,
        retired_at=entry.retired_at,
    )
