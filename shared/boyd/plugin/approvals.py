"""What plugins see of the agent's approvals: they look, and answer none."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from boyd.models import ApprovalItem


class Approvals(Protocol):
    """The agent's approvals, those that wait and those of its history."""

    def get(self, approval_id: str) -> ApprovalItem | None:
        """An approval as it is now; None: there is none, or it is not kept any more."""

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        """Those of them that nobody has answered yet, in one round trip; none for none."""
