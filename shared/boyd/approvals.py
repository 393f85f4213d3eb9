"""The approval queue as a library: for programs beside Boyd that put items in or resolve them.

    from boyd.approvals import enqueue_approval, get_approval_queue
    from boyd.store import Store, connect

    store = Store(connect("redis://localhost")).agent("watch")
    item = enqueue_approval(store, proposal, ttl=600)
    waiting = get_approval_queue(store).pending

These are the functions of the reference's approval page, on the store of an agent. They need no
worker; what is approved is executed by one as soon as one is there.
"""

from __future__ import annotations

import getpass
from typing import Literal

from boyd.errors import StoreError
from boyd.models import ActionResult, Actor, ApprovalItem, ApprovalPolicy, ApprovalQueue, Proposal
from boyd.store import AgentStore

__all__ = [
    "enqueue_approval",
    "get_approval_queue",
    "purge_expired_approvals",
    "resolve_approval",
]


def get_approval_queue(store: AgentStore, limit: int = 500) -> ApprovalQueue:
    """What waits, first deadline first, and what was resolved, last first; up to *limit* each."""
    return store.approvals.page(limit)


def enqueue_approval(
    store: AgentStore, proposal: Proposal, ttl: float | Literal["usual"] | None = "usual"
) -> ApprovalItem:
    """Queue *proposal*; the item, or the pending one that is the same.

    Args:
        store: the agent's.
        proposal: what a person is to allow.
        ttl: seconds until it expires; None: never; `usual`: as the agent's settings have it.

    Raises:
        StoreError: the runs that it is for were cancelled meanwhile.
    """
    retention = store.retention()
    if ttl != "usual":
        retention = retention.patched({"ttl": ttl})
    approval_id = store.approvals.enqueue(proposal, retention)
    item = store.approvals.get(approval_id) if approval_id else None
    if item is None:
        raise StoreError("nobody wants this approval any more: its runs were cancelled")
    return item


def resolve_approval(
    store: AgentStore,
    approval_id: str,
    status: Literal["approved", "denied", "withdrawn"],
    *,
    note: str | None = None,
    acted_by: Actor | None = None,
    result: ActionResult | None = None,
) -> ApprovalItem | None:
    """Resolve a pending item, whatever its policy asks for; None when it is not pending.

    Args:
        store: the agent's.
        approval_id: the item's.
        status: what it becomes; an approved one is executed by a worker, unless a *result* says
            that this is done.
        note: why.
        acted_by: who, for the item and the audit; the user of this process unless given.
        result: what came of the action, if the caller has executed it.
    """
    actor = acted_by or Actor(principal=f"library:{getpass.getuser()}")
    said = store.approvals.resolve(
        approval_id,
        status,
        actor,
        store.retention(),
        note=note,
        policy=ApprovalPolicy(allow_requester=True),
        result=result,
    )
    return store.approvals.get(approval_id) if said.outcome == "resolved" else None


def purge_expired_approvals(store: AgentStore) -> list[ApprovalItem]:
    """Move what has passed its deadline to history; what expired.

    Deadlines are judged by the Redis server's clock.
    """
    return store.approvals.expire(store.retention())
