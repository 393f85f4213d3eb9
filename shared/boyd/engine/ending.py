"""How an iteration ends: what its result means for its runs, and what follows it (L35-L38)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from boyd import naming
from boyd.engine.engine import Engine
from boyd.loop import complete
from boyd.models import (
    ActionPerformed,
    ActionResult,
    LoopResult,
    RunOutcome,
)
from boyd.store import AgentStore, Lost, Record


def end(engine: Engine, iteration: int, epoch: int, worker: str, result: LoopResult) -> None:
    """End the iteration with its runs, and send the follow-up that the end may have started.

    *worker* is as it entered `complete`; empty when the sweeper ends it.
    """
    runs, unheard = _runs(engine, result), complete.run_result(result)
    follow_up = engine.store.iterations.finish(
        iteration, epoch, worker, result, runs, unheard, engine.retention
    )
    if follow_up:
        engine.courier.send(engine.agent.id, follow_up, 1, "start")


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


def _runs(engine: Engine, result: LoopResult) -> list[RunOutcome]:
    """What the iteration's result means for the runs it was investigating."""
    outcomes = [complete.run_outcome(run_id, result) for run_id in result.runs]
    waits_for = next((o.approval_id for o in outcomes if o.approval_id), None)
    item = engine.store.approvals.get(waits_for) if waits_for else None
    # A person may have been quicker than this iteration: then the action is done already.
    done = item.result if item else None
    return [_performed(outcome, done) if done else outcome for outcome in outcomes]


def _performed(outcome: RunOutcome, done: ActionResult) -> RunOutcome:
    """What becomes of a run whose approval has been executed already."""
    if outcome.approval_id is None:
        return outcome
    result = outcome.result.patched({"actions_performed": [ActionPerformed.of(done)]})
    return replace(outcome, status="completed" if done.success else "failed", result=result)
