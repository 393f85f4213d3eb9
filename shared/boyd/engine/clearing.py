"""Withdraws approvals whose situation has cleared (A10)."""

from __future__ import annotations

from boyd.engine.engine import Engine
from boyd.loop import complete
from boyd.models import Actor, ApprovalPolicy, LoopResult
from boyd.store import AgentStore, Record


def follow(engine: Engine, record: Record, result: LoopResult) -> None:
    """Withdraw what this iteration shows to have cleared; remember what it has asked for itself.

    Only strategies with `withdraw_when_clear` are followed; without any this costs nothing.
    """
    store = engine.store
    flagged = {s.id for s in engine.agent.host.strategies.values() if s.withdraw_when_clear}
    if not flagged or result.trace is None:
        return
    failed = {problem.id for problem in result.observer_errors}
    saw = {record.observers[index] for index in record.seen} - failed
    asked = complete.waiting_for(result)
    # What a run or an event from outside said is not said again while it lasts.
    lasting = not record.runs and not record.intake
    if asked and result.trace.chosen in flagged and lasting:
        store.approvals.watch(asked, result.trace.chosen, sorted(saw))
    watched = store.approvals.watched()
    for approval_id, (strategy, observers) in watched.items():
        cleared = complete.cleared(strategy, observers, saw, result)
        if approval_id != asked and cleared and not _called_for(store, approval_id):
            _withdraw(engine, approval_id, result)
    over = set(watched) - store.approvals.pending_of(list(watched)) if watched else set()
    if over:
        store.approvals.unwatch(sorted(over))


def _called_for(store: AgentStore, approval_id: str) -> bool:
    """Whether somebody besides the loop and its runs has asked for an item, too."""
    item = store.approvals.get(approval_id)
    if item is None:
        return False
    return not set(item.requested_by) <= set(store.runs.requesters(item.run_ids))


def _withdraw(engine: Engine, approval_id: str, result: LoopResult) -> None:
    summary = result.situation.summary if result.situation else ""
    loop = Actor(principal=f"agent:{engine.agent.id}")
    engine.store.approvals.resolve(
        approval_id,
        "withdrawn",
        loop,
        engine.retention,
        note=f"The situation has cleared: {summary}"[:500],
        policy=ApprovalPolicy(),
    )
