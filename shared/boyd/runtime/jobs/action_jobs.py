"""Actions outside iterations: those people approved, and those a client or a model requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from boyd import naming
from boyd.agent.agent_rules import Circumstances
from boyd.agent.procedure_plans import fits
from boyd.agent.secret_rules import CHECKED
from boyd.models import (
    NO_SITUATION,
    ActionPerformed,
    ActionResult,
    ApprovalItem,
    Decision,
    DecisionTrace,
    Fence,
    JsonObject,
    RunResult,
    RunStatus,
)
from boyd.phases import act, action_call, decide
from boyd.phases.act import Ledger
from boyd.phases.act_request import ActRequest, CountingTerms, ProposalTerms, Requester
from boyd.plugin import Procedure
from boyd.runtime.autonomy.case_draws import CaseDraws
from boyd.runtime.autonomy.offers import AutonomyOffers
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import (
    Done,
    Elsewhere,
    Fields,
    JobFailure,
    JobHandler,
    find_action,
)
from boyd.store import RunEnding, StuckJob, WaitsForTurn, fingerprint, read_item
from boyd.text import queues
from boyd.text.formatting import seconds

#: Seconds for which an order waits for another execution on its target: after that, it may no
#: longer be wanted.
PATIENCE = 3600.0
_UNSIGNED = (
    "Refused: its approval was altered, or was not signed with the approval_secret or key of this "
    "worker: give the same one to workers and API, and approve the action again"
)


def run_action(engine: Engine, ledger: Ledger, request: ActRequest) -> ActionResult:
    """Execute an action or queue it for approval: decide hooks, gate, act hooks, ledger."""
    ctx = engine.act_context()
    situation = engine.store.history.situation()
    decision, trace = decide.review(ctx, request.decision, situation or NO_SITUATION)
    if decision.is_no_op:
        return _not_chosen(request.decision.action, trace, decision)
    if request.proposal.by_person:
        decision = decision.patched({"requires_approval": True})
    reviewed = replace(
        request,
        decision=decision,
        approved=request.approved and _is_same(decision, request.decision),
        situation=situation,
        asked_by=trace.approval_required_by or request.asked_by,
    )
    result, _ = act.act(ctx, reviewed, ledger, engine.approvals)
    return result


def in_turn(
    engine: Engine, action: str, ordered: datetime, execute: Callable[[], ActionResult]
) -> ActionResult:
    """Execute what was *ordered* then, or give it up when it has waited too long for its turn.

    Raises:
        WaitsForTurn: another execution of the action is in flight on its target.
    """
    try:
        return execute()
    except WaitsForTurn as waits:
        if (engine.store.clock.read() - ordered).total_seconds() < PATIENCE:
            raise
        other = naming.short(waits.other)
        reason = f"{other} has not ended within {seconds(PATIENCE)}; ask for it again"
        return action_call.failure(action, f"Not executed: {reason}", prevented="held")


def is_by_hand(engine: Engine, execution: str) -> bool:
    """Check whether a client has ordered an execution, or the procedure that it is a step of."""
    kind, id = naming.parts(execution)
    item = engine.store.approvals.get(id) if kind == "approval" else None
    return kind == "call" if item is None else _is_ordered(engine, item)


def _is_ordered(engine: Engine, item: ApprovalItem) -> bool:
    """Check the same of an approved item: neither the loop nor a model has proposed it."""
    if not item.wakes:
        by_loop = item.run_ids or f"agent:{item.agent_id}" in item.requested_by
        return bool(item.requested_by) and not by_loop
    procedure = naming.procedure_of(item.wakes[0])
    return procedure is not None and is_by_hand(engine, procedure)


def _is_same(decision: Decision, other: Decision) -> bool:
    """Report whether hooks have left a decision as it was approved."""
    names = ("action", "params", "risk", "confidence", "requires_approval")
    return all(getattr(decision, name) == getattr(other, name) for name in names)


def _not_chosen(action: str, trace: DecisionTrace, decision: Decision) -> ActionResult:
    refusal = trace.vetoed or trace.invalid
    if refusal is None:
        return action_call.failure(action, decision.rationale)
    reason = f"Vetoed by {refusal.by}: {refusal.reason}"
    return action_call.failure(action, reason, prevented="vetoed")


def give_up_execution(engine: Engine, execution: str, action: str, stuck: StuckJob) -> ActionResult:
    """Return the result of an execution that no worker completed."""
    worker = stuck.worker.partition("/")[0]
    reason = f"no worker took it from queue {stuck.queue or queues.ACT!r}"
    if worker:
        reason = f"its workers were lost before it started, the last one was {worker}"
    result = engine.store.executions.settle(execution)
    return result or action_call.failure(action, f"Not executed: {reason}", prevented="unserved")


class ApprovedActionHandler(JobHandler):
    """Executes approved items, each once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._approvals = engine.store.approvals
        self._draws = CaseDraws(engine)
        self._offers = AutonomyOffers(engine)

    def limit(self, fields: Fields) -> float:
        """Seconds one execution may take."""
        return self._engine.action_limit(fields.get("actionId"))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done:
        """Execute the approved action: decide hooks, gate, budgets and holds no longer bind it."""
        item = read_item(fields)
        if item.action_id == naming.GRANT:
            return self._finish(id, self._act(item, fence, retry))
        action = find_action(self._engine, item.action_id, fields)
        if action is None:
            return self._fail(id, fields, action_call.describe_unknown(item.action_id))
        queue = action.queue or queues.ACT
        # Its plugin may have given it to other workers since the proposal.
        if queue != (item.queue or queues.ACT) and not self._engine.settings.may_take(queue):
            raise Elsewhere(item.action_id, queue)
        return self._finish(id, self._act(item, fence, retry))

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done:
        """End with the ledger's result, or as failed."""
        return self._fail(id, fields, failure.reason)

    def _fail(self, id: str, fields: Fields, reason: str) -> Done:
        result = self._engine.store.executions.settle(read_item(fields).execution_id)
        return self._finish(id, result or action_call.failure(fields["actionId"], reason))

    def handle_loss(self, id: str, stuck: StuckJob) -> Done | None:
        """End with the ledger's result, unless the action may be executed now."""
        execution = _execution(self._approvals.get(id), id)
        result = self._engine.store.executions.settle(execution, naming.approval(id))
        return None if result is None else self._finish(id, result)

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """End with the ledger's result."""
        item = self._approvals.get(id)
        action = item.action_id if item else "unknown"
        result = give_up_execution(self._engine, _execution(item, id), action, stuck)
        return self._finish(id, result)

    def _act(self, item: ApprovalItem, fence: Fence, retry: bool) -> ActionResult:
        if fingerprint(item) != item.fingerprint:
            reason = "Refused: the action or its params differ from those that were approved"
            return action_call.failure(item.action_id, reason, prevented="refused")
        if item.action_id == naming.GRANT:
            return self._offers.grant(item, fence)
        if refusal := self._policy_refusal(item):
            return action_call.failure(item.action_id, refusal, prevented="refused")
        request = ActRequest(
            execution_id=item.execution_id,
            decision=_decision(item),
            requester=Requester(
                by=item.acted_by or "",
                principals=tuple(item.requested_by),
                for_model=any(naming.parts(name)[0] == "investigation" for name in item.wakes),
                by_hand=_is_ordered(self._engine, item),
                ordered_at=item.resolved_at,
                decided_at=item.resolved_at,
                writer=CHECKED,
            ),
            approved=True,
            counting=CountingTerms(item.record, self._trial(item)),
            retry=retry,
            undoes=item.undoes,
            proposal=ProposalTerms(plan=tuple(item.plan)),
            fence=fence,
        )
        engine, ledger = self._engine, self._engine.ledger()
        return in_turn(
            engine,
            item.action_id,
            item.resolved_at or item.updated_at,
            lambda: act.act(engine.act_context(), request, ledger, engine.approvals)[0],
        )

    def _policy_refusal(self, item: ApprovalItem) -> str | None:
        """Return why the current policy refuses it or its approvals do not count, if so."""
        action = self._engine.agent.host.actions[item.action_id]
        if isinstance(action, Procedure) and not fits(action.steps_to_approve, item.plan):
            return "Refused: the steps of the procedure differ from those that were approved"
        if (target := action.final_target(item.params)) != item.target:
            return f"Refused: its target is {target!r} now; {item.target!r} was approved"
        required = self._engine.agent.policy(self._circumstances(item))
        if not required.is_met_by(item.approvals):
            return "Refused: the policy has been tightened since the approval"
        code = self._engine.agent.code_of(item.action_id)
        if "same" in (required.code, item.required.code) and code != item.code:
            then = item.code or "unknown code"
            return f"Refused: its code has changed since it was proposed: {then} then, {code} now"
        signer = self._engine.settings.signer
        is_signed = signer is None or required.is_met_by(signer.valid_votes(item))
        return None if is_signed else _UNSIGNED

    def _trial(self, item: ApprovalItem) -> JsonObject | None:
        """The draw of its case, unless it must not wait: no run does."""
        record = item.record
        if record is None or item.run_ids or not item.may_wait:
            return None
        circumstances = self._circumstances(item)
        return self._draws.plan(circumstances, item.execution_id, record.situation, record.label)

    def _circumstances(self, item: ApprovalItem) -> Circumstances:
        """Rebuild the circumstances of its proposal, with the approved params."""
        action, situation = self._engine.agent.host.actions[item.action_id], item.situation
        decision = _decision(item)
        return Circumstances(action, decision, situation or NO_SITUATION, lambda: item.created_at)

    def _finish(self, id: str, result: ActionResult) -> Done:
        # Read again: more runs may have joined the item since the job was entered.
        item = self._approvals.get(id)
        status: RunStatus = "completed" if result.is_fine else "failed"
        runs: list[RunEnding] = [
            (run_id, status, self._run_result(run_id, result))
            for run_id in (item.run_ids if item else [])
        ]
        keep = self._engine.retention.max_age
        return Done(result.state, keep, {"result": result.to_json()}, runs)

    def _run_result(self, run_id: str, result: ActionResult) -> RunResult:
        """The run's findings from its iteration, with the action performed now."""
        run = self._engine.store.runs.get(run_id)
        performed = [ActionPerformed.of(result)]
        if run is not None and run.result is not None:
            return run.result.patched({"actions_performed": performed})
        return RunResult(
            summary=performed[0].description,
            findings=[],
            actions_performed=performed,
            loop_iterations=1,
            duration=result.duration,
        )


def _decision(item: ApprovalItem) -> Decision:
    return item.decision.patched({"action": item.action_id, "params": item.params})


def _execution(item: ApprovalItem | None, id: str) -> str:
    """The ledger's name for the execution of an item."""
    return naming.rollback(item.undoes) if item and item.undoes else naming.approval(id)
