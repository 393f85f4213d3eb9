"""Queues and answers approvals: for an agent's workers, and as a library for other programs."""

from __future__ import annotations

from boyd.runtime.approvals.approval_library import (
    ApprovalSigner,
    enqueue_approval,
    get_approval_queue,
    purge_expired_approvals,
    resolve_approval,
)

__all__ = [
    "ApprovalSigner",
    "enqueue_approval",
    "get_approval_queue",
    "purge_expired_approvals",
    "resolve_approval",
]
