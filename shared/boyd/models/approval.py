"""An action that waits for a person."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field

from boyd import naming
from boyd.models.action import ActionResult, Autonomy, JobExecution, Reversibility
from boyd.models.actor import Actor
from boyd.models.base import LEVELS, Confidence, JsonObject, Level, Model, Timestamp
from boyd.models.decision import Decision
from boyd.models.effect import EffectVerification, Hold, TrackRecord
from boyd.models.notification import Acknowledgement, NotificationRecord
from boyd.models.procedure import ProcedureStep
from boyd.models.situation import Situation

#: The risks at which a mistake is not bearable.
_RISKY = LEVELS[LEVELS.index("high") :]

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]


class ApprovalOutcome(StrEnum):
    """The outcome of an answer to an approval, in the words of the script and the HTTP API."""

    APPROVED = "approved"
    DENIED = "denied"
    WITHDRAWN = "withdrawn"
    #: The approval counts, and the policy requires further ones.
    COUNTED = "counted"
    #: It was resolved before, has expired, or does not exist.
    NOT_PENDING = "not-pending"
    #: The item is not at the version that the answer named.
    CHANGED = "changed"
    #: The policy refuses the answer: the principal approved before, asked for the action itself or
    #: is none of those who may approve; or a note is missing.
    ALREADY_APPROVED = "already-approved"
    REQUESTER = "requester"
    NOT_AN_APPROVER = "not-an-approver"
    NOTE_REQUIRED = "note-required"
    #: The rights of the principal do not cover it.
    FORBIDDEN = "forbidden"
    #: No action starts now: the agent is frozen, or its right to act revoked.
    FROZEN = "frozen"
    #: The signed link cannot answer: it has ended, or the approval needs a login.
    LINK_REFUSED = "link-refused"

    @property
    def counts(self) -> bool:
        """True if the answer counts; all others are refused."""
        return self in _COUNTING


_COUNTING = frozenset(
    {
        ApprovalOutcome.APPROVED,
        ApprovalOutcome.DENIED,
        ApprovalOutcome.WITHDRAWN,
        ApprovalOutcome.COUNTED,
    }
)


class ApprovalPolicy(Model):
    """The conditions for approving an action.

    Attributes:
        min_approvals: the number of principals who must approve.
        groups: groups whose members may approve; empty: any.
        principals: further principals who may approve; empty: any.
        allow_requester: whether requesters of the action may approve it.
        require_note: whether an answer needs a note.
        person: whether only a person may approve; always true for `human-only` actions.
        links: the links in messages: `never` one, to the page after a `login`, or signed ones that
            the `bearer` can answer with once, unless the approval needs a login.
        code: the code that may run once it is approved: the `same` as when it was proposed, or
            `any`.
        on_resolved: what becomes of it when the problem ends that it is for: a `mark`, or the loop
            will `withdraw` it.
    """

    min_approvals: int = Field(default=1, ge=1, le=20)
    groups: list[str] = Field(default_factory=list)
    principals: list[str] = Field(default_factory=list)
    allow_requester: bool = False
    require_note: bool = False
    person: bool = False
    links: Literal["never", "login", "bearer"] = "login"
    code: Literal["any", "same"] = "any"
    on_resolved: Literal["mark", "withdraw"] = "mark"

    @property
    def words(self) -> str:
        """The policy in words."""
        who = "a person" if self.person else "anyone"
        among = [f"group {name}" for name in self.groups] + self.principals
        parts = [
            f"{self.min_approvals} approvals" if self.min_approvals > 1 else "one approval",
            f"by {who}" + (f" ({' or '.join(among)})" if among else ""),
            "" if self.allow_requester else "not by the requester",
            "with a note" if self.require_note else "",
            "for unchanged code only" if self.code == "same" else "",
            "withdrawn when its problem ends" if self.on_resolved == "withdraw" else "",
        ]
        return ", ".join(filter(None, parts))

    @property
    def impossible(self) -> str | None:
        """The error of a policy that nobody can meet, else None."""
        able = len(set(self.principals))
        if self.groups or not able or able >= self.min_approvals:
            return None
        may = "1 principal" if able == 1 else f"{able} principals"
        return f"it needs {self.min_approvals} approvals, but only {may} may approve"

    def admits(self, actor: Actor) -> bool:
        """Check whether *actor* may approve."""
        return self._admits(actor.principal, actor.person, actor.groups)

    def is_met_by(self, votes: list[Vote]) -> bool:
        """Check whether those *votes* suffice; each principal has one."""
        counted = [vote for vote in votes if self._admits(vote.by, vote.person, vote.groups)]
        return len(counted) >= self.min_approvals

    def _admits(self, principal: str, person: bool, groups: list[str]) -> bool:
        if self.person and not person:
            return False
        if not self.groups and not self.principals:
            return True
        return principal in self.principals or not set(self.groups).isdisjoint(groups)


class JoinedRequest(Model):
    """A later request for a pending action, with its rationale."""

    by: str
    at: Timestamp
    rationale: str


class VoteSignature(Model):
    """The proof of what a principal approved; see `boyd.security.approval_signatures`.

    Attributes:
        nonce: makes each signature a different one.
        requested_by: the requesters at that time.
        mac: HMAC-SHA256 or Ed25519 signature of approval and vote.
    """

    nonce: str
    requested_by: list[str]
    mac: str


class Vote(Model):
    """The approval of one principal; `claims` is whom the caller claimed to act for.

    `revoked` says that its key was revoked since, so that it does not count.
    """

    by: str
    person: bool = False
    groups: list[str] = Field(default_factory=list)
    at: Timestamp
    note: str | None = None
    key: str | None = None
    claims: str | None = None
    revoked: bool | None = None
    signature: VoteSignature | None = None

    @classmethod
    def of(cls, actor: Actor, note: str | None, at: datetime) -> Self:
        """The approval by *actor*."""
        return cls(
            by=actor.principal,
            person=actor.person,
            groups=actor.groups,
            at=at,
            note=note,
            key=actor.key,
            claims=actor.claims if actor.claims != actor.principal else None,
        )


class Proposal(Model):
    """An action that the loop or a client proposes for approval.

    Attributes:
        reversibility: how far the action can be undone; `unknown` for a rollback.
        queue: the queue of the workers that will execute it.
        target: what it acts on; empty: the action has no target.
        concurrency: the limit of executions of the action in flight there, if it has one.
        reason: why it needs an approval.
        required: the policy for approving it.
        requested_by: the principals who requested it; empty: the agent itself.
        undoes: the execution that it rolls back, if it is a rollback.
        undone: the result of that execution.
        wakes: the jobs that wait for it, such as `investigation:<id>`.
        bound_to: the only execution it is for; if None, equal proposals join it.
        preview: the result of the action's dry run.
        instead_of: why the actions that were decided first are not repeated, one line each.
        plan: the steps of a procedure; empty for other actions.
        situation: as conditions of policies saw it, if there are any.
        record: the track record of the action in this class of situation, as it was then; none
            if its outcome does not count: the agent did not decide on it, or cannot verify it.
        may_wait: whether its case may have to wait once it is approved, as far as the decision and
            the situation say, to learn whether it ends by itself.
        code: the plugin of the action with its version, or a digest of its file, as it was then.
    """

    decision: Decision
    action_id: str
    params: JsonObject
    loop_iteration: int
    action_name: str | None = None
    risk: Level | None = None
    reversibility: Reversibility = "unknown"
    confidence: Confidence | None = None
    autonomy: Autonomy | None = None
    situation_summary: str | None = None
    run_ids: list[str] = Field(default_factory=list)
    reason: str | None = None
    queue: str | None = None
    target: str = ""
    concurrency: int | None = None
    required: ApprovalPolicy = ApprovalPolicy()
    requested_by: list[str] = Field(default_factory=list)
    undoes: str | None = None
    undone: ActionResult | None = None
    wakes: list[str] = Field(default_factory=list)
    bound_to: str | None = None
    preview: ActionResult | None = None
    instead_of: list[str] = Field(default_factory=list)
    plan: list[ProcedureStep] = Field(default_factory=list)
    situation: Situation | None = None
    record: TrackRecord | None = None
    may_wait: bool = False
    code: str | None = None


class ApprovalItem(Proposal):
    """A proposal with its state.

    `fingerprint` is the digest of action id and canonical params: it identifies equal proposals and
    what the approver approves. `seen` counts equal proposals; `version` counts votes and changes of
    state. `acted_by` is the principal that resolved the item, `claimed_by` whom it claimed to act
    for. `title` says what approving does. `asked` has later requests for the same. `preview_at` is
    the time of `preview`; `first_preview` is the first dry run, if its result was different. `link`
    is the id of the signed link that resolved it. `notifications` are those to people. `in_flight`
    are other executions of the action on the same target that were in flight when this was read,
    `code_now` is the code that would run by then, if it is not that of the proposal. `symptoms` are
    what an iteration means to end by it; `problem_ended` if it waits although none of them is left.
    `acknowledgement` is the latest one, `effect` the verification of its execution, if that was
    read with it. `no_right` is the reason why the rights of its reader do not let them answer it,
    if so. `resolved_at` is the time of the answer or the expiry, `updated_at` also that of later
    changes. `done_before` is what had been done to the target when it was proposed, in one line.
    """

    id: str
    title: str = ""
    agent_id: str
    status: ApprovalStatus
    fingerprint: str
    seen: int = 1
    created_at: Timestamp
    updated_at: Timestamp
    resolved_at: Timestamp | None = None
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
    link: str | None = None
    notifications: list[NotificationRecord] = Field(default_factory=list)
    in_flight: list[Hold] = Field(default_factory=list)
    code_now: str | None = None
    symptoms: list[str] = Field(default_factory=list)
    problem_ended: bool = False
    done_before: str = ""
    acknowledgement: Acknowledgement | None = None
    effect: EffectVerification | None = None
    no_right: str | None = None

    @property
    def execution_id(self) -> str:
        """The id of its execution in the ledger."""
        return naming.rollback(self.undoes) if self.undoes else naming.approval(self.id)

    def keeper(self, now: datetime) -> Acknowledgement | None:
        """The acknowledgement that is in force, if it waits."""
        latest = self.acknowledgement if self.status == "pending" else None
        return latest if latest is not None and latest.is_in_force(now) else None

    def refusal(self, actor: Actor) -> ApprovalOutcome | None:
        """The outcome with which an approval by *actor* would be refused now, if any."""
        if self.status != "pending":
            return ApprovalOutcome.NOT_PENDING
        has_voted = any(vote.by == actor.principal for vote in self.counting)
        return refuse(actor, self.required, self.requested_by, has_voted)

    @property
    def counting(self) -> list[Vote]:
        """The approvals that count: those with keys that were not revoked since."""
        return [vote for vote in self.approvals if not vote.revoked]

    def mark_votes(self, revoked: set[str]) -> Self:
        """The item with marks at the approvals that were given with these *revoked* keys."""
        if self.status != "pending" or revoked.isdisjoint(v.key or "" for v in self.approvals):
            return self
        votes = [v.patched({"revoked": True}) if v.key in revoked else v for v in self.approvals]
        return self.patched({"approvals": votes})

    def compare_code(self, code: str | None) -> Self:
        """The item with *code*, that of now, if it waits and was proposed with another."""
        waits = self.status in ("pending", "approved") and self.result is None
        changed = waits and self.code is not None and code not in (None, self.code)
        return self.patched({"code_now": code}) if changed else self

    @property
    def change_of_code(self) -> str | None:
        """The change of the code since the proposal, in one line."""
        if self.code_now is None:
            return None
        return f"changed since it was proposed: {self.code} then, {self.code_now} now"

    @property
    def end_of_problem(self) -> str | None:
        """The end of what it was meant to end, in one line, if it waits nevertheless."""
        if not self.problem_ended:
            return None
        more = f" and {len(self.symptoms) - 3} more" if len(self.symptoms) > 3 else ""
        return f"The problem is over: {', '.join(self.symptoms[:3])}{more}"

    @property
    def is_risky(self) -> bool:
        """True if the higher risk of action and decision is high, or it is unknown."""
        return self.risk is None or not {self.risk, self.decision.risk}.isdisjoint(_RISKY)

    @property
    def askers(self) -> list[str]:
        """The requesters, in words."""
        agent = f"agent:{self.agent_id}"
        names = ["the agent" if name == agent else name for name in self.requested_by]
        return names or ["the agent"]


def refuse(
    actor: Actor, required: ApprovalPolicy, requesters: Iterable[str], has_voted: bool
) -> ApprovalOutcome | None:
    """Check an approval by *actor* of an item that waits; None if it counts."""
    if not required.admits(actor):
        return ApprovalOutcome.NOT_AN_APPROVER
    if actor.principal in requesters and not required.allow_requester:
        return ApprovalOutcome.REQUESTER
    return ApprovalOutcome.ALREADY_APPROVED if has_voted else None


class ApprovalQueue(Model):
    """Pending and resolved approvals, newest first; `next_cursor` if there are more.

    `missing` says why archived ones are missing, if the archive does not answer.
    """

    pending: list[ApprovalItem]
    history: list[ApprovalItem]
    next_cursor: str | None = None
    missing: str | None = None
