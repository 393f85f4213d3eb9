"""The proposal that people see of an action which they have to approve."""

from __future__ import annotations

from boyd.models import LEVELS, ActionResult, JsonObject, Level, Proposal
from boyd.phases.action_call import dry_run, failure
from boyd.phases.attempt import Attempt
from boyd.plugin import Procedure


def make_proposal(attempt: Attempt, reason: str, least_risk: Level, params: JsonObject) -> Proposal:
    """The proposal of an action with its *params*, as of at least that risk, for that reason."""
    action, request, agent = attempt.action, attempt.request, attempt.ctx.agent
    decision, circumstances, terms = request.decision, attempt.circumstances, request.proposal
    if LEVELS.index(decision.risk) < LEVELS.index(least_risk):
        decision = decision.patched({"risk": least_risk})
        circumstances = attempt.ctx.circumstances(action, decision, circumstances.situation)
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
        loop_iteration=attempt.ctx.iteration or 0,
        situation_summary=request.situation.summary if request.situation else None,
        run_ids=list(terms.run_ids),
        reason=f"{reason}; {doubt}" if doubt else reason,
        queue=action.queue,
        target=action.final_target(decision.params),
        concurrency=action.in_flight_limit,
        required=policy.patched({"person": True}) if terms.by_person else policy,
        plan=list(attempt.plan()) if may_approve_plan else [],
        situation=agent.rules.policy_situation(circumstances.situation),
        requested_by=list(request.requester.principals),
        undoes=request.undoes,
        undone=attempt.undone.result if attempt.undone else None,
        wakes=[terms.wakes] if terms.wakes else [],
        bound_to=request.execution_id if terms.wakes else None,
        instead_of=list(terms.instead_of),
        record=None if request.undoes else attempt.own_record,
        may_wait=not (decision.requires_approval or circumstances.is_critical),
        code=agent.code_of(action.id),
    )


def preview(attempt: Attempt) -> ActionResult:
    """The result of a dry run, or the reason why the action could not be executed anyway."""
    id, request = attempt.action.id, attempt.request
    if request.obstacle:
        return failure(id, request.obstacle)
    return dry_run(attempt.ctx, id, request.decision.params, request.requester.for_model)
