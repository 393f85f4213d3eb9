"""Ledger and approvals of a shadow: budgets as they were used then, and no approvals."""

from __future__ import annotations

from boyd.agent import Agent
from boyd.models import (
    ActionResult,
    Budget,
    Claim,
    ClaimOutcome,
    ExecutionEntry,
    ExecutionRequest,
    Fence,
    Gate,
    JsonObject,
    LoopResult,
    ProcedureRecord,
    Proposal,
)
from boyd.replay.playback import Gaps


def target_of(agent: Agent | None, action: str, params: JsonObject) -> str:
    """The target of an action; empty if it has none or is not known."""
    known = agent.host.actions.get(action) if agent else None
    return known.target_of(params) if known else ""


class ShadowLedger:
    """Claims nothing; knows how much of a budget was used then. Implements `Ledger`."""

    def __init__(self, agent: Agent, record: LoopResult, gaps: Gaps) -> None:
        self._agent = agent
        self._record = record
        self._gaps = gaps

    def find(self, execution_id: str) -> ActionResult | None:
        """None: nothing was executed."""
        return None

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """None, likewise."""
        return None

    def claim(self, execution: ExecutionRequest) -> Claim:
        """A claim that ends before the action, as its budget was used then."""
        budget = execution.terms.budget
        used = self._used(execution, budget) if budget else None
        if budget and used is None:
            self._gaps.note(f"the use of the budget of {execution.action} was not recorded")
        elif budget and used is not None and used >= budget.limit:
            return Claim(ClaimOutcome.OVER_BUDGET, used=used)
        passed = ActionResult(action=execution.action, success=True, duration=0.0, host="shadow")
        return Claim(ClaimOutcome.DONE, result=passed, used=used)

    def shorten(self, result: ActionResult, principal: str) -> ActionResult:
        """The result; nothing is kept."""
        return result

    def forgo(self, execution_id: str, fence: Fence) -> Claim:
        """No earlier attempt."""
        return Claim(ClaimOutcome.FORGONE)

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """True; nothing is recorded."""
        return True

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """True; nothing is started."""
        return True

    def _used(self, execution: ExecutionRequest, budget: Budget) -> int | None:
        """The recorded use of its *budget*, if it was of that action and target."""
        then, gate = self._record.decision, self._record.gate
        if then is None or gate is None or then.action != execution.action:
            return None
        if target_of(self._agent, then.action, then.params) != execution.target:
            return None
        return _used(budget, gate)


def _used(budget: Budget, gate: Gate) -> int | None:
    """The use of a budget; of another window than then, only bounds are known."""
    then, used = gate.budget, gate.used
    if then is None or used is None or then.window == budget.window:
        return used
    if (budget.window < then.window and used < budget.limit) or (
        budget.window > then.window and used >= budget.limit
    ):
        return used
    return None


class ShadowApprovals:
    """Queues nothing; implements `ApprovalGateway`."""

    def propose(self, proposal: Proposal, execution_id: str, by_machine: bool = False) -> str:
        """A name for an approval that nobody sees."""
        return "shadow"

    def waits(self, proposal: Proposal) -> bool:
        """True, so that no dry run is made."""
        return True

    def proposed(self, execution_id: str) -> str | None:
        """None: nothing was proposed."""
        return None
