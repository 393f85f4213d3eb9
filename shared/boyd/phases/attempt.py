"""An attempt to act: the gate's verdict, checks before the claim, and the terms of the claim."""

from __future__ import annotations

from dataclasses import dataclass, replace

from boyd import naming
from boyd.agent.agent_rules import Circumstances
from boyd.agent.procedure_plans import name_targets
from boyd.agent.secret_rules import CHECKED
from boyd.models import (
    UNNEEDED,
    ActionResult,
    Concurrency,
    ExecutionEntry,
    ExecutionRequest,
    ExecutionTerms,
    Gate,
    JsonObject,
    ProcedureStep,
    TrackRecord,
    VerificationPlan,
)
from boyd.models.rights import Verb, describe_right, find_right
from boyd.phases.act_request import ActRequest
from boyd.phases.action_call import call_action, failure
from boyd.phases.phase_context import PhaseContext
from boyd.phases.verify import check_before
from boyd.plugin import Action, Procedure
from boyd.plugin.plugin_boundary import validate
from boyd.settings.secret_references import SCHEME


@dataclass
class Attempt:
    """One attempt to execute an action or to propose it.

    Attributes:
        verdict: the gate's, unless a person has approved the action.
        undone: the execution that it rolls back.
    """

    ctx: PhaseContext
    circumstances: Circumstances
    request: ActRequest
    verdict: Gate | None
    undone: ExecutionEntry | None = None
    _plan: tuple[ProcedureStep, ...] | None = None

    @property
    def action(self) -> Action:
        """The action to execute, propose or roll back."""
        return self.circumstances.action

    @property
    def by(self) -> str:
        """The name in the audit trail: the requester, or else the agent itself."""
        return self.request.requester.by or f"agent:{self.ctx.agent.id}"

    @property
    def principal(self) -> str | None:
        """The only principal on whose behalf it is executed; absent for the agent, or several."""
        request = self.request
        if not request.approved:
            return request.requester.by or None
        principals = request.requester.principals
        return principals[0] if len(principals) == 1 else None

    @property
    def proposer(self) -> str:
        """The id of its proposal, which stays the same when the request is repeated."""
        return self.request.proposal.origin or self.request.execution_id

    def plan(self) -> tuple[ProcedureStep, ...]:
        """Return the steps of a procedure, with their targets as they were first named.

        Raises:
            ValueError: the targets of a step cannot be named.
        """
        if self._plan is None and isinstance(self.action, Procedure):
            latest_data = self.ctx.context(self.action.plugin_id).latest_data
            approved = self.request.proposal.plan
            self._plan = approved or tuple(name_targets(self.action.steps, latest_data))
        return self._plan or ()

    @property
    def is_by_machine(self) -> bool:
        """True if the loop or a model requests it, not a person."""
        return self.ctx.iteration is not None or self.request.requester.for_model

    @property
    def undoes_something(self) -> bool:
        """True for a rollback or a compensation, which nothing but its turn may delay."""
        return self.undone is not None or self.request.compensates

    @property
    def own_record(self) -> TrackRecord | None:
        """The track record in which it counts, if the agent itself has decided on it."""
        if self.ctx.iteration is None:
            return None
        return (self.verdict and self.verdict.record) or self.circumstances.record

    def require_approval(self, reason: str) -> None:
        """Have a person approve the action although it had passed the gate."""
        if self.verdict:
            changes = {"outcome": "asked", "reason": reason, "grant": None}
            self.verdict = self.verdict.patched(changes)


def check_rights(attempt: Attempt) -> ActionResult | None:
    """Refuse what a requester has no right to; have a person approve what they may not run."""
    requester, undoes = attempt.request.requester, attempt.request.undoes
    if not requester.limits:
        return None
    target = attempt.action.final_target(attempt.request.decision.params)
    if missing := _missing_right(attempt, "rollback" if undoes else "propose", target):
        return failure(attempt.action.id, f"{requester.by} {missing}", prevented="refused")
    missing = None if undoes else _missing_right(attempt, "run", target)
    if missing and attempt.verdict and attempt.verdict.outcome == "automatic":
        attempt.require_approval(f"{requester.by} {missing}")
    return None


def _missing_right(attempt: Attempt, verb: Verb, target: str) -> str | None:
    """The lack of a right in words, if one of the requesters lacks it."""
    limits, action = attempt.request.requester.limits, attempt.action.id
    if all(find_right(rights, verb, action, target) for rights in limits):
        return None
    return f"lacks the right {describe_right(verb, action, target)!r}"


def check_secrets(attempt: Attempt, params: JsonObject) -> ActionResult | None:
    """Refuse it if it may not use a secret that *params*, valid or not, name."""
    if SCHEME not in str(params):
        return None
    request, rules = attempt.request, attempt.ctx.agent.secrets
    writer = CHECKED if request.undoes else request.requester.writer
    if refusal := rules.refusal(attempt.action, request.decision.params, params, writer):
        return failure(attempt.action.id, f"Not executed: {refusal}", prevented="refused")
    return None


def ask_for_doubt(attempt: Attempt) -> str | None:
    """Ask the action itself for a reason to ask a person, although it could run alone."""
    action, request = attempt.action, attempt.request
    if request.obstacle or request.undoes or not action.has("doubt"):
        return None
    try:
        params = validate(action, request.decision.params)
    except ValueError:  # the execution reports it
        return None
    here = attempt.ctx.context(action.plugin_id)
    answer = call_action(attempt.ctx, action, "doubt", params, here)
    return str(answer.output or "") if answer.success else answer.error


def check_need(attempt: Attempt, params: JsonObject) -> ActionResult | None:
    """Check if its target is well already; return the result if nothing is to be done."""
    check = check_before(attempt.ctx, attempt.action, params, attempt.request.execution_id)
    if not check.ends or check.verdict != "effective":
        return None
    reason = f"{UNNEEDED}: {check.evidence}" if check.evidence else UNNEEDED
    return failure(attempt.action.id, reason, prevented="unneeded")


def execution_request(attempt: Attempt, params: JsonObject) -> ExecutionRequest:
    """The execution to claim, with its validated *params* as JSON."""
    action, request = attempt.action, attempt.request
    return ExecutionRequest(
        id=request.execution_id,
        action=action.id,
        params=params,
        target=action.target_of(params),
        idempotent=action.idempotent,
        timeout=action.timeout,
        by=attempt.by,
        host=attempt.ctx.context(action.plugin_id).host,
        terms=_terms(attempt),
        fence=request.fence,
    )


def _terms(attempt: Attempt) -> ExecutionTerms:
    action, request, verdict = attempt.action, attempt.request, attempt.verdict
    automatic = verdict is not None and verdict.outcome == "automatic"
    undoes = attempt.undone is not None
    plan = _verification(attempt)
    return ExecutionTerms(
        # A budget limits only what runs without a person's approval.
        budget=verdict.budget if verdict and automatic and not undoes else None,
        situation=_situation_class(attempt),
        # A person who approves an action decides to repeat it.
        held=not (attempt.undoes_something or request.approved),
        within=request.within,
        grant=verdict.grant if verdict else None,
        concurrency=_concurrency(attempt, plan),
        verification=plan,
        counting=None if plan is None or undoes else _counting(attempt),
        trial=request.counting.trial,
        sandbox=attempt.ctx.agent.sandbox(action.id),
        queue=action.queue,
        read_only=action.reversibility == "read-only",
        ordered_at=request.requester.ordered_at,
        decided_at=None if attempt.undoes_something else request.requester.decided_at,
    )


def _verification(attempt: Attempt) -> VerificationPlan | None:
    """The plan to verify it; a verification confirms a rollback that it has ordered itself."""
    fence = attempt.request.fence
    if attempt.undone is not None and fence and naming.is_verification(str(fence.origin)):
        return None
    return attempt.ctx.agent.verification(attempt.action.id)


def _situation_class(attempt: Attempt) -> str:
    record = attempt.request.counting.record
    return record.situation if record else attempt.circumstances.situation_class.key


def _counting(attempt: Attempt) -> JsonObject | None:
    """The way in which the outcome is counted; only decisions of the agent count."""
    record = attempt.own_record or attempt.request.counting.record
    if record is None:
        return None
    rule = attempt.ctx.agent.rules.earning_rule(attempt.action.id)
    scope = attempt.circumstances.scope
    if not scope.targets:  # the situation of an approved action is not at hand
        scope = replace(scope, targets=tuple(record.concerns))
    return record.counting(attempt.request.decision.confidence, rule, scope)


def _concurrency(attempt: Attempt, plan: VerificationPlan | None) -> Concurrency | None:
    request, undoes = attempt.request, attempt.undoes_something
    limit = attempt.action.in_flight_limit
    everywhere = None if plan is None or undoes else plan.in_flight
    if limit is None and everywhere is None:
        return None
    # The loop and models decide anew.
    ordered = request.approved or not attempt.is_by_machine
    waits = ordered and request.requester.may_wait
    return Concurrency(limit, everywhere, waits, request.undoes, undoes)
