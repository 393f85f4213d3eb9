"""The act phase: the single path that executes an action, wherever it comes from."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from boyd.agent.procedure_plans import keep_rollback
from boyd.errors import ActionHeld, AgentRevoked, SecretUnavailable, Veto
from boyd.models import (
    APPROVAL_REQUIRED,
    CANCELLED,
    NO_SITUATION,
    ActionResult,
    Claim,
    ClaimOutcome,
    ExecutionEntry,
    ExecutionRequest,
    Fence,
    Gate,
    JsonObject,
    Level,
    ProcedureRecord,
    Proposal,
)
from boyd.phases.act_request import ActRequest
from boyd.phases.action_call import (
    call_action,
    failure,
    no_such_action,
    sandbox_obstacle,
    with_secrets,
    without_secrets,
)
from boyd.phases.attempt import (
    Attempt,
    ask_for_doubt,
    check_need,
    check_rights,
    check_secrets,
    execution_request,
)
from boyd.phases.gate import conclude, judge, refuse
from boyd.phases.phase_context import PhaseContext, describe
from boyd.phases.proposals import make_proposal, preview
from boyd.plugin import Context, Procedure
from boyd.plugin.plugin_boundary import params_to_json, validate, with_defaults

_UNGRANTED = "the grant to run alone in such situations has ended"


class Ledger(Protocol):
    """The executions; each is claimed before it starts, so it happens at most once."""

    def result(self, execution_id: str) -> ActionResult | None:
        """Return the result of an execution that has ended, or None."""

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """Return the entry of an execution that was claimed, or None."""

    def claim(self, execution: ExecutionRequest) -> Claim:
        """Claim an execution atomically."""

    def forgo(self, execution_id: str, fence: Fence) -> Claim:
        """Give up an execution; the claim tells of an earlier attempt."""

    def shorten(self, result: ActionResult, principal: str) -> ActionResult:
        """The result as far as the storage budget of *principal* has room for it."""

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the result; return False if the claim was lost meanwhile."""

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """Let a job continue the claimed execution; return False if the claim was lost."""


class ApprovalGateway(Protocol):
    """Queues proposals for people to approve."""

    def propose(self, proposal: Proposal, execution_id: str, by_machine: bool = False) -> str:
        """Queue *proposal* or join the same one; return its id, empty if its runs were cancelled.

        Raises:
            ActionHeld: it is proposed *by_machine*, and in flight on its target; or it was denied
                there since the iteration has decided on it.
        """

    def waits(self, proposal: Proposal) -> bool:
        """Report whether the same proposal is already pending."""

    def approval_of(self, execution_id: str) -> str | None:
        """Return the approval that an earlier attempt of an execution asked for, or None."""


def act(
    ctx: PhaseContext, request: ActRequest, ledger: Ledger, approvals: ApprovalGateway
) -> tuple[ActionResult, Gate | None]:
    """Execute an action or queue it for approval; errors of the action become its result.

    The gate's verdict is that on an action which nobody has approved.
    """
    action = ctx.host.actions.get(request.decision.action)
    if action is None:
        result = no_such_action(request.decision.action)
        return result, refuse(result)
    situation, undoes = request.situation or NO_SITUATION, request.undoes is not None
    circumstances = ctx.circumstances(action, request.decision, situation, undoes)
    verdict = request.gate
    if verdict is None and not request.approved:
        verdict = judge(ctx.agent, circumstances, request.asked_by)
    attempt = Attempt(ctx, circumstances, request, verdict)
    result = _Course(attempt, ledger, approvals).run()
    verdict = attempt.verdict
    return result, conclude(ctx.agent, circumstances, verdict, result) if verdict else None


class _Course:
    """The course of one attempt, from an earlier outcome to the call of the action."""

    def __init__(self, attempt: Attempt, ledger: Ledger, approvals: ApprovalGateway) -> None:
        self.attempt = attempt
        self.ctx = attempt.ctx
        self.action = attempt.action
        self.request = attempt.request
        self.ledger = ledger
        self.approvals = approvals

    def run(self) -> ActionResult:
        request = self.request
        if request.retry and (earlier := self._earlier_outcome()):
            return earlier
        result = self._attempt()
        # A call that was cancelled is this worker's no longer.
        if result.prevented in (None, "cancelled") or request.fence is None:
            return result
        return self._forgo(result)

    def _attempt(self) -> ActionResult:
        request = self.request
        if request.undoes and (outcome := self._find_execution_to_undo(request.undoes)):
            return outcome
        refusal = check_rights(self.attempt) or check_secrets(self.attempt, request.decision.params)
        if refusal:
            return refusal
        # What was claimed by an earlier attempt has passed the gate, whatever time it is now.
        verdict = self.attempt.verdict
        if verdict and not self._has_begun_before:
            if verdict.outcome == "refused":
                return failure(self.action.id, verdict.reason, prevented="closed")
            if verdict.outcome == "asked":
                return self._propose(verdict.reason)
            if doubt := ask_for_doubt(self.attempt):
                # What is declared of it may no longer be true.
                return self._ask(doubt, "high")
        if request.obstacle:
            return self._forgo(failure(self.action.id, request.obstacle))
        return self._execute()

    def _earlier_outcome(self) -> ActionResult | None:
        """The outcome of a lost attempt: a decision never has two outcomes."""
        request = self.request
        result = self.ledger.result(request.execution_id)
        if result or (request.approved and not request.proposal.wakes):
            return result
        approval_id = self.approvals.approval_of(self.attempt.proposer)
        return self._wait_for(approval_id) if approval_id else None

    def _find_execution_to_undo(self, execution_id: str) -> ActionResult | None:
        """Find the execution to roll back; return the result if that is impossible or done."""
        entry, action = self.ledger.get(execution_id), self.action
        if not action.has("rollback"):
            return failure(action.id, "The action has no rollback")
        if entry is None or entry.state != "succeeded":
            state = f"{entry.id} is {entry.state}" if entry else "no such execution"
            reason = f"Only a successful execution can be rolled back: {state}"
            return failure(action.id, reason)
        if entry.action != action.id:
            return failure(action.id, f"{entry.id} executed {entry.action}, not this action")
        self.attempt.undone = entry
        # Already rolled back: no further approval needed.
        return self.ledger.result(self.request.execution_id)

    def _ask(self, reason: str, least_risk: Level = "low") -> ActionResult:
        """Propose the action although it had passed the gate, as of at least that risk."""
        self.attempt.require_approval(reason)
        return self._propose(reason, least_risk)

    def _forgo(self, refusal: ActionResult) -> ActionResult:
        """The *refusal*, unless the action has begun before Redis or its worker was lost."""
        request = self.request
        assert request.fence is not None, "only an iteration or job forgoes its execution"
        claim = self.ledger.forgo(request.execution_id, request.fence)
        is_unknown = claim.outcome is ClaimOutcome.UNKNOWN
        return claim.result or (self._refusal(claim, "") if is_unknown else refusal)

    def _refusal(self, claim: Claim, reason: str) -> ActionResult:
        """The result of an execution that the ledger has refused, or else for that *reason*."""
        lost, error = claim.outcome is ClaimOutcome.UNKNOWN, claim.refusal or reason
        return failure(self.action.id, error, lost=lost, prevented=claim.prevention)

    def _execute(self) -> ActionResult:
        veto = self._run_before_hooks()
        if veto:
            return self._run_after_hooks(failure(self.action.id, veto, prevented="vetoed"))
        try:
            params = validate(self.action, self.request.decision.params)
            self.attempt.plan()
        except ValueError as error:
            return self._run_after_hooks(failure(self.action.id, str(error)))
        if reason := sandbox_obstacle(self.ctx, self.action):
            return self._run_after_hooks(failure(self.action.id, reason, prevented="unsandboxed"))
        stored = params_to_json(params)
        if self._is_checked_before() and (outcome := check_need(self.attempt, stored)):
            return self._run_after_hooks(outcome)
        if refusal := check_secrets(self.attempt, stored):
            return self._run_after_hooks(refusal)
        try:
            params = with_secrets(self.ctx, self.action, params, stored)
        except ValueError as error:
            return self._run_after_hooks(failure(self.action.id, str(error)))
        except SecretUnavailable as error:
            reason = f"Not executed: {error}"
            return self._run_after_hooks(failure(self.action.id, reason, prevented="unresolved"))
        return self._claim_and_execute(params, stored)

    def _claim_and_execute(self, params: Any, stored: JsonObject) -> ActionResult:
        claim = self.ledger.claim(execution_request(self.attempt, stored))
        if verdict := self.attempt.verdict:
            self.attempt.verdict = verdict.patched({"used": claim.used})
        if claim.result:
            return claim.result
        if claim.outcome is ClaimOutcome.OVER_BUDGET:
            target = self.action.target_of(stored) or "this action"
            return self._ask(f"budget for {target} is used up")
        if claim.outcome is ClaimOutcome.UNGRANTED:
            return self._ask(_UNGRANTED)
        if claim.outcome is not ClaimOutcome.CLAIMED:
            return self._run_after_hooks(self._refusal(claim, "Not executed"))
        if isinstance(self.action, Procedure):
            return self._run_after_hooks(self._begin(self.action, stored, claim.token))
        return self._run_after_hooks(self._call_and_finish(params, claim.token))

    def _is_checked_before(self) -> bool:
        """Report whether its effect is checked before it begins.

        It is not if it has begun before, undoes something, or was ordered by hand.
        """
        request, plan = self.request, self.ctx.agent.verification(self.action.id)
        if plan is None or not plan.before:
            return False
        if request.requester.by_hand or self.attempt.undoes_something:
            return False
        return not self._has_begun_before

    @property
    def _has_begun_before(self) -> bool:
        """True if an earlier attempt has claimed it."""
        return self.request.retry and self.ledger.get(self.request.execution_id) is not None

    def _run_after_hooks(self, result: ActionResult) -> ActionResult:
        """Run the hooks after the attempt and return *result*."""
        self.ctx.run_hooks("on_after_act", result=result)
        return result

    def _run_before_hooks(self) -> str | None:
        """Run the hooks before the attempt, and return the reason if they stop the action."""
        params = self.request.decision.params
        blocked = len(self.ctx.blocks)
        for hook in self.ctx.host.hooks("on_before_act"):
            answer = self.ctx.hook(hook, action=self.action, params=params)
            if isinstance(answer, Veto):
                return f"Vetoed by {hook.plugin_id}: {answer}"
            if answer is not None:
                self.ctx.report_hook(hook, f"returned {answer!r}: raise Veto to stop the action")
        return self.ctx.blocks[blocked].reason if len(self.ctx.blocks) > blocked else None

    def _begin(self, procedure: Procedure, params: JsonObject, token: str) -> ActionResult:
        """Start a procedure, which goes on without this worker."""
        here = self.ctx.context(procedure.plugin_id)
        now, id = here.now(), self.request.execution_id
        result = ActionResult(
            action=procedure.id,
            success=True,
            duration=0.0,
            procedure=id,
            host=here.host,
            worker=here.worker,
        )
        record = ProcedureRecord(
            id=id,
            action=procedure.id,
            params=params,
            target=procedure.target_of(params),
            state="running",
            steps=[keep_rollback(step, self.ctx.host.actions) for step in self.attempt.plan()],
            approve=procedure.approve,
            by=self.attempt.by,
            requesters=list(self.request.requester.principals),
            confidence=self.request.decision.confidence,
            started_at=now,
            until=now + timedelta(seconds=procedure.within),
        )
        if self.ledger.begin(token, record, result):
            return result
        return failure(procedure.id, "the worker lost its claim before it started")

    def _call_and_finish(self, params: Any, token: str) -> ActionResult:
        action, requester = self.action, self.request.requester
        here = self.ctx.context(action.plugin_id)
        result = self._call(
            params,
            replace(here, execution_id=self.request.execution_id, requester=self.attempt.principal),
        )
        result = result.patched({"host": here.host, "worker": here.worker})
        if requester.for_model:
            result = without_secrets(result)
        if requester.principals:
            result = self.ledger.shorten(result, requester.principals[0])
        if not self.ledger.finish(self.request.execution_id, token, result):
            note = (
                "the worker lost its claim while executing; another one may have reported the "
                "outcome as unknown"
            )
            self.ctx.report(action.id, note)
        return result

    def _call(self, params: Any, here: Context) -> ActionResult:
        undone = self.attempt.undone
        if undone is None:
            return call_action(self.ctx, self.action, "execute", params, here)
        return call_action(self.ctx, self.action, "rollback", params, here, undone.result)

    def _propose(self, reason: str, least_risk: Level = "low") -> ActionResult:
        """Queue the action for approval, unless its params are invalid."""
        action, request = self.action, self.request
        try:
            params = with_defaults(action, request.decision.params)
            self.attempt.plan()
        except Exception as error:  # noqa: BLE001 - the plugin's own validation
            text = str(error) if isinstance(error, ValueError) else describe(error)
            return failure(action.id, text)
        proposal = make_proposal(self.attempt, reason, least_risk, params)
        if action.has("dry_run") and not request.undoes and not self.approvals.waits(proposal):
            proposal = proposal.patched({"preview": preview(self.attempt)})
        try:
            by_machine = self.attempt.is_by_machine
            approval_id = self.approvals.propose(proposal, self.attempt.proposer, by_machine)
        except AgentRevoked as error:
            return failure(action.id, str(error), prevented="revoked")
        except ActionHeld as error:
            return failure(action.id, str(error), prevented="held")
        if not approval_id:
            return failure(action.id, CANCELLED, prevented="cancelled")
        return self._wait_for(approval_id)

    def _wait_for(self, approval_id: str) -> ActionResult:
        return failure(self.action.id, APPROVAL_REQUIRED).patched({"waits_for": approval_id})
