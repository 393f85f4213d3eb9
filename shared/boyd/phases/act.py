"""The act phase: the single path that executes an action, wherever it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from boyd import naming
from boyd.agent.agent_rules import Circumstances
from boyd.agent.procedure_plans import keep_rollback, name_targets
from boyd.agent.secret_rules import CHECKED
from boyd.errors import ActionHeld, AgentRevoked, SecretUnavailable, Veto
from boyd.models import (
    APPROVAL_REQUIRED,
    CANCELLED,
    LEVELS,
    NO_SITUATION,
    UNNEEDED,
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
    Level,
    ProcedureRecord,
    ProcedureStep,
    Proposal,
    Situation,
    TrackRecord,
    VerificationPlan,
)
from boyd.models.rights import Verb, describe_right, find_right
from boyd.phases.action_call import (
    call_action,
    dry_run,
    failure,
    no_such_action,
    sandbox_obstacle,
    with_secrets,
    without_secrets,
)
from boyd.phases.gate import conclude, judge, refuse
from boyd.phases.phase_context import PhaseContext, describe
from boyd.phases.verify import check_before
from boyd.plugin import Context, Procedure
from boyd.plugin.plugin_boundary import params_to_json, validate, with_defaults
from boyd.settings.secret_references import SCHEME

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
        """Give up an execution; the claim tells of an earlier attempt."""

    def shorten(self, result: ActionResult, principal: str) -> ActionResult:
        """The result as far as the storage budget of *principal* has room for it."""

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the result; return False if the claim was lost meanwhile."""

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """Let a job continue the claimed execution; return False if the claim was lost."""


class ApprovalGateway(Protocol):
    """The approval queue, for actions that need a person's approval."""

    def propose(self, proposal: Proposal, execution_id: str, by_machine: bool = False) -> str:
        """Queue *proposal* or join the same one; return its id, empty if its runs were cancelled.

        Raises:
            ActionHeld: it is proposed *by_machine*, and in flight on its target.
        """

    def waits(self, proposal: Proposal) -> bool:
        """Report whether the same proposal is already pending."""

    def approval_of(self, execution_id: str) -> str | None:
        """The approval that an earlier attempt of this execution proposed, if any."""


@dataclass(frozen=True)
class Requester:
    """The principals on whose behalf an action is executed, and what they expect.

    Attributes:
        by: the principal that the audit names; empty: the agent itself.
        principals: all who request the action.
        for_model: redact secrets from the result before it is stored.
        may_wait: whether it waits until what is in flight on its target has ended.
        by_hand: whether they have ordered just this: it is executed even where all is well.
        ordered_at: when a person has ordered it; a revocation since then ends it.
        decided_at: when an approved action was decided on; harm since then ends it.
        writer: the strategy or procedure that has written the params, which decides on the secrets
            that they may name; empty: a client or a model.
        limits: the rights of each principal that has only some.
    """

    by: str = ""
    principals: tuple[str, ...] = ()
    limits: Sequence[Sequence[str]] = ()
    for_model: bool = False
    may_wait: bool = True
    by_hand: bool = False
    ordered_at: datetime | None = None
    decided_at: datetime | None = None
    writer: str = ""


@dataclass(frozen=True)
class ProposalTerms:
    """The proposal of an action that a person has to approve.

    Attributes:
        origin: identifies it, if it does not go by the id of the execution.
        run_ids: the runs that it serves.
        wakes: the job that waits for it; other requests do not join it.
        by_person: a person has to approve it, whatever hooks, policies and grants say.
        instead_of: the reasons why the actions that were decided first are not repeated.
        plan: the steps of a procedure, with their targets, once a person has approved them.
    """

    origin: str = ""
    run_ids: tuple[str, ...] = ()
    wakes: str = ""
    by_person: bool = False
    instead_of: tuple[str, ...] = ()
    plan: tuple[ProcedureStep, ...] = ()


@dataclass(frozen=True)
class CountingTerms:
    """The track record for the outcome of an approved action, and the draw for its case.

    Attributes:
        record: as it was when the action was proposed; none if it counts in none.
        trial: the draw, as `CaseDraws` plans it; none if the case must not wait.
    """

    record: TrackRecord | None = None
    trial: JsonObject | None = None


@dataclass(frozen=True)
class Request:
    """An action to execute or propose.

    Attributes:
        execution_id: stays the same when the request is repeated.
        situation: the one in which it was decided, if it is known.
        approved: a person has approved it, or the procedure that it is a step of.
        counting: how an approved action counts.
        gate: the verdict when it was decided, if a person has to approve it.
        asked_by: the plugin whose hook requires an approval.
        retry: an earlier attempt may be in the ledger.
        undoes: roll back this execution instead; all requesters share that one rollback.
        obstacle: the reason not to execute it, if set: it is only proposed, without a dry run,
            or forgone.
        within: the prefix of the executions of its procedure, whose holds do not bind it.
        compensates: whether it undoes a step of its procedure; no hold binds it then.
        fence: it is executed only while this holds; absent: always.
    """

    execution_id: str
    decision: Decision
    situation: Situation | None = None
    requester: Requester = Requester()
    proposal: ProposalTerms = ProposalTerms()
    approved: bool = False
    counting: CountingTerms = CountingTerms()
    gate: Gate | None = None
    asked_by: str | None = None
    retry: bool = False
    undoes: str | None = None
    obstacle: str = ""
    within: str = ""
    compensates: bool = False
    fence: Fence | None = None

    @property
    def principal(self) -> str | None:
        """The only principal on whose behalf it is executed; absent for the agent, or several."""
        if not self.approved:
            return self.requester.by or None
        principals = self.requester.principals
        return principals[0] if len(principals) == 1 else None

    @property
    def proposer(self) -> str:
        """The id of its proposal, which stays the same when the request is repeated."""
        return self.proposal.origin or self.execution_id


def act(
    ctx: PhaseContext, request: Request, ledger: Ledger, approvals: ApprovalGateway
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
    attempt = _Attempt(ctx, circumstances, request, ledger, approvals)
    result = attempt.run()
    verdict = attempt.verdict
    return result, conclude(ctx.agent, circumstances, verdict, result) if verdict else None


class _Attempt:
    """One attempt to execute an action or to propose it.

    Attributes:
        verdict: the gate's, unless a person has approved the action.
        undone: the execution that it rolls back.
        plan: the steps of a procedure, once they were needed.
    """

    def __init__(
        self,
        ctx: PhaseContext,
        circumstances: Circumstances,
        request: Request,
        ledger: Ledger,
        approvals: ApprovalGateway,
    ) -> None:
        self.ctx = ctx
        self.circumstances = circumstances
        self.action = circumstances.action
        self.request = request
        self.ledger = ledger
        self.approvals = approvals
        self.undone: ExecutionEntry | None = None
        self.plan: tuple[ProcedureStep, ...] | None = None
        self.verdict = request.gate
        if self.verdict is None and not request.approved:
            self.verdict = judge(ctx.agent, circumstances, request.asked_by)

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
        refusal = self._apply_rights() or self._refuse_secrets(request.decision.params)
        if refusal:
            return refusal
        # What was claimed by an earlier attempt has passed the gate, whatever time it is now.
        if self.verdict and not (request.retry and self.ledger.get(request.execution_id)):
            if self.verdict.outcome == "refused":
                return failure(self.action.id, self.verdict.reason, prevented="closed")
            if self.verdict.outcome == "asked":
                return self._propose(self.verdict.reason)
            if doubt := self._doubt():
                # What is declared of it may no longer be true.
                return self._ask(doubt, "high")
        if request.obstacle:
            return self._forgo(failure(self.action.id, request.obstacle))
        return self._execute()

    def _earlier_outcome(self) -> ActionResult | None:
        """The outcome of a lost attempt: a decision never has two outcomes."""
        request = self.request
        result = self.ledger.find(request.execution_id)
        if result or (request.approved and not request.proposal.wakes):
            return result
        approval_id = self.approvals.approval_of(request.proposer)
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
        self.undone = entry
        # Already rolled back: no further approval needed.
        return self.ledger.find(self.request.execution_id)

    def _refuse_secrets(self, params: JsonObject) -> ActionResult | None:
        """The result if it may not use a secret that *params*, valid or not, name."""
        if SCHEME not in str(params):
            return None
        request, rules = self.request, self.ctx.agent.secrets
        writer = CHECKED if request.undoes else request.requester.writer
        if refusal := rules.refusal(self.action, request.decision.params, params, writer):
            return failure(self.action.id, f"Not executed: {refusal}", prevented="refused")
        return None

    def _apply_rights(self) -> ActionResult | None:
        """Refuse what a requester has no right to; have a person approve what they may not run."""
        requester, undoes = self.request.requester, self.request.undoes
        if not requester.limits:
            return None
        target = self.action.final_target(self.request.decision.params)
        if missing := self._missing_right("rollback" if undoes else "propose", target):
            return failure(self.action.id, f"{requester.by} {missing}", prevented="refused")
        missing = None if undoes else self._missing_right("run", target)
        if missing and self.verdict and self.verdict.outcome == "automatic":
            changes = {"outcome": "asked", "reason": f"{requester.by} {missing}", "grant": None}
            self.verdict = self.verdict.patched(changes)
        return None

    def _missing_right(self, verb: Verb, target: str) -> str | None:
        """The lack of a right in words, if one of the requesters lacks it."""
        limits, action = self.request.requester.limits, self.action.id
        if all(find_right(rights, verb, action, target) for rights in limits):
            return None
        return f"lacks the right {describe_right(verb, action, target)!r}"

    def _doubt(self) -> str | None:
        """Ask the action itself for a reason to ask a person, although it could run alone."""
        action, request = self.action, self.request
        if request.obstacle or request.undoes or not action.has("doubt"):
            return None
        try:
            params = validate(action, request.decision.params)
        except ValueError:  # the execution reports it
            return None
        here = self.ctx.context(action.plugin_id)
        answer = call_action(self.ctx, action, "doubt", params, here)
        return str(answer.output or "") if answer.success else answer.error

    def _ask(self, reason: str, least_risk: Level = "low") -> ActionResult:
        """Propose the action although it had passed the gate, as of at least that risk."""
        if self.verdict:
            changes = {"outcome": "asked", "reason": reason, "grant": None}
            self.verdict = self.verdict.patched(changes)
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
            self._plan()
        except ValueError as error:
            return self._run_after_hooks(failure(self.action.id, str(error)))
        if reason := sandbox_obstacle(self.ctx, self.action):
            return self._run_after_hooks(failure(self.action.id, reason, prevented="unsandboxed"))
        stored = params_to_json(params)
        if self._is_checked_before() and (outcome := self._find_well(stored)):
            return self._run_after_hooks(outcome)
        if refusal := self._refuse_secrets(stored):
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
        claim = self.ledger.claim(self._execution(stored))
        if self.verdict:
            self.verdict = self.verdict.patched({"used": claim.used})
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
        if request.requester.by_hand or self._undoes_something:
            return False
        return not (request.retry and self.ledger.get(request.execution_id))

    def _find_well(self, params: JsonObject) -> ActionResult | None:
        """Check if its target is well already; return the result if nothing is to be done."""
        check = check_before(self.ctx, self.action, params, self.request.execution_id)
        if not check.ends or check.verdict != "effective":
            return None
        reason = f"{UNNEEDED}: {check.evidence}" if check.evidence else UNNEEDED
        return failure(self.action.id, reason, prevented="unneeded")

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

    def _execution(self, params: JsonObject) -> ExecutionRequest:
        action, request = self.action, self.request
        return ExecutionRequest(
            id=request.execution_id,
            action=action.id,
            params=params,
            target=action.target_of(params),
            idempotent=action.idempotent,
            timeout=action.timeout,
            by=request.requester.by or f"agent:{self.ctx.agent.id}",
            host=self.ctx.context(action.plugin_id).host,
            terms=self._terms(),
            fence=request.fence,
        )

    def _terms(self) -> ExecutionTerms:
        action, request, verdict = self.action, self.request, self.verdict
        automatic = verdict is not None and verdict.outcome == "automatic"
        undoes = self.undone is not None
        plan = self._verification()
        return ExecutionTerms(
            # A budget limits only what runs without a person's approval.
            budget=verdict.budget if verdict and automatic and not undoes else None,
            situation=self._situation_class(),
            held=self._is_bound(),
            within=request.within,
            grant=verdict.grant if verdict else None,
            concurrency=self._concurrency(plan),
            verification=plan,
            counting=None if plan is None or undoes else self._counting(),
            trial=request.counting.trial,
            sandbox=self.ctx.agent.sandbox(action.id),
            queue=action.queue,
            read_only=action.reversibility == "read-only",
            ordered_at=request.requester.ordered_at,
            decided_at=None if self._undoes_something else request.requester.decided_at,
        )

    def _verification(self) -> VerificationPlan | None:
        """The plan to verify it; a verification confirms a rollback that it has ordered itself."""
        fence = self.request.fence
        if self.undone is not None and fence and naming.is_verification(str(fence.origin)):
            return None
        return self.ctx.agent.verification(self.action.id)

    def _situation_class(self) -> str:
        record = self.request.counting.record
        return record.situation if record else self.circumstances.situation_class.key

    def _counting(self) -> JsonObject | None:
        """The way in which the outcome is counted; only decisions of the agent count."""
        record = self._own_record() or self.request.counting.record
        if record is None:
            return None
        rule = self.ctx.agent.rules.earning_rule(self.action.id)
        scope = self.circumstances.scope
        if not scope.targets:  # the situation of an approved action is not at hand
            scope = replace(scope, targets=tuple(record.concerns))
        return record.counting(self.request.decision.confidence, rule, scope)

    def _is_bound(self) -> bool:
        """Report whether holds bind it: a person who approves it decides to repeat it."""
        return not (self._undoes_something or self.request.approved)

    def _concurrency(self, plan: VerificationPlan | None) -> Concurrency | None:
        limit, request, undoes = self.action.in_flight_limit, self.request, self._undoes_something
        everywhere = None if plan is None or undoes else plan.in_flight
        if limit is None and everywhere is None:
            return None
        # The loop and models decide anew.
        ordered = request.approved or not self._is_by_machine
        waits = ordered and request.requester.may_wait
        return Concurrency(limit, everywhere, waits, request.undoes, undoes)

    @property
    def _undoes_something(self) -> bool:
        """True for a rollback or a compensation, which nothing but its turn may delay."""
        return self.undone is not None or self.request.compensates

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
            steps=[keep_rollback(step, self.ctx.host.actions) for step in self._plan()],
            approve=procedure.approve,
            by=self.request.requester.by or f"agent:{self.ctx.agent.id}",
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
            replace(here, execution_id=self.request.execution_id, requester=self.request.principal),
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
        if self.undone is None:
            return call_action(self.ctx, self.action, "execute", params, here)
        return call_action(self.ctx, self.action, "rollback", params, here, self.undone.result)

    def _propose(self, reason: str, least_risk: Level = "low") -> ActionResult:
        """Queue the action for approval, unless its params are invalid."""
        action, request = self.action, self.request
        try:
            params = with_defaults(action, request.decision.params)
            self._plan()
        except Exception as error:  # noqa: BLE001 - the plugin's own validation
            text = str(error) if isinstance(error, ValueError) else describe(error)
            return failure(action.id, text)
        proposal = self._proposal(reason, least_risk, params)
        if action.has("dry_run") and not request.undoes and not self.approvals.waits(proposal):
            proposal = proposal.patched({"preview": self._preview()})
        try:
            approval_id = self.approvals.propose(proposal, request.proposer, self._is_by_machine)
        except AgentRevoked as error:
            return failure(action.id, str(error), prevented="revoked")
        except ActionHeld as error:
            return failure(action.id, str(error), prevented="held")
        if not approval_id:
            return failure(action.id, CANCELLED, prevented="cancelled")
        return self._wait_for(approval_id)

    def _proposal(self, reason: str, least_risk: Level, params: JsonObject) -> Proposal:
        action, request, agent = self.action, self.request, self.ctx.agent
        decision, circumstances, terms = request.decision, self.circumstances, request.proposal
        if LEVELS.index(decision.risk) < LEVELS.index(least_risk):
            decision = decision.patched({"risk": least_risk})
            circumstances = self.ctx.circumstances(action, decision, circumstances.situation)
        doubt, policy = agent.rules.policy_doubt(circumstances), agent.policy(circumstances)
        may_approve_plan = isinstance(action, Procedure) and action.approve == "whole"
        return Proposal(
            decision=decision.patched({"requires_approval": True}),
            action_id=action.id,
            action_name=action.title,
            params=params,
            risk=max(action.risk, decision.risk, key=LEVELS.index),
            reversibility="unknown" if request.undoes else action.reversibility,
            # Models report no confidence.
            confidence=None if request.requester.for_model else decision.confidence,
            autonomy=action.autonomy,
            loop_iteration=self.ctx.iteration or 0,
            situation_summary=request.situation.summary if request.situation else None,
            run_ids=list(terms.run_ids),
            reason=f"{reason}; {doubt}" if doubt else reason,
            queue=action.queue,
            target=action.final_target(decision.params),
            concurrency=action.in_flight_limit,
            required=policy.patched({"person": True}) if terms.by_person else policy,
            plan=list(self._plan()) if may_approve_plan else [],
            situation=agent.rules.policy_situation(circumstances.situation),
            requested_by=list(request.requester.principals),
            undoes=request.undoes,
            undone=self.undone.result if self.undone else None,
            wakes=[terms.wakes] if terms.wakes else [],
            bound_to=request.execution_id if terms.wakes else None,
            instead_of=list(terms.instead_of),
            record=None if request.undoes else self._own_record(),
            may_wait=not (decision.requires_approval or circumstances.is_critical),
            code=agent.code_of(action.id),
        )

    def _plan(self) -> tuple[ProcedureStep, ...]:
        """Return the steps of a procedure, with their targets as they were first named."""
        if self.plan is None and isinstance(self.action, Procedure):
            latest_data = self.ctx.context(self.action.plugin_id).latest_data
            approved = self.request.proposal.plan
            self.plan = approved or tuple(name_targets(self.action.steps, latest_data))
        return self.plan or ()

    def _own_record(self) -> TrackRecord | None:
        """Return the track record in which it counts, if the agent itself has decided on it."""
        if self.ctx.iteration is None:
            return None
        return (self.verdict and self.verdict.record) or self.circumstances.record

    def _preview(self) -> ActionResult:
        id, request = self.action.id, self.request
        if request.obstacle:
            return failure(id, request.obstacle)
        return dry_run(self.ctx, id, request.decision.params, request.requester.for_model)

    @property
    def _is_by_machine(self) -> bool:
        """True if the loop or a model requests it, not a person."""
        return self.ctx.iteration is not None or self.request.requester.for_model

    def _wait_for(self, approval_id: str) -> ActionResult:
        return failure(self.action.id, APPROVAL_REQUIRED).patched({"waits_for": approval_id})
