"""Ends iterations with their runs, and investigations: regularly, by an operator, by retirement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from boyd import naming
from boyd.errors import AgentRuns
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import (
    NO_SITUATION,
    ActionPerformed,
    ActionResult,
    Actor,
    ApprovalItem,
    ApprovalPolicy,
    Decision,
    Fence,
    Gate,
    LoopResult,
    Run,
    RunOutcome,
    RunResult,
    RunStatus,
)
from boyd.models.investigation import Ended, Ending
from boyd.models.responses import Retired, RevokedAgent
from boyd.phases import action_call
from boyd.phases.gate import conclude, judge, refuse
from boyd.phases.phase_context import PhaseContext
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done
from boyd.runtime.triggers import Launcher
from boyd.store import (
    AgentEntry,
    AgentStore,
    ItemAnswer,
    Lost,
    Record,
    Retention,
    RunEnding,
    Store,
    dump_results,
    reason_text,
)

#: Number of items read at once.
_PAGE = 200
_NOTE = "the agent was retired"
#: The status of a run by the ending of its investigation; `failed` for all others.
_RUN_STATUS: dict[Ending, RunStatus] = {
    "final_answer": "completed",
    "final_synthesis": "completed",
    "cancelled": "cancelled",
}


class EndingContext(Protocol):
    """The parts of an `Engine` that ending an iteration needs."""

    @property
    def store(self) -> AgentStore:
        """The state of the agent."""

    @property
    def dispatcher(self) -> Dispatcher:
        """Publishes the hint for the follow-up iteration."""

    @property
    def retention(self) -> Retention:
        """The retention of ended items."""


def end(
    context: EndingContext,
    fence: Fence,
    result: LoopResult,
    store_results: bool = False,
) -> None:
    """End the iteration with its runs, and start the follow-up iteration if work waits.

    *fence* is `complete` as its worker entered it; without a worker, it ends although none has.
    With *store_results* the action's result is stored too; otherwise the act phase has stored it.
    """
    runs, unclaimed_result = _runs(context.store, result), run_result(result)
    follow_up = context.store.iterations.finish(
        fence, result, runs, unclaimed_result, context.retention, store_results
    )
    if follow_up:
        context.dispatcher.send(context.store.agent_id, follow_up, 1, "start")


def with_known_outcome(store: AgentStore, record: Record, result: LoopResult) -> LoopResult:
    """Add the known outcome of an action that was abandoned while executing."""
    decision = record.decision
    if record.abandoned_phase != "act" or decision is None:
        return result
    recorded = store.executions.settle(naming.iteration_execution(record.id))
    outcome = recorded or action_call.failure(
        decision.action, f"Not executed: {result.error}", prevented="unserved"
    )
    return result.patched({"action_results": [outcome]})


def action_fields(engine: Engine, record: Record, result: ActionResult) -> dict[str, str]:
    """Return the fields for an action that a lost or failed attempt executed."""
    fields = {"results": dump_results([result])}
    if record.decision is not None:
        gate = _gate_after(engine.act_context(), record.decision, result)
        fields["gate"] = gate.to_json()
    return fields


def _gate_after(ctx: PhaseContext, decision: Decision, result: ActionResult) -> Gate:
    """The gate of an executed action, judged again: the verdict was lost with its worker."""
    action = ctx.host.actions.get(decision.action)
    if action is None:
        return refuse(result)
    circumstances = ctx.circumstances(action, decision, NO_SITUATION)
    return conclude(ctx.agent, circumstances, judge(ctx.agent, circumstances), result)


def remains_of(store: AgentStore, iteration: int, timeline: str) -> Lost:
    """Collect what is left of an iteration whose record is gone."""
    result = store.executions.settle(
        naming.iteration_execution(naming.iteration(iteration, timeline))
    )
    reason = "its record was lost or is incomplete"
    return Lost(iteration, reason, store.runs.of_iteration(iteration), [result] if result else [])


def failure_of(agent_id: str, record: Record, ended_at: datetime, reason: str) -> LoopResult:
    """Build the failed result of an iteration that cannot be completed, from what is readable."""
    try:
        result = record.result(agent_id, ended_at)
    except (ValueError, KeyError):
        return record.unreadable_result(agent_id, ended_at, reason)
    return result.patched({"success": False, "error": reason})


def _runs(store: AgentStore, result: LoopResult) -> list[RunOutcome]:
    """The outcome of each run of the iteration."""
    outcomes = [run_outcome(run_id, result) for run_id in result.runs]
    waits_for = next((o.approval_id for o in outcomes if o.approval_id), None)
    item = store.approvals.get(waits_for) if waits_for else None
    # A person may have approved already, and a worker executed the action.
    done = item.result if item else None
    return [_with_execution(outcome, done) if done else outcome for outcome in outcomes]


def _with_execution(outcome: RunOutcome, done: ActionResult) -> RunOutcome:
    """Complete the outcome of a run whose approved action has been executed."""
    if outcome.approval_id is None:
        return outcome
    result = outcome.result.patched({"actions_performed": [ActionPerformed.of(done)]})
    return replace(outcome, status="completed" if done.is_fine else "failed", result=result)


def run_outcome(run_id: str, result: LoopResult) -> RunOutcome:
    """The outcome of a run after the iteration that investigated it."""
    approval_id = result.waits_for
    status: RunStatus | None = None if approval_id else _run_status(result)
    return RunOutcome(run_id, status, run_result(result), approval_id)


def run_result(result: LoopResult) -> RunResult:
    """The run result of an iteration."""
    situation = result.situation
    assessments = situation.assessments if situation else []
    return RunResult(
        summary=result.error or (situation.summary if situation else "No situation"),
        findings=[finding for a in assessments for finding in a.findings],
        actions_performed=[ActionPerformed.of(item) for item in result.action_results],
        loop_iterations=1,
        duration=result.duration,
        situation_assessment=situation.summary if situation else None,
        assessments=assessments or None,
        recommendations=[a.contributing_factor for a in assessments if a.contributing_factor],
    )


def _run_status(result: LoopResult) -> RunStatus:
    refused = result.trace is not None and (result.trace.vetoed or result.trace.invalid)
    acted = all(item.is_fine for item in result.action_results)
    return "completed" if result.success and acted and not refused else "failed"


#: Stands for the strategy of an approval that is withdrawn by its policy.
_ANY = "*"


def withdraw_cleared(engine: Engine, record: Record, result: LoopResult) -> None:
    """Withdraw approvals whose situation has cleared, and remember those this iteration asked for.

    Only strategies with `withdraw_when_clear` and policies with `on_resolved` count; without any
    this costs nothing.
    """
    store = engine.store
    flagged = {s.id for s in engine.agent.host.strategies.values() if s.withdraw_when_clear}
    by_policy = engine.agent.rules.withdraws_resolved
    if not (flagged or by_policy) or result.trace is None:
        return
    failed = {problem.id for problem in result.observer_errors}
    saw = {record.observers[index] for index in record.observation_texts} - failed
    requested = result.waits_for
    # Runs and external events do not repeat while their cause lasts.
    lasting = not record.runs and not record.intake
    if requested and result.trace.chosen in flagged and lasting:
        store.approvals.watch(requested, result.trace.chosen, sorted(saw))
    elif requested and by_policy and _is_for_problem(store, requested):
        store.approvals.watch(requested, _ANY, [])
    watched = store.approvals.watches()
    for approval_id, (strategy, observers) in watched.items():
        if strategy == _ANY:
            item = store.approvals.get(approval_id)
            cleared = item is not None and item.problem_ended
        else:
            cleared = _has_cleared(strategy, observers, saw, result)
        if approval_id != requested and cleared and not _has_other_requesters(store, approval_id):
            _withdraw(engine, approval_id, result)
    over = set(watched) - store.approvals.pending_of(list(watched)) if watched else set()
    if over:
        store.approvals.unwatch(sorted(over))


def _is_for_problem(store: AgentStore, approval_id: str) -> bool:
    """Report whether the policy withdraws an item when the symptoms end that it has."""
    item = store.approvals.get(approval_id)
    return item is not None and item.required.on_resolved == "withdraw" and bool(item.symptoms)


def _has_other_requesters(store: AgentStore, approval_id: str) -> bool:
    """Report whether anybody besides the loop and its runs requested an item."""
    item = store.approvals.get(approval_id)
    if item is None:
        return False
    return not set(item.requested_by) <= set(store.runs.requesters(item.run_ids))


def _withdraw(engine: Engine, approval_id: str, result: LoopResult) -> None:
    summary = result.situation.summary if result.situation else ""
    loop = Actor(principal=f"agent:{engine.agent.id}")
    answer = ItemAnswer("withdrawn", loop, f"The situation has cleared: {summary}"[:500])
    engine.store.approvals.resolve(approval_id, answer, ApprovalPolicy(), engine.retention)


def _has_cleared(strategy_id: str, observers: set[str], saw: set[str], result: LoopResult) -> bool:
    """Report whether the situation in which a strategy requested an approval has cleared.

    Only an iteration without failures that saw at least the same *observers* can tell: then the
    strategy no longer applies, or decides on no-op.
    """
    trace = result.trace
    if trace is None or not result.success or not observers <= saw:
        return False
    if any(problem.phase in ("observe", "orient", "decide") for problem in result.problems):
        return False
    if strategy_id not in trace.applicable:
        return True
    refused = trace.vetoed or trace.invalid
    nothing = result.decision is not None and result.decision.is_no_op
    return trace.chosen == strategy_id and nothing and not refused


def finish_investigation(
    engine: Engine,
    id: str,
    source: str,
    entry: Ended,
    performed: list[ActionPerformed],
    fields: Mapping[str, str] | None = None,
) -> Done:
    """Start the iteration that waits for it; return how its job and its run end."""
    status = _RUN_STATUS.get(entry.ending, "failed")
    runs: list[RunEnding] = []
    run = engine.store.runs.get(id) if source == "run" else None
    # A conversation may continue after its run has ended; the run keeps its result.
    if run is not None and run.status == "investigating":
        result = RunResult(
            summary=entry.text,
            findings=[entry.text],
            actions_performed=performed,
            loop_iterations=0,
            duration=0.0,
        )
        runs.append((id, status, result))
    if source.startswith("plugin:"):
        mode = engine.agent.settings.mode
        Launcher(engine.store, engine.dispatcher, mode).look_again("investigation")
    keep = engine.retention.of_runs()[0] / 1000
    return Done("succeeded" if status == "completed" else "failed", keep, fields or {}, runs)


@dataclass(frozen=True)
class Abandonment:
    """The outcome of abandoning.

    `abandoned`: *iteration* was ended; `over`: the named one had ended before, and *iteration* is
    in flight; `idle`: none is in flight.
    """

    outcome: Literal["abandoned", "over", "idle"]
    iteration: int = 0


class Abandoner:
    """Abandons one agent's iterations, from any process; needs no plugins."""

    def __init__(self, store: AgentStore, dispatcher: Dispatcher, retention: Retention) -> None:
        self.store = store
        self.dispatcher = dispatcher
        self.retention = retention

    def abandon(
        self, reason: str, actor: Actor, iteration: int | None = None, last: bool = False
    ) -> Abandonment:
        """End the iteration in flight as failed; with *iteration*, only if it is that one.

        A new epoch fences off its worker. A started action is not repeated: unless the ledger has
        its result, its outcome is unknown. With *last* no iteration follows, even if work waits.
        """
        iterations = self.store.iterations
        outcome, number, epoch = iterations.abandon(reason, actor, iteration, last)
        if outcome == "abandoned":
            record = iterations.current()
            if record is not None and record.iteration == number:
                now = self.store.clock.now()
                result = failure_of(self.store.agent_id, record, now, reason)
                result = with_known_outcome(self.store, record, result)
                end(self, Fence(number, epoch, ""), result, store_results=True)
        return Abandonment(outcome, number)


def retire(
    store: Store, entry: AgentEntry, dispatcher: Dispatcher, actor: Actor, reason: str | None = None
) -> Retired:
    """Take an agent out of service.

    Withdraw its pending approvals, cancel its open runs, and abandon its iteration in flight.
    Queued observations, history and audit trail are kept. A process that runs the agent puts it
    back into service.

    Raises:
        AgentRuns: a live process runs the agent.
    """
    running = sorted(w.name for w in store.fleet.workers() if entry.id in w.agents)
    if running:
        names = ", ".join(running)
        raise AgentRuns(f"agent {entry.id!r} is run by {names}: stop these processes first")
    agent = store.agent(entry.id)
    store.fleet.retire(entry, store.clock.now())
    agent.audit_trail.append(
        "agent.retired", actor, before="in service", after="retired", note=reason
    )
    withdrawn = _withdraw_all(agent, actor, _NOTE, entry.retention)
    cancelled = [
        agent.runs.cancel(run.id, actor, entry.retention, _NOTE) is None
        for run in _open_runs(agent)
    ]
    Abandoner(agent, dispatcher, entry.retention).abandon(_NOTE, actor, last=True)
    return Retired(agent_id=entry.id, approvals=withdrawn, runs=sum(cancelled))


def pending_approvals(agent: AgentStore) -> Iterator[ApprovalItem]:
    """The pending approvals of an agent, page by page."""
    cursor = None
    while True:
        page = agent.approvals.page(_PAGE, cursor, history=False)
        yield from page.pending
        cursor = page.next_cursor
        if cursor is None:
            return


def _open_runs(agent: AgentStore) -> Iterator[Run]:
    states: tuple[RunStatus, ...] = ("pending", "investigating")
    for status in states:
        cursor = None
        while True:
            page = agent.runs.page(_PAGE, cursor, status=status)
            yield from page.runs
            cursor = page.next_cursor
            if cursor is None:
                break


#: The most investigations that are cancelled at once; further ones end with their next step.
_MOST = 10_000
_REVOCATION_NOTE = "the agent's right to act is revoked"


def revoke(store: Store, agent_id: str, actor: Actor, reason: str | None = None) -> RevokedAgent:
    """Revoke an agent's right to act, withdraw its approvals and cancel its investigations.

    The right ends first, in one step: what comes after cannot let anything through. Repeating it
    completes it.

    Raises:
        StoreError: Redis did not confirm it.
    """
    store.freezes.revoke(agent_id, reason_text(actor.principal, reason), actor)
    agent = store.agent(agent_id)
    return RevokedAgent(
        agent_id=agent_id,
        revoked=agent.loop_control.status().revoked,
        approvals=_withdraw_all(agent, actor, _REVOCATION_NOTE, agent.retention()),
        investigations=_cancel_all(agent, actor),
    )


def _withdraw_all(agent: AgentStore, actor: Actor, note: str, retention: Retention) -> int:
    answer = ItemAnswer("withdrawn", actor, note)
    return sum(
        agent.approvals.resolve(item.id, answer, item.required, retention).counts
        for item in pending_approvals(agent)
    )


def _cancel_all(agent: AgentStore, actor: Actor) -> int:
    investigations = agent.investigations
    return sum(investigations.cancel(id, actor) == "ok" for id in investigations.open(_MOST))
