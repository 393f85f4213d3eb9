"""`/agents`: the agents of the deployment."""

from __future__ import annotations

from boyd.models import Mode, Model, Phase
from boyd.store import AgentEntry
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("agents")


class AgentState(Model):
    """An agent and how it stands; `workers` counts the live ones, `loopInterval` is in seconds."""

    id: str
    name: str
    mode: Mode
    loop_interval: float
    plugins: list[str]
    phase: Phase
    iteration: int
    paused: str | None = None
    frozen: str | None = None
    pending_runs: int
    pending_approvals: int
    workers: int


class AgentList(Model):
    """The agents that the key may see; `frozen` says why acting is frozen everywhere, if it is."""

    agents: list[AgentState]
    frozen: str | None = None


@routes.get("/agents", scope="read", reach="visible", answers={200: AgentList})
def show(ask: Ask) -> AgentList:
    """List the agents."""
    fleet = ask.services.store.fleet
    serving = [name for w in fleet.workers() if w.role == "worker" for name in w.agents]
    states = [_state(ask, entry, serving.count(entry.id)) for entry in ask.agents.values()]
    return AgentList(agents=states, frozen=fleet.frozen())


def _state(ask: Ask, entry: AgentEntry, workers: int) -> AgentState:
    status = ask.services.store.agent(entry.id).iterations.status()
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
    )
