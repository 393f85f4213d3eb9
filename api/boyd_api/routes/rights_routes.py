"""`/rights`: explains who may propose, run, approve or roll back an action, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import Field

from boyd.models import ActionInfo, Actor, ApiKey, Model, utc_now
from boyd.models.actor import SCOPE_OF
from boyd.models.responses import AccessAnswer, AccessStep, IdentityAccess
from boyd.models.rights import Verb
from boyd.settings.permissions import ApprovalSettings
from boyd.store.hashes import reading
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import Routes

routes = Routes("rights")


class RightsQuery(Model):
    """Asks for one verb, action and target; without `target` for any.

    `principal` is a principal, or the id or name of a key; by default the caller. Others are for
    administrators.
    """

    verb: Verb
    action: str = Field(min_length=1, max_length=200)
    target: str | None = Field(default=None, max_length=1000)
    principal: str | None = Field(default=None, min_length=1, max_length=200)


@routes.get("/rights", label="explain", scope="read")
def explain_access(ctx: RequestContext, query: RightsQuery) -> AccessAnswer:
    """Explain whether somebody may do something, with each of their keys; nothing is done."""
    action = next((a for a in ctx.agent.entry.catalog.actions if a.id == query.action), None)
    if action is None:
        raise not_found(f"agent {ctx.agent.entry.id!r} has no action {query.action!r}")
    identities = [_judge(ctx, key, action, query) for key in _keys(ctx, query.principal)]
    return AccessAnswer(
        principal=query.principal or ctx.actor.principal,
        verb=query.verb,
        action=action.id,
        target=query.target,
        allowed=any(identity.allowed for identity in identities),
        identities=identities,
    )


def _keys(ctx: RequestContext, principal: str | None) -> list[ApiKey | None]:
    """The identities of a principal: its keys, or the caller's own; None where none is needed."""
    own = ctx.key
    if principal is None or (own is not None and principal in (own.principal, own.id)):
        return [own]
    if own is not None and (own.agents or not own.allows("admin")):
        reason = "only administrators of all agents may ask about others"
        raise HttpProblem("forbidden", reason, scope="admin")
    keys = ctx.services.store.api_keys.all()
    matching: list[ApiKey | None] = [k for k in keys if principal in (k.principal, k.id, k.name)]
    if not matching:
        reason = f"{principal!r} has no key; people without one can ask about themselves only"
        raise not_found(reason)
    return matching


def _judge(
    ctx: RequestContext, key: ApiKey | None, action: ActionInfo, query: RightsQuery
) -> IdentityAccess:
    actor = key.actor() if key is not None else ctx.actor
    steps = list(_steps(ctx, key, actor, query))
    if query.verb == "approve":
        steps += _policy_steps(ctx, actor, action)
    return IdentityAccess(
        identity=f"{key.id} {key.name!r} of {key.principal}" if key else actor.principal,
        allowed=all(step.passed for step in steps),
        steps=steps,
    )


def _steps(
    ctx: RequestContext, key: ApiKey | None, actor: Actor, query: RightsQuery
) -> Iterator[AccessStep]:
    if key is not None:
        if key.expires_at is not None and key.expires_at <= (ctx.now or utc_now()):
            yield AccessStep(passed=False, reason="the key has expired")
        if not key.sees(ctx.agent.entry.id):
            reason = f"the key is limited to the agents {', '.join(key.agents)}"
            yield AccessStep(passed=False, reason=reason)
        scope = SCOPE_OF[query.verb]
        having = "has" if key.allows(scope) else "lacks"
        yield AccessStep(passed=key.allows(scope), reason=f"it {having} the scope {scope!r}")
    permission = ctx.services.rights.judge(actor, query.verb, query.action, query.target)
    yield AccessStep(passed=permission.allowed, reason=permission.reason)


def _policy_steps(ctx: RequestContext, actor: Actor, action: ActionInfo) -> Iterable[AccessStep]:
    """Check the caller against each policy that may apply to an approval of the action."""
    with reading(f"the approval policies of agent {ctx.agent.entry.id}"):
        approvals = ApprovalSettings.model_validate(ctx.agent.entry.approvals, extra="ignore")
    possible = approvals.possible_policies(action.id, action.reversibility)
    answers = []
    for name, required in possible:
        if action.autonomy.mode == "human-only":
            required = required.patched({"person": True})
        admits = required.admits(actor)
        words = f"{name} {'admits' if admits else 'does not admit'} {actor.principal}"
        answers.append(AccessStep(passed=admits, reason=f"{words}: {required.words}"))
    # One that refuses need not be the one that applies.
    some = any(step.passed for step in answers)
    return [step.patched({"passed": step.passed or some}) for step in answers]
