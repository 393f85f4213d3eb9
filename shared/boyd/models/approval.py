"""An action that waits for a person."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.action import ActionResult, Autonomy
from boyd.models.base import Confidence, JsonObject, Level, Model, Timestamp
from boyd.models.decision import Decision

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]


class ApprovalExecution(Model):
    """How far the execution of an approved item is; `unknown`: started, and its outcome lost."""

    state: Literal["queued", "running", "succeeded", "failed", "unknown"]
    worker: str | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None


class Proposal(Model):
    """What the loop or a client asks a person to allow; `queue` is where it will be executed."""

    decision: Decision
    action_id: str
    params: JsonObject
    loop_iteration: int
    action_name: str | None = None
    risk: Level | None = None
    confidence: Confidence | None = None
    autonomy: Autonomy | None = None
    situation_summary: str | None = None
    run_ids: list[str] = Field(default_factory=list)
    reason: str | None = None
    queue: str | None = None


class ApprovalItem(Proposal):
    """A proposal with its state.

    `fingerprint` is the digest of action id and canonical params: it finds the pending item of the
    same proposal (A9) and is what the approver approves (A12). `seen` counts the proposals.
    """

    id: str
    agent_id: str
    status: ApprovalStatus
    fingerprint: str
    seen: int = 1
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp | None = None
    execution: ApprovalExecution | None = None
    result: ActionResult | None = None
    note: str | None = None
    acted_by: str | None = None


class ApprovalQueue(Model):
    """What waits, and what was resolved, newest first."""

    pending: list[ApprovalItem]
    history: list[ApprovalItem]
