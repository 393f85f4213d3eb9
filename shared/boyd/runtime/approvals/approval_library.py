"""The approval queue as a library, for programs that queue or resolve approvals.

    from boyd.runtime.approvals import enqueue_approval, get_approval_queue
    from boyd.store import Store, connect

    store = Store(connect("redis://localhost")).agent("watch")
    item = enqueue_approval(store, proposal, ttl=600)
    waiting = get_approval_queue(store).pending

The functions need no worker; a worker executes approved actions as soon as one runs. Where workers
have an `approval_secret`, pass `signer=ApprovalSigner(secret)` when you approve.
"""

from __future__ import annotations

import getpass
from typing import Literal

from boyd.errors import ActionsFrozen, StoreError
from boyd.models import (
    ActionResult,
    Actor,
    ApprovalItem,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalQueue,
    Proposal,
    Vote,
    utc_now,
)
from boyd.security.approval_signatures import ApprovalSigner
from boyd.store import AgentStore, ItemAnswer

__all__ = [
    "ApprovalSigner",
    "enqueue_approval",
    "get_approval_queue",
    "purge_expired_approvals",
    "resolve_approval",
]


def get_approval_queue(store: AgentStore, limit: int = 500) -> ApprovalQueue:
    """Pending approvals by deadline, and resolved ones, newest first; up to *limit* each."""
    return store.approvals.page(limit)


def enqueue_approval(
    store: AgentStore, proposal: Proposal, ttl: float | Literal["usual"] | None = "usual"
) -> ApprovalItem:
    """Queue *proposal*, and return the new item, or the pending one if it is the same.

    It expires after *ttl* seconds, never with None, and as the agent's settings say with `usual`.

    Raises:
        StoreError: its runs were cancelled.
        AgentRevoked: the agent's right to act is revoked.
    """
    retention = store.retention()
    if ttl != "usual":
        retention = retention.patched({"ttl": ttl})
    approval_id = store.approvals.enqueue(proposal, retention)
    item = store.approvals.get(approval_id) if approval_id else None
    if item is None:
        raise StoreError("this approval is no longer needed: its runs were cancelled")
    return item


def resolve_approval(
    store: AgentStore,
    approval_id: str,
    status: Literal["approved", "denied", "withdrawn"],
    *,
    note: str | None = None,
    acted_by: Actor | None = None,
    result: ActionResult | None = None,
    signer: ApprovalSigner | None = None,
) -> ApprovalItem | None:
    """Resolve a pending item regardless of its policy; return None if it is not pending.

    A worker executes an approved item whose policy this one approval satisfies, unless the caller
    did and passes the *result*. Workers with an approval secret or key, as those of `boyd up`,
    execute only what *signer* has signed, `ApprovalSigner(secret)`. *acted_by* defaults to the user
    of this process.

    Raises:
        ActionsFrozen: it would be approved while the agent is frozen or its right to act revoked.
    """
    actor = acted_by or Actor(principal=f"library:{getpass.getuser()}")
    item = store.approvals.get(approval_id) if signer and status == "approved" else None
    vote = signer.sign(item, Vote.of(actor, note, utc_now())) if signer and item else None
    answer = ItemAnswer(status, actor, note, result=result, vote=vote)
    policy = ApprovalPolicy(allow_requester=True)
    resolution = store.approvals.resolve(approval_id, answer, policy, store.retention())
    if resolution.outcome == ApprovalOutcome.FROZEN:
        raise ActionsFrozen(resolution.reason)
    return resolution.item if resolution.counts else None


def purge_expired_approvals(store: AgentStore) -> list[ApprovalItem]:
    """Move overdue items to history and return them; the Redis server's clock decides."""
    return store.approvals.expire(store.retention())
