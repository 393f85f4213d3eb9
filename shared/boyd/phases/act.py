"""Act: the one path that executes an action, wherever it comes from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from json import dumps
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError

from boyd.errors import Overrun, Veto
from boyd.models import (
    APPROVAL_REQUIRED,
    ActionResult,
    Budget,
    Decision,
    ExecutionEntry,
    JsonObject,
    Proposal,
    explain,
)
from boyd.phases import time_limit
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Action, Tool
from boyd.redaction import clean, redactor

#: Why there is no right to execute what nobody wants any more.
CANCELLED = "Cancelled: the runs that it was for were cancelled"


@dataclass(frozen=True)
class Claim:
    """The right to execute once.

    Attributes:
        token: proves the right when finishing; None when it was not given.
        result: how the execution ended before, if it did.
        refused: why there is no right: frozen, unknown outcome, running elsewhere.
        over_budget: whether the budget for this target is used up.
        unknown: whether an earlier attempt was started and its outcome lost.
    """

    token: str | None = None
    result: ActionResult | None = None
    refused: str | None = None
    over_budget: bool = False
    unknown: bool = False


@dataclass(frozen=True)
class ExecutionRequest:
    """What the ledger must know of an execution before it starts."""

    id: str
    action: str
    params: JsonObject
    target: str
    idempotent: bool
    timeout: float
    budget: Budget | None
    by: str = ""
    host: str = ""


class Ledger(Protocol):
    """Every execution, claimed before it starts: at most once."""

    def find(self, execution_id: str) -> ActionResult | None:
        """How that execution ended, if it did."""

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """The entry of that execution, if it was ever claimed."""

    def claim(self, execution: ExecutionRequest) -> Claim:
        """Take the right to execute, in one atomic step."""

    def forgo(self, execution_id: str) -> Claim:
        """Give up the right to execute, for good; what is known of an earlier attempt."""

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the outcome; False when the claim was lost meanwhile."""


_json: TypeAdapter[Any] = TypeAdapter(JsonObject)

#: The most characters of a result, as JSON, that are kept.
MAX_RESULT = 1_000_000


class ApprovalGateway(Protocol):
    """Where a gated action waits for a person."""

    def propose(self, proposal: Proposal, execution_id: str) -> str:
        """Queue *proposal*, or find the same one that is pending; its id.

        The id is empty when nobody wants it any more: its runs were cancelled.
        """

    def waits(self, proposal: Proposal) -> bool:
        """Whether the same proposal is pending already."""

    def proposed(self, execution_id: str) -> str | None:
        """The approval that an earlier attempt of this execution has proposed, if it has."""


@dataclass(frozen=True)
class Request:
    """An action to take.

    `execution_id` is the same however often the request is repeated. `approved` requests have
    passed the gate. `retry` tells that an earlier attempt may have left a trace in the ledger.
    `asked_by` names the plugin whose hook asked for an approval, if one did; `requested_by` the
    principals who want the action, `by` whoever the audit is to name. With `undoes` it is not
    executed but rolls that earlier execution back: one execution, whoever asks for it, so what
    asks has an `origin` of its own that a proposal is known by. `wakes` is the order that waits for
    what becomes of a proposal, which nobody else joins then. What the action says to a model loses
    its secrets before it is kept. `unserved` says why nothing may be executed here: an approval is
    asked for without a dry run, or the result says what is known of an earlier attempt.
    """

    execution_id: str
    decision: Decision
    situation_summary: str | None = None
    run_ids: tuple[str, ...] = ()
    approved: bool = False
    retry: bool = False
    asked_by: str | None = None
    requested_by: tuple[str, ...] = ()
    by: str = ""
    undoes: str | None = None
    origin: str = ""
    wakes: str = ""
    for_model: bool = False
    unserved: str = ""

    @property
    def proposer(self) -> str:
        """What a proposal is known by, however often the request is repeated."""
        return self.origin or self.execution_id


def act(
    ctx: PhaseContext, request: Request, ledger: Ledger, approvals: ApprovalGateway
) -> ActionResult:
    """Execute an action, or queue it for approval; never raises for what the action does."""
    action = ctx.host.actions.get(request.decision.action)
    if action is None:
        return unknown(request.decision.action)
    if request.retry and (earlier := _earlier(action, request, ledger, approvals)):
        return earlier
    undone = None
    if request.undoes:
        undone = ledger.get(request.undoes)
        if not action.has("rollback"):
            return failed(action.id, "The action has no rollback")
        if undone is None or undone.state != "succeeded":
            return failed(action.id, f"Only a success can be rolled back: {_state(undone)}")
        if undone.action != action.id:
            return failed(action.id, f"{undone.id} executed {undone.action}, not this action")
        if earlier := ledger.find(request.execution_id):
            return earlier  # it was undone before: nobody has to allow that once more
    reason = None if request.approved else gate(action, request.decision, request.asked_by)
    if reason:
        return _queue(ctx, action, request, approvals, reason, undone)
    if request.unserved:
        return _forgone(action, request, ledger)
    return _Execution(ctx, action, request, ledger, approvals, undone).run()


def _forgone(action: Action, request: Request, ledger: Ledger) -> ActionResult:
    """What is known of an action that nobody executes any more."""
    claim = ledger.forgo(request.execution_id)
    reason = claim.refused or request.unserved
    return claim.result or failed(action.id, reason, lost=claim.unknown)


def _earlier(
    action: Action, request: Request, ledger: Ledger, approvals: ApprovalGateway
) -> ActionResult | None:
    """What an attempt that was lost has come to: one decision never has two outcomes."""
    found = ledger.find(request.execution_id)
    if found or request.approved:
        return found
    approval_id = approvals.proposed(request.proposer)
    return _waits(action, approval_id) if approval_id else None


def _state(entry: ExecutionEntry | None) -> str:
    return f"{entry.id} is {entry.state}" if entry else "no such execution is known"


def gate(action: Action, decision: Decision, asked_by: str | None = None) -> str | None:
    """Why *decision* needs a person's approval, or None."""
    autonomy = action.autonomy
    if decision.requires_approval:
        return f"{asked_by or 'the decision'} requires approval"
    if autonomy.mode != "auto":
        return f"the action is {autonomy.mode}"
    if autonomy.min_confidence is not None and decision.confidence < autonomy.min_confidence:
        return f"confidence {decision.confidence:g} is below {autonomy.min_confidence:g}"
    return None


def dry_run(
    ctx: PhaseContext, action_id: str, params: Mapping[str, Any], for_model: bool = False
) -> ActionResult:
    """What an execution would do, without doing it; without secrets *for_model*."""
    action = ctx.host.actions.get(action_id)
    if action is None:
        return unknown(action_id)
    if not action.has("dry_run"):
        return failed(action_id, "The action has no dry run")
    found = _timed(action, lambda: _called(ctx, action, "dry_run", validate(action, params)))
    return _without_secrets(found) if for_model else found


def validate(action: Action | Tool, params: Mapping[str, Any]) -> Any:
    """The parameters as the action's model makes them; as they are when it has none.

    Raises:
        ValueError: they do not fit; the message names each field.
    """
    if action.params is None:
        return dict(params)
    try:
        return action.params.model_validate(dict(params))
    except ValidationError as error:
        raise ValueError(f"Invalid params: {explain(error)}") from None


def failed(action_id: str, error: str, duration: float = 0.0, lost: bool = False) -> ActionResult:
    """A result that says why the action did not succeed."""
    return ActionResult(
        action=action_id, success=False, error=clean(error), duration=duration, unknown=lost or None
    )


def unknown(action_id: str) -> ActionResult:
    """The result for an action that the agent does not have."""
    return failed(action_id, f"Unknown action {action_id!r}")


class _Execution:
    def __init__(
        self,
        ctx: PhaseContext,
        action: Action,
        request: Request,
        ledger: Ledger,
        approvals: ApprovalGateway,
        undone: ExecutionEntry | None,
    ) -> None:
        self.ctx = ctx
        self.action = action
        self.request = request
        self.ledger = ledger
        self.approvals = approvals
        self.undone = undone

    def run(self) -> ActionResult:
        refusal = self._before()
        if refusal:
            return self._after(failed(self.action.id, refusal))
        try:
            params = validate(self.action, self.request.decision.params)
        except ValueError as error:
            return self._after(failed(self.action.id, str(error)))
        plain = _plain(params)
        claim = self.ledger.claim(self._entry(plain))
        if claim.over_budget:
            reason = f"budget for {self.action.target_of(plain) or 'this action'} is used up"
            return _queue(self.ctx, self.action, self.request, self.approvals, reason, self.undone)
        if claim.result:
            return claim.result
        if claim.token is None:
            reason = claim.refused or "Not executed"
            return self._after(failed(self.action.id, reason, lost=claim.unknown))
        return self._after(self._execute(params, claim.token))

    def _after(self, result: ActionResult) -> ActionResult:
        """Tell the hooks what the attempt came to; *result* as it is."""
        self.ctx.run_hooks("on_after_act", result=result)
        return result

    def _before(self) -> str | None:
        """Run the hooks; why they stop the action, if they do."""
        params = self.request.decision.params
        blocked = len(self.ctx.blocks)
        # Each hook gets a copy: what executes is what was decided, and perhaps approved.
        for hook in self.ctx.host.hooks("on_before_act"):
            answer = self.ctx.hook(hook, action=self.action, params=deepcopy(params))
            if isinstance(answer, Veto):
                return f"Vetoed by {hook.plugin_id}: {answer}"
        return self.ctx.blocks[blocked].reason if len(self.ctx.blocks) > blocked else None

    def _entry(self, plain: JsonObject) -> ExecutionRequest:
        action = self.action
        unlimited = self.request.approved or self.undone is not None
        return ExecutionRequest(
            id=self.request.execution_id,
            action=action.id,
            params=plain,
            target=action.target_of(plain),
            idempotent=action.idempotent,
            timeout=action.timeout,
            # A person who approved has seen the budget; it limits what runs without one.
            budget=None if unlimited else self.ctx.agent.budget(action.id),
            by=self.request.by or f"agent:{self.ctx.agent.id}",
            host=self.ctx.context(action.plugin_id).host,
        )

    def _execute(self, params: Any, token: str) -> ActionResult:
        action = self.action
        result = _timed(action, lambda: self._call(params))
        here = self.ctx.context(action.plugin_id)
        result = result.patched({"host": here.host, "worker": here.worker})
        if self.request.for_model:
            result = _without_secrets(result)
        if not self.ledger.finish(self.request.execution_id, token, result):
            note = "the worker lost its claim while executing; another may have reported it unknown"
            self.ctx.report(action.id, note)
        return result

    def _call(self, params: Any) -> Any:
        action, name = self.action, self.request.execution_id
        ctx = replace(self.ctx.context(action.plugin_id), execution_id=name)
        if self.undone is None:
            return action.call("execute", params=params, ctx=ctx)
        return action.call("rollback", params=params, ctx=ctx, result=self.undone.result)


def _queue(
    ctx: PhaseContext,
    action: Action,
    request: Request,
    approvals: ApprovalGateway,
    reason: str,
    undone: ExecutionEntry | None,
) -> ActionResult:
    """Let a person decide; what can never run is not worth asking for."""
    decision = request.decision
    try:
        validate(action, decision.params)
    except Exception as error:  # noqa: BLE001 - the check is the plugin's
        return failed(action.id, str(error) if isinstance(error, ValueError) else describe(error))
    proposal = Proposal(
        decision=decision.patched({"requires_approval": True}),
        action_id=action.id,
        action_name=action.title,
        params=decision.params,
        risk=action.risk,
        # Models do not say how sure they are.
        confidence=None if request.for_model else decision.confidence,
        autonomy=action.autonomy,
        loop_iteration=ctx.iteration or 0,
        situation_summary=request.situation_summary,
        run_ids=list(request.run_ids),
        reason=reason,
        queue=action.queue,
        required=ctx.agent.policy(action, decision),
        requested_by=list(request.requested_by),
        undoes=request.undoes,
        undone=undone.result if undone else None,
        wakes=[request.wakes] if request.wakes else [],
        bound_to=request.execution_id if request.wakes else None,
    )
    if action.has("dry_run") and not request.undoes and not approvals.waits(proposal):
        preview = _preview(ctx, action, request)
        proposal = proposal.patched({"preview": preview})
    approval_id = approvals.propose(proposal, request.proposer)
    return _waits(action, approval_id) if approval_id else failed(action.id, CANCELLED)


def _preview(ctx: PhaseContext, action: Action, request: Request) -> ActionResult:
    if request.unserved:
        return failed(action.id, request.unserved)
    return dry_run(ctx, action.id, request.decision.params, request.for_model)


def _without_secrets(result: ActionResult) -> ActionResult:
    return ActionResult.from_json(dumps(redactor().redact_json(result.to_wire())))


def _waits(action: Action, approval_id: str) -> ActionResult:
    return ActionResult(
        action=action.id,
        success=False,
        error=APPROVAL_REQUIRED,
        duration=0.0,
        metrics={"approvalId": approval_id},
    )


def _called(ctx: PhaseContext, action: Action, function: str, params: Any) -> Any:
    return action.call(function, params=params, ctx=ctx.context(action.plugin_id))


def _timed(action: Action, function: Any) -> ActionResult:
    """Run *function* within the action's time limit; whatever it does becomes a result."""
    began = time.perf_counter()
    try:
        found = time_limit.call(function, action.timeout)
        return _result(action, found, _ms_since(began))
    except Overrun as error:
        why = f"{error}; it may have taken effect"
        return failed(action.id, why, _ms_since(began), lost=True)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a failed result, never a crash
        return failed(action.id, describe(error), _ms_since(began))


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)


def _result(action: Action, found: Any, duration: float) -> ActionResult:
    try:
        if isinstance(found, ActionResult):
            # Only we say that something waits for an approval of ours.
            ours = found.error == APPROVAL_REQUIRED
            said = found.error and clean(found.error)
            error = f"The action says: {said}" if ours else said
            name = action.title if found.action == action.title else action.id
            result = found.patched({"action": name, "duration": duration, "error": error})
        else:
            result = ActionResult(action=action.id, success=True, output=found, duration=duration)
        size = len(result.to_json())
    except ValueError as error:
        why = explain(error) if isinstance(error, ValidationError) else describe(error)
        return failed(action.id, f"it ran, but its output is not JSON: {why}", duration)
    if size <= MAX_RESULT:
        return result
    left_out = f"left out: {size} characters are more than the {MAX_RESULT} that are kept"
    return result.patched({"output": left_out, "side_effects": None, "metrics": None})


def _plain(params: Any) -> JsonObject:
    if isinstance(params, BaseModel):
        plain: JsonObject = params.model_dump(mode="json", by_alias=True)
        return plain
    checked: JsonObject = _json.validate_python(params)
    return checked
