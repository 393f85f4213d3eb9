"""How an iteration ends: what its result means for its runs, and what follows it (L35-L38)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from boyd import naming
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import ActionPerformed, ActionResult, Actor, LoopResult, RunOutcome
from boyd.phases import act, complete
from boyd.store import AgentStore, Lost, Record, Retention


class Desk(Protocol):
    """What it takes to end an iteration; an `Engine` has it."""

    @property
    def store(self) -> AgentStore:
        """The state of the agent."""

    @property
    def dispatcher(self) -> Dispatcher:
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
        desk.dispatcher.send(desk.store.agent_id, follow_up, 1, "start")


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


@dataclass(frozen=True)
class Abandonment:
    """What became of a wish to abandon.

    `abandoned` with the iteration's number; `over`: the one that was meant has ended, and
    `iteration` is in flight; `idle`: none is.
    """

    outcome: Literal["abandoned", "over", "idle"]
    iteration: int = 0


class Abandoner:
    """Abandons one agent's iterations; needs no plugins and no worker."""

    def __init__(self, store: AgentStore, dispatcher: Dispatcher, retention: Retention) -> None:
        self.store = store
        self.dispatcher = dispatcher
        self.retention = retention

    def abandon(
        self, why: str, actor: Actor, iteration: int | None = None, last: bool = False
    ) -> Abandonment:
        """End the iteration in flight as failed, or only if it is that one.

        Whoever works on it is shut out by a new epoch. An action that has begun is not begun
        again: unless the ledger knows how it ended, its outcome is unknown. With *last* no other
        iteration follows, even if work waits.
        """
        iterations = self.store.iterations
        outcome, number, epoch = iterations.abandon(why, actor, iteration, last)
        if outcome == "abandoned":
            record = iterations.current()
            if record is not None and record.iteration == number:
                now = self.store.clock.now()
                result = ruined(self.store.agent_id, record, now, why)
                result = settled(self.store, record, result)
                end(self, number, epoch, "", result, told=True)
        return Abandonment(outcome, number)
