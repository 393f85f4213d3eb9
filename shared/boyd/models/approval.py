"""An action that waits for a person."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.action import ActionResult, Autonomy, JobExecution
from boyd.models.actor import Actor
from boyd.models.base import Confidence, JsonObject, Level, Model, Timestamp
from boyd.models.decision import Decision

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]


class ApprovalPolicy(Model):
    """What it takes to approve an action.

    Attributes:
        min_approvals: how many principals have to approve.
        groups: only members of one of these groups may; empty: any.
        principals: only these may, besides the groups; empty: any.
        allow_requester: whether who asked for the action may approve it.
        require_note: whether an approval has to say why.
        person: whether only a person may, not a program; always so for `human-only` actions.
    """

    min_approvals: int = Field(default=1, ge=1, le=20)
    groups: list[str] = Field(default_factory=list)
    principals: list[str] = Field(default_factory=list)
    allow_requester: bool = False
    require_note: bool = False
    person: bool = False

    @property
    def words(self) -> str:
        """The policy as people read it."""
        who = "a person" if self.person else "anybody"
        among = [f"of group {name}" for name in self.groups] + self.principals
        parts = [
            f"{self.min_approvals} approvals" if self.min_approvals > 1 else "one approval",
            f"by {who}" + (f" ({' or '.join(among)})" if among else ""),
            "" if self.allow_requester else "not by who asked for it",
            "with a note" if self.require_note else "",
        ]
        return ", ".join(filter(None, parts))

    @property
    def impossible(self) -> str | None:
        """Why it can never be met; None: it can."""
        able = len(set(self.principals))
        if self.groups or not able or able >= self.min_approvals:
            return None
        may = "1 principal" if able == 1 else f"{able} principals"
        return f"it takes {self.min_approvals} approvals and only {may} may give them"

    def admits(self, actor: Actor) -> bool:
        """Whether *actor* is among those who may approve."""
        return self._admits(actor.principal, actor.person, actor.groups)

    def satisfied_by(self, votes: list[Vote]) -> bool:
        """Whether those *votes* are enough; each principal has one."""
        counted = [vote for vote in votes if self._admits(vote.by, vote.person, vote.groups)]
        return len(counted) >= self.min_approvals

    def _admits(self, principal: str, person: bool, groups: list[str]) -> bool:
        if self.person and not person:
            return False
        if not self.groups and not self.principals:
            return True
        return principal in self.principals or not set(self.groups).isdisjoint(groups)


class JoinedRequest(Model):
    """Somebody who asked for an action that waited already, and why."""

    by: str
    at: Timestamp
    rationale: str


class Vote(Model):
    """An approval of one principal; `claims` is who the caller said to act for."""

    by: str
    person: bool = False
    groups: list[str] = Field(default_factory=list)
    at: Timestamp
    note: str | None = None
    key: str | None = None
    claims: str | None = None


class Proposal(Model):
    """What the loop or a client asks a person to allow.

    Attributes:
        queue: where it will be executed.
        reason: why it needs an approval.
        required: what it takes to approve it.
        requested_by: the principals who asked for it; empty: the agent did by itself.
        undoes: the execution that it rolls back; None: it executes the action.
        undone: the result of that execution.
        wakes: the jobs that wait for it, as in `investigation:<id>`.
        bound_to: the one execution that it is for; none: whoever proposes the same joins it.
        preview: what the action's dry run says.
    """

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
    required: ApprovalPolicy = ApprovalPolicy()
    requested_by: list[str] = Field(default_factory=list)
    undoes: str | None = None
    undone: ActionResult | None = None
    wakes: list[str] = Field(default_factory=list)
    bound_to: str | None = None
    preview: ActionResult | None = None


class ApprovalItem(Proposal):
    """A proposal with its state.

    `fingerprint` is the digest of action id and canonical params: it finds the pending item of the
    same proposal and is what the approver approves. `seen` counts the proposals,
    `version` what happened to the item besides: votes, its end, its execution. `acted_by` is the
    authenticated principal that resolved it, and `claimed_by` whom the caller said to act for, if
    that is somebody else. `title` says what approving it does: a roll-back undoes something.
    `asked` are those who asked for the same later. `preview_at` is when the dry run said what
    `preview` has, and `first_preview` is what it said first, once that was something else.
    """

    id: str
    title: str = ""
    agent_id: str
    status: ApprovalStatus
    fingerprint: str
    seen: int = 1
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp | None = None
    preview_at: Timestamp | None = None
    first_preview: ActionResult | None = None
    version: int = 1
    asked: list[JoinedRequest] = Field(default_factory=list)
    approvals: list[Vote] = Field(default_factory=list)
    execution: JobExecution | None = None
    result: ActionResult | None = None
    note: str | None = None
    acted_by: str | None = None
    claimed_by: str | None = None

    @property
    def askers(self) -> list[str]:
        """Those who asked for the action, as people read them."""
        agent = f"agent:{self.agent_id}"
        named = ["the agent" if name == agent else name for name in self.requested_by]
        return named or ["the agent"]


class ApprovalQueue(Model):
    """What waits, and what was resolved, newest first; `next_cursor` when there is more."""

    pending: list[ApprovalItem]
    history: list[ApprovalItem]
    next_cursor: str | None = None
