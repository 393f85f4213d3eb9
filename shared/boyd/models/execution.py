"""Executions: what is claimed before an action starts, on which terms, and the ledger's reply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from boyd.models.action import FROZEN, REVOKED, ActionResult, Budget, Prevention, Sandbox
from boyd.models.base import JsonObject
from boyd.models.effect import VerificationPlan

#: The error of an action whose runs were cancelled.
CANCELLED = "Cancelled: its runs were cancelled"


@dataclass(frozen=True)
class Fence:
    """The phase or job that an execution belongs to; its worker may claim while it holds it.

    `origin` is an iteration's number or a job's name, and `token` the epoch or attempt.
    """

    origin: int | str
    token: int
    entered: str


@dataclass(frozen=True)
class Concurrency:
    """The limits of an action's executions in flight, and how this one keeps to them.

    Attributes:
        limit: of those on the target, if there is one.
        everywhere: of those on all targets, if there is one.
        waits: whether it waits for those that are in the way, instead of being refused.
        undoes: the execution that it rolls back, which is not in the way.
        compensates: whether it undoes something, so that what is only queued is not in the way.
    """

    limit: int | None
    everywhere: int | None = None
    waits: bool = False
    undoes: str | None = None
    compensates: bool = False


@dataclass(frozen=True)
class ExecutionTerms:
    """The terms of an execution: what binds it, and what follows it.

    Attributes:
        budget: that limits it.
        situation: the class of the situation in which it was decided.
        held: whether holds of the action bind it.
        within: holds that executions with this prefix have caused do not bind it.
        grant: by which it runs alone, if it needs one.
        concurrency: the limit of executions in flight; None for no limit.
        verification: how its effect is verified, if it is.
        counting: how its outcome is counted in its track record, if it is.
        trial: the draw of its case, which then may have to wait first, as `CaseDraws` plans it.
        sandbox: that it runs in; too many violations suspend the action.
        queue: of the workers that verify it and tell people of a suspension.
        read_only: whether it changes nothing.
        ordered_at: when a person has ordered it; a revocation since then ends it.
        decided_at: when it was decided on, if no hold binds it; harm since then ends it.
    """

    budget: Budget | None = None
    situation: str = ""
    held: bool = False
    within: str = ""
    grant: str | None = None
    concurrency: Concurrency | None = None
    verification: VerificationPlan | None = None
    counting: JsonObject | None = None
    trial: JsonObject | None = None
    sandbox: Sandbox | None = None
    queue: str | None = None
    read_only: bool = False
    ordered_at: datetime | None = None
    decided_at: datetime | None = None


_NO_TERMS = ExecutionTerms()


@dataclass(frozen=True)
class ExecutionRequest:
    """An execution to claim.

    Attributes:
        idempotent: whether it may run again when its outcome was lost.
        timeout: seconds that it may take.
        by: the principal that the audit names.
        host: where it runs.
        fence: the claim succeeds only while this holds, or always if None.
    """

    id: str
    action: str
    params: JsonObject
    target: str = ""
    idempotent: bool = False
    timeout: float = 0.0
    by: str = ""
    host: str = ""
    terms: ExecutionTerms = _NO_TERMS
    fence: Fence | None = None


class ClaimOutcome(StrEnum):
    """The ledger's reply to a claim, in the words of its script."""

    CLAIMED = "claimed"
    #: An earlier attempt has ended, or started a procedure.
    DONE = "done"
    #: An earlier attempt was started, and its outcome lost.
    UNKNOWN = "unknown"
    #: It was never started, and never will be.
    FORGONE = "none"
    #: The budget for this target is used up.
    OVER_BUDGET = "over"
    #: The grant by which it was to run alone has ended.
    UNGRANTED = "ungranted"
    HELD = "held"
    CANCELLED = "cancelled"
    FROZEN = "frozen"
    REVOKED = "revoked"


_REFUSALS = {
    ClaimOutcome.FROZEN: FROZEN,
    ClaimOutcome.REVOKED: REVOKED,
    ClaimOutcome.UNKNOWN: "Outcome unknown",
}
_PREVENTIONS: dict[ClaimOutcome, Prevention] = {
    ClaimOutcome.CANCELLED: "cancelled",
    ClaimOutcome.FROZEN: "frozen",
    ClaimOutcome.REVOKED: "revoked",
    ClaimOutcome.HELD: "held",
}


@dataclass(frozen=True)
class Claim:
    """The answer to a claim.

    Attributes:
        token: proves the claim when finishing.
        detail: the reason of a refusal, without what its outcome says already.
        result: of an earlier attempt.
        used: executions that count against the budget for this target, without this one.
    """

    outcome: ClaimOutcome
    token: str = ""
    detail: str = ""
    result: ActionResult | None = None
    used: int | None = None

    @property
    def refusal(self) -> str:
        """The reason of a refusal, in one line."""
        if self.outcome is ClaimOutcome.CANCELLED:
            return CANCELLED
        lead = _REFUSALS.get(self.outcome)
        return f"{lead}: {self.detail}" if lead else self.detail

    @property
    def prevention(self) -> Prevention | None:
        """The kind of a refusal."""
        return _PREVENTIONS.get(self.outcome)
