"""The agent's approvals as its plugins see them."""

from __future__ import annotations

from collections.abc import Collection

from boyd.models import ApprovalItem
from boyd.store.approvals import Approvals


class SeenApprovals:
    """Implements `boyd.plugin.Approvals`; in front of the store, which could also answer them."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    def get(self, approval_id: str) -> ApprovalItem | None:
        """An approval as it is now; None: there is none, or it is not kept any more."""
        return self._approvals.get(approval_id)

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        """Those of them that nobody has answered yet, in one round trip; none for none."""
        return self._approvals.pending_of(list(approval_ids)) if approval_ids else set()
