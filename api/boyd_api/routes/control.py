"""`/pause`, `/resume`, `/freeze`, `/unfreeze`, `/retire`: steer an agent, or all acting."""

from __future__ import annotations

from pydantic import Field

from boyd.models import Model
from boyd.models.responses import Retired, Standing, StandingAll
from boyd.runtime import retire as retire_agent
from boyd.store import reason_text
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("control")


class Reason(Model):
    """Why; shown to everybody who looks."""

    reason: str | None = Field(default=None, max_length=1000)


@routes.post("/pause", scope="admin", answers={200: Standing}, idempotent=True)
def pause(ask: Ask, body: Reason | None) -> Standing:
    """Keep the agent from starting iterations; the one in flight goes on to its end."""
    ask.agent.store.loop.pause(_reason(ask, body), ask.actor)
    return _standing(ask)


@routes.post("/resume", scope="admin", answers={200: Standing}, idempotent=True)
def resume(ask: Ask) -> Standing:
    """Let a paused agent go on; work that has arrived meanwhile starts an iteration."""
    ask.agent.launcher.resume(ask.actor)
    return _standing(ask)


@routes.post("/freeze", scope="admin", answers={200: Standing}, idempotent=True)
def freeze(ask: Ask, body: Reason | None) -> Standing:
    """Stop the agent's acting; observing, orienting and deciding go on."""
    ask.services.store.freezes.freeze(_reason(ask, body), ask.agent.entry.id, ask.actor)
    return _standing(ask)


@routes.post("/unfreeze", scope="admin", answers={200: Standing}, idempotent=True)
def unfreeze(ask: Ask) -> Standing:
    """Let the agent act again, unless acting is frozen everywhere."""
    ask.services.store.freezes.lift(ask.agent.entry.id, ask.actor)
    return _standing(ask)


@routes.post(
    "/freeze-all", scope="admin", reach="deployment", answers={200: StandingAll}, idempotent=True
)
def freeze_all(ask: Ask, body: Reason | None) -> StandingAll:
    """Stop all acting of all agents."""
    ask.services.store.freezes.freeze(_reason(ask, body), actor=ask.actor)
    return StandingAll(frozen=ask.services.store.freezes.everywhere())


@routes.post(
    "/unfreeze-all", scope="admin", reach="deployment", answers={200: StandingAll}, idempotent=True
)
def unfreeze_all(ask: Ask) -> StandingAll:
    """Lift the deployment-wide freeze; agents that were frozen by name stay frozen."""
    ask.services.store.freezes.lift(actor=ask.actor)
    return StandingAll(frozen=ask.services.store.freezes.everywhere())


@routes.post(
    "/retire", scope="admin", answers={200: Retired}, problems=["agent-runs"], idempotent=True
)
def retire(ask: Ask, body: Reason | None) -> Retired:
    """Take an agent that nobody runs out of service.

    Its pending approvals are withdrawn and its open runs cancelled; its history and its audit
    trail stay. A process that starts the agent again puts it back into service.
    """
    services = ask.services
    reason = body.reason if body else None
    done = retire_agent(services.store, ask.agent.entry, services.dispatcher, ask.actor, reason)
    services.forget_agents()
    return done


def _reason(ask: Ask, body: Reason | None) -> str:
    return reason_text(ask.actor.principal, body.reason if body else None)


def _standing(ask: Ask) -> Standing:
    status = ask.agent.store.loop.status()
    return Standing(agent_id=status.agent_id, paused=status.paused, frozen=status.frozen)
