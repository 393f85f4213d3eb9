"""`/agents`, `/state`, `/observers`, `/workers`, `/events`, and control: pause, freeze etc."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from flask import Response
from pydantic import Field

from boyd.errors import UnreadableRecord
from boyd.health.agent_condition import condition_of
from boyd.health.agent_health import AgentHealth
from boyd.health.reader import read_agents
from boyd.health.snapshot import Roster
from boyd.models import LEVELS, Model, ObserverHealth, OpenAnomaly, from_ms, responses
from boyd.runtime import retire as retire_agent
from boyd.runtime import revoke as revoke_agent
from boyd.store import AgentStore, Topic, reason_text
from boyd_api.http.event_streams import HEADERS, MEDIA_TYPE, EventFeed, ServerSentEvent
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import JsonResponse, Media, Routes
from boyd_api.routes.loop_routes import last_result

agent_routes = Routes("agents")
state_routes = Routes("state")
observer_routes = Routes("observers")
worker_routes = Routes("workers")
event_routes = Routes("events")
control_routes = Routes("control")


#: Open anomalies of an agent that a list shows.
_ANOMALIES = 5


class AgentsQuery(Model):
    """Filters agents: `retired` ones are left out by default."""

    retired: bool = False


class EventsQuery(Model):
    """Tells whether a stream goes on after the events that there are."""

    follow: bool = True


class ControlRequest(Model):
    """Gives the reason for a change; everybody can see it."""

    reason: str | None = Field(default=None, max_length=1000)


@agent_routes.get("/agents", scope="read", reach="visible")
def show(ctx: RequestContext, query: AgentsQuery) -> responses.AgentList:
    """List the agents."""
    store, visible = ctx.services.store, ctx.agents
    roster, agents = read_agents(store.client)
    states = [
        _agent_state(roster, agent)
        for agent in agents
        if agent.entry.id in visible and (query.retired or agent.entry.retired_at is None)
    ]
    return responses.AgentList(agents=states, frozen=store.freezes.everywhere())


def agent_state(ctx: RequestContext) -> responses.AgentState:
    """Read the state of the request's agent. Raises `UnreadableRecord`."""
    name = ctx.agent.entry.id
    roster, agents = read_agents(ctx.services.store.client, name)
    if not agents:
        raise UnreadableRecord(f"the state of agent {name}: run `boyd doctor`")
    return _agent_state(roster, agents[0])


def _agent_state(roster: Roster, agent: AgentHealth) -> responses.AgentState:
    entry, stops, trouble = agent.entry, agent.stops, agent.trouble
    obstacle = entry.obstacle(roster.live()) if entry.retired_at is None else None
    is_due = stops.paused is None and entry.retired_at is None and obstacle is None
    fields = {
        **dict(entry),
        "condition": condition_of(roster, agent),
        "anomalies": _worst_anomalies(agent),
        "open_anomalies": len(trouble.anomalies),
        "phase": agent.progress.phase,
        "iteration": agent.progress.iterations,
        "paused": stops.paused,
        "frozen": stops.frozen,
        "revoked": stops.revoked,
        "pending_runs": agent.backlog.runs,
        "pending_approvals": agent.backlog.approvals,
        "stopped_procedures": agent.backlog.stopped,
        "workers": len(roster.live("worker", entry.id)),
        "obstacle": obstacle.text if obstacle else None,
        "next_start": entry.next_start(from_ms(roster.now * 1000)) if is_due else None,
    }
    return responses.AgentState(
        **{name: fields[name] for name in responses.AgentState.model_fields}
    )


def _worst_anomalies(agent: AgentHealth) -> list[OpenAnomaly]:
    """The worst open anomalies; among equal ones first those about which something was done."""
    trouble, approval = agent.trouble, agent.backlog.next_approval
    targets = {target for _, target in trouble.in_flight} | {hold.target for hold in trouble.holds}

    def rank(anomaly: OpenAnomaly) -> tuple[int, bool, bool]:
        is_asked = approval is not None and approval.target == anomaly.resource
        return -LEVELS.index(anomaly.severity), not is_asked, anomaly.resource not in targets

    return sorted(trouble.anomalies, key=rank)[:_ANOMALIES]


@state_routes.get("/state", scope="read", answers={200: responses.StateResponse}, label="show")
def show_state(ctx: RequestContext) -> JsonResponse:
    """Show the agent, its capabilities and its last iteration."""
    entry, catalog = ctx.agent.entry, ctx.agent.entry.catalog
    last = last_result(ctx.agent.store)
    state = responses.StateResponse(
        agent=responses.Identity(id=entry.id, name=entry.name, model=entry.model),
        capabilities=responses.Capabilities(
            observers=catalog.observers,
            orienters=catalog.orienters,
            decision_strategies=catalog.strategies,
            actions=[action.id for action in catalog.actions],
        ),
        history=responses.LoopHistory(total_loops=last.iteration if last else 0, last_loop=last),
    )
    return JsonResponse(state, nulls=("agent/model", "history/lastLoop"))


@observer_routes.get("/observers", scope="read", label="show")
def show_observers(ctx: RequestContext) -> responses.ObserverList:
    """List the observers with their health."""
    names = ctx.agent.entry.catalog.observers
    health = ctx.agent.store.observers.health(names)
    states = {name: dict(health.get(name) or ObserverHealth()) for name in names}
    observers = [responses.ObserverState(id=name, **state) for name, state in states.items()]
    return responses.ObserverList(observers=observers)


@worker_routes.get("/workers", scope="read", reach="visible", label="show")
def show_workers(ctx: RequestContext) -> responses.WorkerList:
    """List the live workers of the agents that the key may see."""
    workers = ctx.services.store.fleet.workers()
    if ctx.key is None or not ctx.key.agents:
        return responses.WorkerList(workers=workers)
    visible = ctx.agents
    limited = [w.patched({"agents": [a for a in w.agents if a in visible]}) for w in workers]
    return responses.WorkerList(workers=[worker for worker in limited if worker.agents])


@event_routes.get(
    "/events",
    scope="read",
    answers={200: Media(MEDIA_TYPE, "Lines of `id`, `event` and `data`.")},
    headers=HEADERS,
)
def follow(ctx: RequestContext, query: EventsQuery) -> Response:
    """Send the agent's events as they happen, as server-sent events.

    With `follow=false` the stream starts with the oldest event that is kept, unless there is a
    `Last-Event-ID`, and ends after the newest.

    `data` is an event as JSON. A line with a colon is sent every 15 s. The event `missed` says that
    some events after `Last-Event-ID` are not kept any more, or that Redis has lost that event.
    """
    return ctx.stream(_AgentEvents(ctx.agent.store, query.follow))


class _AgentEvents(EventFeed):
    """The events of one agent."""

    def __init__(self, store: AgentStore, follow: bool) -> None:
        self.topic: Topic = (store.agent_id, None)
        self._events = store.events
        self._follow = follow

    @property
    def group(self) -> Hashable:
        return self.topic, self._follow

    def newest(self) -> str:
        return self._events.newest()

    def first(self) -> str:
        return self.newest() if self._follow else "0-0"

    def reaches(self, id: str) -> bool:
        return self._events.reaches(id)

    def after(self, id: str) -> list[ServerSentEvent]:
        return [ServerSentEvent(e.id, e.kind, e.to_json()) for e in self._events.after(id)]

    def over(self) -> bool:
        return not self._follow


@control_routes.post("/pause", scope="admin")
def pause(ctx: RequestContext, body: ControlRequest | None) -> responses.Standing:
    """Pause the agent: it starts no iterations; the one in flight continues to its end."""
    ctx.agent.store.loop_control.pause(_reason(ctx, body), ctx.actor)
    return _standing(ctx)


@control_routes.post("/resume", scope="admin")
def resume(ctx: RequestContext) -> responses.Standing:
    """Resume a paused agent; work that has arrived meanwhile starts an iteration."""
    ctx.agent.launcher.resume(ctx.actor)
    return _standing(ctx)


@control_routes.post("/freeze", scope="admin")
def freeze(ctx: RequestContext, body: ControlRequest | None) -> responses.Standing:
    """Freeze the agent's actions; it still observes, orients and decides."""
    agent_id = ctx.agent.entry.id
    unreached = ctx.services.store.freezes.freeze(_reason(ctx, body), agent_id, ctx.actor)
    return _standing(ctx, unreached)


@control_routes.post("/unfreeze", scope="admin")
def unfreeze(ctx: RequestContext) -> responses.Standing:
    """Lift the freeze of the agent; a deployment-wide freeze stays."""
    unreached = ctx.services.store.freezes.lift(ctx.agent.entry.id, ctx.actor)
    return _standing(ctx, unreached)


@control_routes.post("/freeze-all", scope="admin", reach="deployment")
def freeze_all(ctx: RequestContext, body: ControlRequest | None) -> responses.StandingAll:
    """Freeze the actions of all agents."""
    freezes = ctx.services.store.freezes
    unreached = freezes.freeze(_reason(ctx, body), actor=ctx.actor)
    return responses.StandingAll(frozen=freezes.everywhere(), unreached=unreached or None)


@control_routes.post("/unfreeze-all", scope="admin", reach="deployment")
def unfreeze_all(ctx: RequestContext) -> responses.StandingAll:
    """Lift the deployment-wide freeze; agents that were frozen by name stay frozen."""
    freezes = ctx.services.store.freezes
    unreached = freezes.lift(actor=ctx.actor)
    return responses.StandingAll(frozen=freezes.everywhere(), unreached=unreached or None)


@control_routes.post("/revoke", scope="admin")
def revoke(ctx: RequestContext, body: ControlRequest | None) -> responses.RevokedAgent:
    """Revoke the agent's right to act.

    From then on none of its actions starts, and its model is halted. Its pending approvals are
    withdrawn and its investigations cancelled.
    """
    reason = body.reason if body else None
    return revoke_agent(ctx.services.store, ctx.agent.entry.id, ctx.actor, reason)


@control_routes.post("/restore", scope="admin")
def restore(ctx: RequestContext) -> responses.Standing:
    """Give the agent the right to act again; a freeze stays."""
    unreached = ctx.services.store.freezes.restore(ctx.agent.entry.id, ctx.actor)
    return _standing(ctx, unreached)


@control_routes.post("/retire", scope="admin", problems=["agent-runs"])
def retire(ctx: RequestContext, body: ControlRequest | None) -> responses.Retired:
    """Retire an agent without processes.

    Its pending approvals are withdrawn and its open runs cancelled; its history and its audit
    trail stay. A process that starts the agent again puts it back into service.
    """
    services, entry, reason = ctx.services, ctx.agent.entry, body.reason if body else None
    done = retire_agent(services.store, entry, services.dispatcher, ctx.actor, reason)
    services.forget_agents()
    return done


def _reason(ctx: RequestContext, body: ControlRequest | None) -> str:
    return reason_text(ctx.actor.principal, body.reason if body else None)


def _standing(ctx: RequestContext, unreached: Sequence[str] = ()) -> responses.Standing:
    if unreached:  # its server does not answer, but that of the marks does
        agent_id, freezes = ctx.agent.entry.id, ctx.services.store.freezes
        return responses.Standing(
            agent_id=agent_id,
            frozen=freezes.of(agent_id),
            revoked=freezes.revocation(agent_id),
            unreached=list(unreached),
        )
    status = ctx.agent.store.loop_control.status()
    return responses.Standing(
        agent_id=status.agent_id,
        paused=status.paused,
        frozen=status.frozen,
        revoked=status.revoked,
    )
