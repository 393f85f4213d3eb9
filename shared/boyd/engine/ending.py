"""How an iteration ends: what its result means for its runs, and what follows it (L35-L38)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Protocol

from boyd import naming
from boyd.engine.courier import Courier
from boyd.loop import act, complete
from boyd.models import (
    ActionPerformed,
    ActionResult,
    LoopResult,
    RunOutcome,
)
from boyd.store import AgentStore, Lost, Record, Retention


class Desk(Protocol):
    """What it takes to end an iteration; an `Engine` has it."""

    @property
    def store(self) -> AgentStore:
        """The state of the agent."""

    @property
    def courier(self) -> Courier:
        """Carries the message of the follow-up."""

    @property
    def retention(self) -> Retention:
        """How much of the past is kept."""


def end(
    desk: Desk, iteration: int, epoch: int, worker: str, result: LoopResult, told: bool = False
) -> None:
    """End the iteration with its runs, and send the follow-up that the end may have started.

    *worker* is as it entered `complete`; empty when nobody has, and it is ended all the same. With
    *told*, what the result says of the action is stored; else its act phase has done so.
    """
    runs, unheard = _runs(desk.store, result), complete.run_result(result)
    follow_up = desk.store.iterations.finish(
        iteration, epoch, worker, result, runs, unheard, desk.retention, told
    )
    if follow_up:
        desk.courier.send(desk.store.agent_id, follow_up, 1, "start")


def settled(store: AgentStore, record: Record, result: LoopResult) -> LoopResult:
    """The result with what is known of an action that was abandoned in the middle."""
    decision = record.decision
    if record.abandoned != "act" or decision is None:
        return result
    known = store.ledger.settle(naming.loop(record.id))
    told = known or act.failed(decision.action, f"Not executed: {result.error}")
    return result.patched({"action_results": [told]})


def lost(store: AgentStore, iteration: int, timeline: str) -> Lost:
    """What can still be known of an iteration whose record is gone."""
    result = store.ledger.settle(naming.loop(naming.iteration(iteration, timeline)))
    why = "its record was lost, or never written whole"
    return Lost(iteration, why, store.runs.claimed_by(iteration), [result] if result else [])


def ruined(agent_id: str, record: Record, ended_at: datetime, why: str) -> LoopResult:
    """The result of an iteration that cannot be completed: as much as can be read of it."""
    try:
        result = record.result(agent_id, ended_at)
    except (ValueError, KeyError):
        return record.ruined(agent_id, ended_at, why)
    return result.patched({"success": False, "error": why})


def _runs(store: AgentStore, result: LoopResult) -> list[RunOutcome]:
    """What the iteration's result means for the runs it was investigating."""
    outcomes = [complete.run_outcome(run_id, result) for run_id in result.runs]
    waits_for = next((o.approval_id for o in outcomes if o.approval_id), None)
    item = store.approvals.get(waits_for) if waits_for else None
    # A person may have been quicker than this iteration: then the action is done already.
    done = item.result if item else None
    return [_performed(outcome, done) if done else outcome for outcome in outcomes]


def _performed(outcome: RunOutcome, done: ActionResult) -> RunOutcome:
    """What becomes of a run whose approval has been executed already."""
    if outcome.approval_id is None:
        return outcome
    result = outcome.result.patched({"actions_performed": [ActionPerformed.of(done)]})
    return replace(outcome, status="completed" if done.success else "failed", result=result)
