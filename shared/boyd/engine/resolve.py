"""Resolves approvals: approve, deny, withdraw, from any process (A3 to A7, A10)."""

from __future__ import annotations

from boyd.engine.courier import Courier
from boyd.models import ApprovalItem
from boyd.store import AgentStore, Retention


class Resolver:
    """Resolves one agent's approvals; needs no plugins.

    Each call answers with the item, or None when it was not pending any more: then `get` tells
    what it is now, and who resolved it.
    """

    def __init__(self, store: AgentStore, courier: Courier, retention: Retention) -> None:
        self._store = store
        self._courier = courier
        self._retention = retention

    def approve(self, approval_id: str, by: str, note: str | None = None) -> ApprovalItem | None:
        """Approve: from here on a worker executes the action, whatever becomes of the caller."""
        item = self._store.approvals.resolve(
            approval_id, "approved", self._retention, note=note, acted_by=by
        )
        if item is not None:
            self._courier.execute(self._store.agent_id, approval_id, 1, item.queue)
        return item

    def deny(self, approval_id: str, by: str, note: str | None = None) -> ApprovalItem | None:
        """Deny: nothing runs."""
        return self._store.approvals.resolve(
            approval_id, "denied", self._retention, note=note, acted_by=by
        )

    def withdraw(self, approval_id: str, by: str, note: str | None = None) -> ApprovalItem | None:
        """Withdraw: it is not wanted any more."""
        return self._store.approvals.resolve(
            approval_id, "withdrawn", self._retention, note=note, acted_by=by
        )
