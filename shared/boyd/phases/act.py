"""The act phase: the single path that executes an action, wherever it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from boyd.agent.agent_rules import Circumstances
from boyd.errors import ActionHeld, AgentRevoked, Veto
from boyd.models import (
    APPROVAL_REQUIRED,
    CANCELLED,
    LEVELS,
    NO_SITUATION,
    ActionResult,
    Claim,
    ClaimOutcome,
    Concurrency,
    Decision,
    ExecutionEntry,
    ExecutionRequest,
    ExecutionTerms,
    Fence,
    Gate,
    JsonObject,
    ProcedureRecord,
    Proposal,
    Situation,
    TrackRecord,
)
from boyd.phases.action_call import call_action, failed, unenforced, unknown, without_secrets
from boyd.phases.gate import GateAnswer, gate, passed
from boyd.phases.phase_context import PhaseContext, describe
from boyd.phases.preview import dry_run
from boyd.plugin import Action, Context, Procedure
from boyd.plugin.parameters import plain, validate

_UNGRANTED = "the grant to run alone in such situations has ended"


class Ledger(Protocol):
    """The executions; each is claimed before it starts, so it happens at most once."""

    def find(self, execution_id: str) -> ActionResult | None:
        """The result of that execution, if it has ended."""

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """The entry of that execution, if it was ever claimed."""

    def claim(self, execution: ExecutionRequest) -> Claim:
        """Claim an execution atomically."""

    def forgo(self, execution_id: str, fence: Fence) -> Claim:
        """Give up an execution of an iteration for good; the claim tells of an earlier attempt."""

    def shorten(self, result: ActionResult, principal: str) -> ActionResult:
        """The result as far as the storage budget of *principal* has room for it."""

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the result; False: the claim was lost meanwhile."""

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """Let a job go on with the claimed execution; False: the claim was lost meanwhile."""


class ApprovalGateway(Protocol):
    """The approval queue, for actions that need a person's approval."""

    def propose(self, proposal: Proposal, execution_id: str, by_machine: bool = False) -> str:
        """Queue *proposal* or join the same one; its id, empty if its runs were cancelled.

        Raises:
            ActionHeld: it is proposed *by_machine*, and in flight on its target.
        """

    def waits(self, proposal: Proposal) -> bool:
        """Tell whether the same proposal is already pending."""

    def proposed(self, execution_id: str) -> str | None:
        """The approval that an earlier attempt of this execution proposed, if any."""


@dataclass(frozen=True)
class Request:
    """An action to execute or propose.

    Attributes:
        execution_id: stays the same when the request is repeated.
        approved: the request has passed the gate.
        retry: an earlier attempt may be in the ledger.
        asked_by: the plugin whose hook requires an approval.
        by_person: a person has to approve it, whatever hooks, policies and grants say.
        requested_by: the principals who request the action.
        by: the principal that the audit names.
        undoes: roll back this execution instead; all requesters share that one rollback.
        origin: identifies the proposal of a rollback.
        wakes: the job that waits for the proposal; other requests do not join it.
        for_model: redact secrets from the result before it is stored.
        unserved: the reason why this worker may only propose the action, without a dry run.
        situation: in which it was decided.
        gate_answer: the gate's answer when it was decided, if a person has to approve it.
        instead_of: why the actions that were decided first are not repeated.
        record: the track record in which an approved action counts; None: in none.
        within: the prefix of the executions of its procedure, whose holds do not bind it.
        compensates: whether it undoes a step of its procedure; no hold binds it then.
        may_wait: whether it waits until what is in flight on its target has ended.
        ordered_at: when a person has ordered it; a revocation since then ends it.
        fence: it is executed only while this holds; None: always.
    """

    execution_id: str
    decision: Decision
    situation_summary: str | None = None
    run_ids: tuple[str, ...] = ()
    approved: bool = False
    retry: bool = False
    asked_by: str | None = None
    by_person: bool = False
    requested_by: tuple[str, ...] = ()
    by: str = ""
    undoes: str | None = None
    origin: str = ""
    wakes: str = ""
    for_model: bool = False
    unserved: str = ""
    situation: Situation = NO_SITUATION
    gate_answer: GateAnswer | None = None
    instead_of: tuple[str, ...] = ()
    record: TrackRecord | None = None
    within: str = ""
    compensates: bool = False
    may_wait: bool = True
    ordered_at: datetime | None = None
    fence: Fence | None = None

    @property
    def requester(self) -> str | None:
        """The principal on whose behalf it is executed; None: the agent itself, or several."""
        if not self.approved:
            return self.by or None
        return self.requested_by[0] if len(self.requested_by) == 1 else None

    @property
    def proposer(self) -> str:
        """The id of its proposal, which stays the same when the request is repeated."""
        return self.origin or self.execution_id


def act(
    ctx: PhaseContext, request: Request, ledger: Ledger, approvals: ApprovalGateway
) -> ActionResult:
    """Execute an action or queue it for approval; errors of the action become its result.

    *ctx* receives the gate's verdict on the action of an iteration.
    """
    result = _act(ctx, request, ledger, approvals)
    if ctx.iteration is not None:
        ctx.gate = judged(ctx, request.decision, result, request.asked_by)
    return result


def _act(
    ctx: PhaseContext, request: Request, ledger: Ledger, approvals: ApprovalGateway
) -> ActionResult:
    action = ctx.host.actions.get(request.decision.action)
    if action is None:
        return unknown(request.decision.action)
    undoes = request.undoes is not None
    of = circumstances(ctx, action, request.decision, request.situation, undoes)
    ctx.circumstances = of
    if request.retry and (earlier := _earlier(action, request, ledger, approvals)):
        return earlier
    undone = _undone(action, request, ledger) if request.undoes else None
    if isinstance(undone, ActionResult):
        return undone
    answer = None if request.approved else request.gate_answer
    if not (request.approved or answer):
        answer = gate(ctx.agent, of, request.asked_by)
    ctx.gate_answer = answer
    # What was claimed by an earlier attempt has passed the gate, whatever time it is now.
    if answer and not (request.retry and ledger.get(request.execution_id)):
        if answer.outcome == "refused":
            return failed(action.id, answer.reason, prevented="closed")
        if answer.outcome == "asked":
            return _queue(ctx, of, request, approvals, answer.reason, undone)
        if doubt := _doubt(ctx, action, request):
            ctx.gate_answer = replace(answer, outcome="asked", reason=doubt, grant=None)
            asked = _raised(request)
            of = circumstances(ctx, action, asked.decision, asked.situation)
            return _queue(ctx, of, asked, approvals, doubt, undone)
    if request.unserved:
        return _forgone(action, request, ledger)
    return _Execution(ctx, of, request, ledger, approvals, undone).run()


def _doubt(ctx: PhaseContext, action: Action, request: Request) -> str | None:
    """The reason of the action itself to ask a person, although it could run alone."""
    if request.unserved or request.undoes or not action.has("doubt"):
        return None
    try:
        params = validate(action, request.decision.params)
    except ValueError:  # the execution reports it
        return None
    found = call_action(ctx, action, "doubt", params, ctx.context(action.plugin_id))
    return str(found.output or "") if found.success else found.error


def _raised(request: Request) -> Request:
    """The request with at least a high risk: what is declared may no longer be true."""
    risk = max(request.decision.risk, "high", key=LEVELS.index)
    return replace(request, decision=request.decision.patched({"risk": risk}))


def _undone(action: Action, request: Request, ledger: Ledger) -> ExecutionEntry | ActionResult:
    """The execution to roll back, or the result if that is impossible or has been done."""
    undone = ledger.get(request.undoes or "")
    if not action.has("rollback"):
        return failed(action.id, "The action has no rollback")
    if undone is None or undone.state != "succeeded":
        why = f"Only a successful execution can be rolled back: {_state(undone)}"
        return failed(action.id, why)
    if undone.action != action.id:
        return failed(action.id, f"{undone.id} executed {undone.action}, not this action")
    # Already rolled back: no further approval needed.
    return ledger.find(request.execution_id) or undone


def _forgone(action: Action, request: Request, ledger: Ledger) -> ActionResult:
    """The result of an action that must not be executed any more."""
    assert request.fence is not None, "only executions of an iteration are forgone"
    claim = ledger.forgo(request.execution_id, request.fence)
    return claim.result or _refusal(action, claim, request.unserved)


def _refusal(action: Action, claim: Claim, reason: str) -> ActionResult:
    """The result of an action whose execution the ledger has refused, or else for that *reason*."""
    lost = claim.outcome is ClaimOutcome.UNKNOWN
    return failed(action.id, claim.refusal or reason, lost=lost, prevented=claim.prevented)


def _earlier(
    action: Action, request: Request, ledger: Ledger, approvals: ApprovalGateway
) -> ActionResult | None:
    """The outcome of a lost attempt: a decision never has two outcomes."""
    found = ledger.find(request.execution_id)
    if found or (request.approved and not request.wakes):
        return found
    approval_id = approvals.proposed(request.proposer)
    return _waits(action, approval_id) if approval_id else None


def _state(entry: ExecutionEntry | None) -> str:
    return f"{entry.id} is {entry.state}" if entry else "no such execution"


def circumstances(
    ctx: PhaseContext,
    action: Action,
    decision: Decision,
    situation: Situation,
    undoes: bool = False,
) -> Circumstances:
    """The circumstances of a decision, now; with *undoes* it is to undo the action."""

    def now() -> datetime:
        return ctx.now(action.plugin_id)

    return Circumstances(action, decision, situation, now, ctx.record, undoes)


def judged(
    ctx: PhaseContext, decision: Decision, result: ActionResult, asked_by: str | None = None
) -> Gate:
    """The fate of a decided action before it was executed, and why."""
    action = ctx.host.actions.get(decision.action)
    if action is None:
        return Gate(outcome="refused", reason=result.error or "")
    of = ctx.circumstances or circumstances(ctx, action, decision, NO_SITUATION)
    answer = ctx.gate_answer or gate(ctx.agent, of, asked_by)
    automatic, earned = answer.outcome == "automatic", ctx.agent.rules.earned(action.id)
    found = Gate(
        outcome="automatic",
        reason=answer.reason if automatic else passed(ctx.agent.rules, of),
        autonomy=action.autonomy,
        risk=action.risk,
        reversibility=action.reversibility,
        budget=answer.budget or (None if automatic else ctx.agent.budget(action.id)),
        used=ctx.used,
        at=answer.at,
        record=of.record,
        at_least=earned.at_least if earned else None,
        grant=answer.grant,
    )
    if result.waits_for:
        required = ctx.agent.policy(of)
        return found.patched({"outcome": "asked", "reason": answer.reason, "required": required})
    if result.host is None and not result.unknown:
        return found.patched({"outcome": "refused", "reason": result.error or ""})
    return found


def _used_up(action: Action, params: Mapping[str, Any]) -> str:
    return f"budget for {action.target_of(params) or 'this action'} is used up"


class _Execution:
    def __init__(
        self,
        ctx: PhaseContext,
        of: Circumstances,
        request: Request,
        ledger: Ledger,
        approvals: ApprovalGateway,
        undone: ExecutionEntry | None,
    ) -> None:
        self.ctx = ctx
        self.of = of
        self.action = of.action
        self.request = request
        self.ledger = ledger
        self.approvals = approvals
        self.undone = undone

    def run(self) -> ActionResult:
        refusal = self._before()
        if refusal:
            return self._after(failed(self.action.id, refusal, prevented="vetoed"))
        try:
            params = validate(self.action, self.request.decision.params)
        except ValueError as error:
            return self._after(failed(self.action.id, str(error)))
        if why := unenforced(self.ctx, self.action):
            return self._after(failed(self.action.id, why, prevented="unsandboxed"))
        stored = plain(params)
        claim = self.ledger.claim(self._execution(stored))
        self.ctx.used = claim.used
        if claim.result:
            return claim.result
        if claim.outcome is ClaimOutcome.OVER_BUDGET:
            return self._ask(_used_up(self.action, stored))
        if claim.outcome is ClaimOutcome.UNGRANTED:
            return self._ask(_UNGRANTED)
        if claim.outcome is not ClaimOutcome.CLAIMED:
            return self._after(_refusal(self.action, claim, "Not executed"))
        if isinstance(self.action, Procedure):
            return self._after(self._begin(self.action, stored, claim.token))
        return self._after(self._execute(params, claim.token))

    def _ask(self, reason: str) -> ActionResult:
        """Ask for an approval, as the claim was refused although the gate had passed."""
        if self.ctx.gate_answer:
            self.ctx.gate_answer = replace(
                self.ctx.gate_answer, outcome="asked", reason=reason, grant=None
            )
        return _queue(self.ctx, self.of, self.request, self.approvals, reason, self.undone)

    def _after(self, result: ActionResult) -> ActionResult:
        """Run the hooks after the attempt and return *result*."""
        self.ctx.run_hooks("on_after_act", result=result)
        return result

    def _before(self) -> str | None:
        """Run the hooks before the attempt; the reason if they stop the action."""
        params = self.request.decision.params
        blocked = len(self.ctx.blocks)
        for hook in self.ctx.host.hooks("on_before_act"):
            answer = self.ctx.hook(hook, action=self.action, params=params)
            if isinstance(answer, Veto):
                return f"Vetoed by {hook.plugin_id}: {answer}"
        return self.ctx.blocks[blocked].reason if len(self.ctx.blocks) > blocked else None

    def _execution(self, params: JsonObject) -> ExecutionRequest:
        action, request = self.action, self.request
        return ExecutionRequest(
            id=request.execution_id,
            action=action.id,
            params=params,
            target=action.target_of(params),
            idempotent=action.idempotent,
            timeout=action.timeout,
            by=request.by or f"agent:{self.ctx.agent.id}",
            host=self.ctx.context(action.plugin_id).host,
            terms=self._terms(),
            fence=request.fence,
        )

    def _terms(self) -> ExecutionTerms:
        action, request, answer = self.action, self.request, self.ctx.gate_answer
        undoes = self.undone is not None
        plan = None if undoes else self.ctx.agent.verification(action.id)
        return ExecutionTerms(
            # A budget limits only what runs without a person's approval.
            budget=answer.budget if answer and not undoes else None,
            situation=self._class(),
            held=self._is_bound(undoes),
            within=request.within,
            grant=answer.grant if answer else None,
            concurrency=self._concurrency(undoes),
            verification=plan,
            counting=None if plan is None else self._counting(),
            sandbox=self.ctx.agent.sandbox(action.id),
            queue=action.queue,
            read_only=action.reversibility == "read-only",
            ordered_at=request.ordered_at,
        )

    def _class(self) -> str:
        record = self.request.record
        return record.situation if record else self.of.situation.class_for(self.action.plugin_id)

    def _counting(self) -> JsonObject | None:
        """The way in which the outcome is counted; only decisions of the agent count."""
        request = self.request
        record = self.of.record if self.ctx.iteration is not None else request.record
        return (
            record.counting(
                request.decision.confidence, self.ctx.agent.rules.earned(self.action.id)
            )
            if record
            else None
        )

    def _is_bound(self, undoes: bool) -> bool:
        """Tell whether holds bind it: a person who approves an action decides to repeat it."""
        free = undoes or self.request.approved or self.request.compensates
        return not free and self.ctx.agent.may_hold(self.action)

    def _concurrency(self, undoes: bool) -> Concurrency | None:
        limit, request = self.action.in_flight_limit, self.request
        if limit is None:
            return None
        # The loop and models decide anew.
        ordered = request.approved or not _by_machine(self.ctx, request)
        waits = ordered and request.may_wait
        return Concurrency(limit, waits, request.undoes, undoes or request.compensates)

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
            steps=list(procedure.steps),
            approve=procedure.approve,
            by=self.request.by or f"agent:{self.ctx.agent.id}",
            requesters=list(self.request.requested_by),
            confidence=self.request.decision.confidence,
            situation_class=self.request.situation.class_for(procedure.plugin_id),
            started_at=now,
            until=now + timedelta(seconds=procedure.within),
        )
        if self.ledger.begin(token, record, result):
            return result
        return failed(procedure.id, "the worker lost its claim before it started")

    def _execute(self, params: Any, token: str) -> ActionResult:
        action = self.action
        here = self.ctx.context(action.plugin_id)
        result = self._call(
            params,
            replace(here, execution_id=self.request.execution_id, requester=self.request.requester),
        )
        result = result.patched({"host": here.host, "worker": here.worker})
        if self.request.for_model:
            result = without_secrets(result)
        if self.request.requested_by:
            result = self.ledger.shorten(result, self.request.requested_by[0])
        if not self.ledger.finish(self.request.execution_id, token, result):
            note = (
                "the worker lost its claim while executing; another one may have reported the "
                "outcome as unknown"
            )
            self.ctx.report(action.id, note)
        return result

    def _call(self, params: Any, here: Context) -> ActionResult:
        if self.undone is None:
            return call_action(self.ctx, self.action, "execute", params, here)
        return call_action(self.ctx, self.action, "rollback", params, here, self.undone.result)


def _queue(
    ctx: PhaseContext,
    of: Circumstances,
    request: Request,
    approvals: ApprovalGateway,
    reason: str,
    undone: ExecutionEntry | None,
) -> ActionResult:
    """Queue the action for approval, unless its params are invalid."""
    action, decision = of.action, request.decision
    doubt = ctx.agent.rules.policy_doubt(of)
    policy = ctx.agent.policy(of)
    try:
        validate(action, decision.params)
    except Exception as error:  # noqa: BLE001 - the plugin's own validation
        return failed(action.id, str(error) if isinstance(error, ValueError) else describe(error))
    proposal = Proposal(
        decision=decision.patched({"requires_approval": True}),
        action_id=action.id,
        action_name=action.title,
        params=decision.params,
        risk=max(action.risk, decision.risk, key=LEVELS.index),
        reversibility="unknown" if request.undoes else action.reversibility,
        # Models report no confidence.
        confidence=None if request.for_model else decision.confidence,
        autonomy=action.autonomy,
        loop_iteration=ctx.iteration or 0,
        situation_summary=request.situation_summary,
        run_ids=list(request.run_ids),
        reason=f"{reason}; {doubt}" if doubt else reason,
        queue=action.queue,
        target=action.target_of(decision.params),
        concurrency=action.in_flight_limit,
        required=policy.patched({"person": True}) if request.by_person else policy,
        plan=action.approved_steps if isinstance(action, Procedure) else [],
        situation=ctx.agent.rules.seen(of.situation),
        requested_by=list(request.requested_by),
        undoes=request.undoes,
        undone=undone.result if undone else None,
        wakes=[request.wakes] if request.wakes else [],
        bound_to=request.execution_id if request.wakes else None,
        instead_of=list(request.instead_of),
        record=of.record if ctx.iteration is not None and not request.undoes else None,
        code=ctx.agent.code_of(action.id),
    )
    if action.has("dry_run") and not request.undoes and not approvals.waits(proposal):
        preview = _preview(ctx, action, request)
        proposal = proposal.patched({"preview": preview})
    try:
        approval_id = approvals.propose(proposal, request.proposer, _by_machine(ctx, request))
    except AgentRevoked as error:
        return failed(action.id, str(error), prevented="revoked")
    except ActionHeld as error:
        return failed(action.id, str(error), prevented="held")
    if not approval_id:
        return failed(action.id, CANCELLED, prevented="cancelled")
    return _waits(action, approval_id)


def _by_machine(ctx: PhaseContext, request: Request) -> bool:
    """Tell whether the loop or a model asks for it, not a person."""
    return ctx.iteration is not None or request.for_model


def _preview(ctx: PhaseContext, action: Action, request: Request) -> ActionResult:
    if request.unserved:
        return failed(action.id, request.unserved)
    return dry_run(ctx, action.id, request.decision.params, request.for_model)


def _waits(action: Action, approval_id: str) -> ActionResult:
    return ActionResult(
        action=action.id,
        success=False,
        error=APPROVAL_REQUIRED,
        duration=0.0,
        metrics={"approvalId": approval_id},
    )
