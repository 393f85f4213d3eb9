"""The ledger as the act phase sees it: claims renewed while the action runs."""

from __future__ import annotations

from contextlib import ExitStack

from boyd.engine.leases import Leases
from boyd.loop.act import Claim, Execution
from boyd.models import ActionResult, Proposal
from boyd.store import AgentStore, Reply, Retention

#: Seconds beyond an action's time limit for which its claim is still renewed.
GRACE = 10.0


class LeasedLedger:
    """Implements `loop.act.Ledger` on the store."""

    def __init__(self, store: AgentStore, leases: Leases) -> None:
        self._ledger = store.ledger
        self._leases = leases
        self._holding = ExitStack()

    def find(self, execution_id: str) -> ActionResult | None:
        """How that execution ended, if it did."""
        return self._ledger.find(execution_id)

    def claim(self, execution: Execution) -> Claim:
        """Take the right to execute, and keep it while the action runs."""
        reply = self._ledger.claim(
            execution.id,
            execution.action,
            execution.params,
            execution.target,
            execution.idempotent,
            execution.budget,
        )
        if reply.token:
            token = reply.token
            hold = self._leases.hold(
                lambda: self._ledger.renew(execution.id, token), execution.timeout + GRACE
            )
            self._holding.enter_context(hold)
        return _claim(reply)

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the outcome and let the claim go."""
        self._holding.close()
        return self._ledger.finish(execution_id, token, result)

    def take_back(self, execution_id: str) -> ActionResult | None:
        """Mark a success as rolled back."""
        return self._ledger.take_back(execution_id)


class Waiting:
    """Implements `loop.act.Approvals` on the store."""

    def __init__(self, store: AgentStore, retention: Retention) -> None:
        self._approvals = store.approvals
        self._retention = retention

    def propose(self, proposal: Proposal) -> str:
        """Queue the proposal; its id."""
        return self._approvals.enqueue(proposal, self._retention)


def _claim(reply: Reply) -> Claim:
    if reply.outcome == "done":
        return Claim(result=ActionResult.from_json(reply.detail))
    if reply.outcome == "frozen":
        return Claim(refused=f"Acting is frozen: {reply.detail}")
    if reply.outcome == "unknown":
        lost = f"Outcome unknown: worker {reply.detail} stopped while executing it"
        return Claim(refused=lost, unknown=True)
    return Claim(token=reply.token, over_budget=reply.outcome == "over")
