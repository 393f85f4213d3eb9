"""Takes an action that something other than the loop has decided on: hooks, gate, ledger (L31)."""

from __future__ import annotations

from dataclasses import replace

from boyd.models import ActionResult, Decision, DecisionTrace, Situation
from boyd.phases import act, decide
from boyd.phases.claims import Ledger
from boyd.phases.phase_context import PhaseContext
from boyd.runtime.engine import Engine
from boyd.runtime.leases import LeasedLedger
from boyd.store import Fence

#: What hooks are shown when no iteration has made a situation yet.
NOTHING_SEEN = Situation(summary="No situation yet", priority="low", confidence=0.0)


def ledger_of(engine: Engine, fence: Fence) -> LeasedLedger:
    """The ledger for what the job of *fence* executes."""
    return LeasedLedger(engine.store, engine.leases, fence)


def take(engine: Engine, ledger: Ledger, wanted: act.Request) -> ActionResult:
    """Take the action on the one path: hooks of decide, gate, hooks of act, ledger."""
    ctx = PhaseContext(engine.agent, "act", engine.context)
    situation = engine.store.history.situation()
    decision, trace = decide.review(ctx, wanted.decision, situation or NOTHING_SEEN)
    if decision.is_no_op:
        return act.failed(wanted.decision.action, _refusal(trace, decision))
    request = replace(
        wanted,
        decision=decision,
        situation_summary=situation.summary if situation else None,
        asked_by=trace.asked_by or wanted.asked_by,
    )
    return act.act(ctx, request, ledger, engine.waiting)


def _refusal(trace: DecisionTrace, decision: Decision) -> str:
    refusal = trace.vetoed or trace.invalid
    return f"Vetoed by {refusal.by}: {refusal.reason}" if refusal else decision.rationale
