"""Executes the steps of one procedure, and undoes them, through the ledger and its checks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from boyd import naming
from boyd.agent.procedure_plans import acting, action_of, compensation_of, params_of
from boyd.models import (
    LEVELS,
    NO_SITUATION,
    ActionResult,
    Actor,
    ApprovalItem,
    Decision,
    Fence,
    Json,
    JsonObject,
    Level,
    ProcedureRecord,
    ProcedureStep,
    StepAction,
    StepCompensation,
    StepProgress,
)
from boyd.phases import action_call
from boyd.phases.act_request import ActRequest, ProposalTerms, Requester
from boyd.plugin import Action
from boyd.plugin.composed_action import ASK, Procedure
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.action_jobs import is_by_hand, run_action
from boyd.runtime.jobs.job_runner import Elsewhere, Fields, find_action
from boyd.store import ItemAnswer
from boyd.text import queues
from boyd.text.redaction import clean
from boyd.text.references import fill

#: The reason to skip a step that a person denied.
DENIED = "a person denied it"
#: The most characters of a procedure's target and parameters in a question.
_LONGEST = 2000
_REFUSALS = {
    "denied": DENIED,
    "expired": "nobody answered in time",
    "withdrawn": "the approval request was withdrawn",
}


@dataclass(frozen=True)
class _StepRun:
    """One execution of a step, or of what undoes it.

    Attributes:
        undoes: the execution that it rolls back.
        each: a person has to approve it by itself.
        repeats: the approval of the procedure does not cover a further try.
        compensates: whether it undoes the step.
        polls: it is repeated until its output is as expected.
        origin: identifies the proposal of a rollback.
    """

    execution: str
    action: str
    params: JsonObject
    reason: str
    undoes: str | None = None
    each: bool = False
    repeats: bool = False
    compensates: bool = False
    polls: bool = False
    origin: str = ""


class ProcedureSteps:
    """The executions of one procedure, or for the *item* of one target, under a job's fence."""

    def __init__(
        self,
        engine: Engine,
        record: ProcedureRecord,
        fence: Fence,
        fields: Fields,
        item: Json = None,
    ) -> None:
        self._engine = engine
        self._record = record
        self._fence = fence
        self._fields = fields
        self._queue = fields.get("queue") or queues.ACT
        self._item = item
        self._job = str(fence.origin)
        self._ledger = engine.store.executions

    def action(self, id: str) -> Action | None:
        """The action of that id, if the agent has it."""
        return self._engine.agent.host.actions.get(id)

    def values(self) -> dict[str, Any]:
        """The values that references and conditions may use now."""
        pairs = zip(self._record.steps, self._record.progress, strict=True)
        return {
            "params": self._record.params,
            "steps": {s.id: self._step_value(p) for s, p in pairs},
            "item": self._item,
        }

    def name(self, step: ProcedureStep, progress: StepProgress) -> str:
        """The name of the next execution of a step."""
        id = f"{step.id}.else" if progress.instead else step.id
        return naming.step(self._record.id, id, progress.polls + progress.tries)

    def was_claimed(self, execution: str) -> bool:
        """Report whether an execution was ever claimed."""
        return self._ledger.get(execution) is not None

    def result(self, execution: str | None) -> ActionResult | None:
        """The result of an execution that has ended."""
        return self._ledger.result(execution) if execution else None

    def execute(self, step: ProcedureStep, execution: str, repeats: bool) -> ActionResult:
        """Execute a step once, or propose it to a person; *repeats* after a person has ordered it.

        Raises:
            MissingValue: one of its params has no value.
            StillRunning: another live worker executes it.
        """
        planned = action_of(step)
        params = params_of(step, self.values())
        reason = f"step {step.id} of {self._record.action}, started as {self._record.id}"
        if step.ask is not None:
            reason += self._circumstances()
        polls = step.until is not None
        each = self._record.approve == "each" and not polls
        run = _StepRun(
            execution, planned.action, params, reason, each=each, repeats=repeats, polls=polls
        )
        return self._run(run)

    def undo(
        self, step: ProcedureStep, done: StepProgress, undone: StepCompensation
    ) -> ActionResult:
        """Undo a step once, by its rollback or by an action.

        Raises:
            MissingValue: one of the params has no value.
            StillRunning: another live worker does it.
        """
        planned = compensation_of(step, self.action(action_of(step).action))
        reason = f"undoes step {step.id} of {self._record.action}: {self._record.reason}"
        execution = undone.execution or ""
        rolled = self._ledger.result(naming.rollback(done.execution or ""))
        if isinstance(planned, StepAction) and rolled and rolled.success:
            return rolled
        if isinstance(planned, StepAction):
            params = fill(planned.params, self.values())
            return self._run(_StepRun(execution, planned.action, params, reason, compensates=True))
        entry = self._ledger.get(done.execution or "")
        if entry is None:
            return action_call.failure(
                action_of(step).action, f"{done.execution} is no longer kept"
            )
        # An approval that was withdrawn does not stand in the way of a repetition.
        origin = naming.compensation(self._record.id, step.id, undone.tries)
        run = _StepRun(
            execution, entry.action, entry.params, reason, entry.id, compensates=True, origin=origin
        )
        return self._run(run)

    def compensation_name(self, step: ProcedureStep, done: StepProgress, tries: int) -> str | None:
        """Return the name of the execution that undoes a step, or None if nothing does."""
        planned = compensation_of(step, self.action(action_of(step).action))
        if planned is None:
            return None
        if isinstance(planned, StepAction):
            return naming.compensation(self._record.id, step.id, tries)
        return naming.rollback(done.execution or "")

    def answer(self, approval_id: str) -> ActionResult | str | None:
        """Return the result of an approved step or the reason to skip it, or None while pending."""
        item = self._engine.store.approvals.get(approval_id)
        if item is None:
            return self._ledger.result(naming.approval(approval_id)) or "its approval is gone"
        if item.result is not None:
            return item.result
        refusal = _REFUSALS.get(item.status)
        return f"{refusal}: {item.note}" if refusal and item.note else refusal

    def withdraw(self, approval_id: str, reason: str) -> bool:
        """Withdraw an approval, if it is pending; return False if a person has just given it."""
        approvals = self._engine.store.approvals
        item = approvals.get(approval_id)
        if item is None or item.status != "pending":
            return item is None or item.status != "approved"
        by, keep = Actor(principal=f"agent:{self._engine.agent.id}"), self._engine.retention
        answer = ItemAnswer("withdrawn", by, reason[:500])
        return approvals.resolve(item.id, answer, item.required, keep).counts

    def _run(self, run: _StepRun) -> ActionResult:
        # First the ledger: nothing may refuse afterwards what was executed.
        if self.was_claimed(run.execution) and (
            result := self._ledger.settle(run.execution, self._job)
        ):
            return result
        action = find_action(self._engine, run.action, self._fields)
        if action is None:
            return action_call.no_such_action(run.action)
        if isinstance(action, Procedure):
            reason = f"{action.id} is a procedure by now, and a step cannot be one"
            return action_call.failure(action.id, reason)
        queue = action.queue or queues.ACT
        if queue != self._queue:
            if self._engine.fleet.serving(queue):
                raise Elsewhere(action.id, queue)
            missing = queues.no_worker_message(queue)
            return action_call.failure(action.id, missing, prevented="unserved")
        decision = Decision(
            action=run.action,
            params=run.params,
            rationale=run.reason,
            confidence=self._record.confidence,
            risk=self._risk_ahead() if action.id == ASK else action.risk,
            requires_approval=run.each,
        )
        covered = not (run.each or run.repeats) and self._is_covered(action, decision)
        request = ActRequest(
            execution_id=run.execution,
            decision=decision,
            requester=Requester(
                self._record.by,
                tuple(self._record.requesters),
                by_hand=run.polls or is_by_hand(self._engine, self._record.id),
                decided_at=self._record.started_at,
                writer=self._record.action,
            ),
            proposal=ProposalTerms(run.origin, wakes=self._job),
            approved=covered,
            asked_by=self._record.action if run.each else None,
            retry=True,
            undoes=run.undoes,
            within=naming.steps_of(self._record.id),
            compensates=run.compensates,
            fence=self._fence,
        )
        return run_action(self._engine, self._engine.ledger(), request)

    def _circumstances(self) -> str:
        """The target and parameters of the procedure, without secrets."""
        record = self._record
        on = f" on {record.target}" if record.target else ""
        params = json.dumps(record.params, ensure_ascii=False) if record.params else ""
        return clean(f"{on}, with {params}" if params else on)[:_LONGEST]

    def _risk_ahead(self) -> Level:
        """The highest risk of the steps that follow, or of the procedure as it was declared."""
        procedure = self.action(self._record.action)
        declared = procedure.declared_risk if isinstance(procedure, Procedure) else "low"
        planned = acting(self._record.steps[self._record.at + 1 :])
        following = [self.action(step.action) for step in planned]
        risks = [action.risk for action in following if action is not None]
        return max([declared, *risks], key=LEVELS.index)

    def _is_covered(self, action: Action, decision: Decision) -> bool:
        """Report whether the approval of the whole procedure satisfies the policy of a step."""
        item = self._approval()
        if item is None or item.action_id != self._record.action or action.id == ASK:
            return False
        situation = item.situation or NO_SITUATION
        circumstances = self._engine.act_context().circumstances(action, decision, situation)
        signer = self._engine.settings.signer
        votes = signer.valid_votes(item) if signer else item.approvals
        required = self._engine.agent.policy(circumstances)
        code = self._engine.agent.code_of(item.action_id)
        if "same" in (required.code, item.required.code) and code != item.code:
            return False
        own = () if required.allow_requester else item.requested_by
        counted = [
            vote
            for vote in votes
            if vote.by not in own and (vote.note or not required.require_note)
        ]
        return required.is_met_by(counted)

    def _approval(self) -> ApprovalItem | None:
        kind, id = naming.parts(self._record.id)
        return self._engine.store.approvals.get(id) if kind == "approval" else None

    def _step_value(self, progress: StepProgress) -> dict[str, Any]:
        if progress.wave is not None:
            counts = {"done": progress.wave.count("done"), "failed": progress.wave.failures}
            return {"state": progress.state, "output": {"total": progress.wave.total, **counts}}
        result = self.result(progress.execution) if progress.took_effect else None
        return {"state": progress.state, "output": result.output if result else None}
