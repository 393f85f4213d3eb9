"""The ledger as the act phase needs it: each execution is claimed before it starts (L32)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from boyd.models import ActionResult, Budget, ExecutionEntry, JsonObject

#: Why there is no right to execute what nobody wants any more.
CANCELLED = "Cancelled: the runs that it was for were cancelled"


@dataclass(frozen=True)
class Claim:
    """The right to execute once.

    Attributes:
        token: proves the right when finishing; None when it was not given.
        result: how the execution ended before, if it did.
        refused: why there is no right: frozen, unknown outcome, running elsewhere.
        over_budget: whether the budget for this target is used up.
        unknown: whether an earlier attempt was started and its outcome lost.
    """

    token: str | None = None
    result: ActionResult | None = None
    refused: str | None = None
    over_budget: bool = False
    unknown: bool = False


@dataclass(frozen=True)
class ExecutionRequest:
    """What the ledger must know of an execution before it starts."""

    id: str
    action: str
    params: JsonObject
    target: str
    idempotent: bool
    timeout: float
    budget: Budget | None
    by: str = ""
    host: str = ""


class Ledger(Protocol):
    """Every execution, claimed before it starts: at most once (L32)."""

    def find(self, execution_id: str) -> ActionResult | None:
        """How that execution ended, if it did."""

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """The entry of that execution, if it was ever claimed."""

    def claim(self, execution: ExecutionRequest) -> Claim:
        """Take the right to execute, in one atomic step."""

    def forgo(self, execution_id: str) -> Claim:
        """Give up the right to execute, for good; what is known of an earlier attempt."""

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the outcome; False when the claim was lost meanwhile."""
