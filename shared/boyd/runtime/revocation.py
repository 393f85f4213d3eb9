"""Revokes an agent's right to act, from any process; needs no plugins and no worker."""

from __future__ import annotations

from boyd.models import Actor
from boyd.models.responses import RevokedAgent
from boyd.runtime.ending import pending_approvals
from boyd.store import AgentStore, ItemAnswer, Store, reason_text

#: The most investigations that are cancelled at once; further ones end with their next step.
_MOST = 10_000
_NOTE = "the agent's right to act is revoked"


def revoke(store: Store, agent_id: str, actor: Actor, reason: str | None = None) -> RevokedAgent:
    """Revoke an agent's right to act, withdraw its approvals and cancel its investigations.

    The right ends first, in one step: what comes after cannot let anything through. Repeating it
    completes it.

    Raises:
        StoreError: Redis did not confirm it.
    """
    store.freezes.revoke(agent_id, reason_text(actor.principal, reason), actor)
    agent = store.agent(agent_id)
    return RevokedAgent(
        agent_id=agent_id,
        revoked=agent.loop_control.status().revoked,
        approvals=_withdraw_all(agent, actor),
        investigations=_cancel_all(agent, actor),
    )


def _withdraw_all(agent: AgentStore, actor: Actor) -> int:
    approvals, retention = agent.approvals, agent.retention()
    answer = ItemAnswer("withdrawn", actor, _NOTE)
    outcomes = [
        approvals.resolve(item.id, answer, item.required, retention)
        for item in pending_approvals(agent)
    ]
    return sum(outcome.counts for outcome in outcomes)


def _cancel_all(agent: AgentStore, actor: Actor) -> int:
    investigations = agent.investigations
    return sum(investigations.cancel(id, actor) == "ok" for id in investigations.open(_MOST))
