"""`/actions`, `/holds`, `/executions` and `/procedures`: run, list, undo and cancel actions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

from pydantic import Field

from boyd import naming
from boyd.models import (
    Call,
    CallRequest,
    ExecutionPage,
    HoldList,
    JsonObject,
    Model,
    ProcedureList,
    ProcedureRecord,
)
from boyd.models.responses import ActionList, Execution, LiftedHold, Taken
from boyd.store.executions import ExecutionFilter
from boyd.store.procedures import ResumeMode
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import PageQuery, PeriodQuery, RequestContext, WaitQuery
from boyd_api.http.routing import JsonResponse, Routes

action_routes = Routes("actions")
procedure_routes = Routes("procedures")

#: Settings of the routes that have a worker execute something.
_EXECUTE: dict[str, Any] = {
    "scope": "actions",
    "answers": {200: Taken, 202: Taken},
    "problems": ["no-worker"],
}

#: What can be done about an execution that has started.
_STOP_STARTED = "a procedure is cancelled by its own route; anything else goes on to its end"

_ROLL_BACK = {**_EXECUTE, "problems": ["no-worker", "rollback-refused"]}


class DryRunRequest(Model):
    """A dry run of an action."""

    params: JsonObject = Field(default_factory=dict)


class RollbackRequest(Model):
    """A rollback of an execution; `rationale` says why."""

    rationale: str = Field(default="", max_length=5000)
    requires_approval: bool = False


class ActionRequest(RollbackRequest, DryRunRequest):
    """An execution of an action; `rationale` says why."""


class ExecutionCancellation(Model):
    """The cancellation of an execution; `note` says why."""

    note: str = Field(default="", max_length=5000)


class LiftRequest(Model):
    """The hold to lift; `note` says why."""

    action: str = Field(min_length=1, max_length=200)
    target: str = Field(default="", max_length=5000)
    note: str = Field(default="", max_length=5000)


class ExecutionsQuery(PageQuery, PeriodQuery):
    """Selects executions; a page may hold fewer than `limit` and still have a `nextCursor`."""

    host: str | None = Field(default=None, max_length=255)
    worker: str | None = Field(default=None, max_length=300)
    action: str | None = Field(default=None, max_length=200)
    target: str | None = Field(default=None, max_length=1000)
    state: Literal["running", "succeeded", "failed", "unknown"] | None = None

    @property
    def filter(self) -> ExecutionFilter:
        """The filter in the query."""
        names = (field.name for field in fields(ExecutionFilter))
        return ExecutionFilter(**{name: getattr(self, name) for name in names})


class ProceduresQuery(Model):
    """The most procedures to list."""

    limit: int = Field(default=50, ge=1, le=500)


class ProcedureAnswer(Model):
    """The answer of a person to a procedure; `note` says why."""

    note: str = Field(default="", max_length=5000)


class ResumeRequest(ProcedureAnswer):
    """The resumption of a procedure; `repeat` executes again what was lost or failed."""

    repeat: bool = False


@action_routes.get("/actions", scope="read")
def actions(ctx: RequestContext) -> ActionList:
    """List the actions, with the JSON Schema of their parameters."""
    return ActionList(actions=ctx.agent.entry.catalog.actions)


@action_routes.post("/actions/<action:id>", **_EXECUTE)
def take(
    ctx: RequestContext, id: str, body: ActionRequest | None, query: WaitQuery
) -> JsonResponse:
    """Execute an action on a worker, with the same gate, hooks and ledger as the loop.

    202: it waits for an approval, or has not ended in time.
    """
    options = dict(body or ActionRequest())
    work = CallRequest(kind="execute", action=id, actor=ctx.actor, **options)
    return _execute(ctx, work, query.wait)


@action_routes.post("/actions/<action:id>/dry-run", **_EXECUTE)
def dry_run(
    ctx: RequestContext, id: str, body: DryRunRequest | None, query: WaitQuery
) -> JsonResponse:
    """Show what an action would do, without doing it."""
    options = dict(body or DryRunRequest())
    work = CallRequest(kind="dry-run", action=id, actor=ctx.actor, **options)
    return _execute(ctx, work, query.wait)


@action_routes.get("/holds", scope="read")
def holds(ctx: RequestContext) -> HoldList:
    """List the actions that are not repeated on a target for now, and why."""
    return HoldList(holds=ctx.agent.store.holds.all())


@action_routes.post("/holds/lift", scope="admin", problems=["in-flight"])
def lift_hold(ctx: RequestContext, body: LiftRequest) -> LiftedHold:
    """Let a held action run again without a person, on its target."""
    outcome = ctx.agent.store.holds.lift(body.action, body.target, ctx.actor, body.note)
    subject = f"{body.action!r} on {body.target!r}" if body.target else f"{body.action!r}"
    if outcome == "not held":
        raise not_found(f"{subject} is not held")
    if outcome == "running":
        raise HttpProblem("in-flight", f"{subject} is in flight: it may run again afterwards")
    return LiftedHold(action=body.action, target=body.target)


@action_routes.get("/executions", scope="read")
def executions(ctx: RequestContext, query: ExecutionsQuery) -> ExecutionPage:
    """List executions without their results, newest first."""
    return ctx.agent.past_work.executions(query.limit, query.cursor, query.filter)


@action_routes.get("/executions/<id>", scope="read")
def execution(ctx: RequestContext, id: str) -> Execution:
    """Show an execution: `loop:<n>`, `approval:<id>`, `call:<id>` or `rollback:<execution>`."""
    name = _ledger_name(ctx, id)
    entry = ctx.agent.past_work.execution(name)
    if entry is not None:
        document = Execution(**entry.model_dump(exclude={"target", "result"}), result=entry.result)
        queued = name != id
        return (
            document.patched({"id": id, "approval_id": naming.parts(name)[1]})
            if queued
            else document
        )
    kind, call_id = naming.parts(id)
    call = ctx.agent.store.calls.get(call_id) if kind == "call" else None
    if call is None or call.execution is None:
        raise not_found(f"no execution {id!r}")
    return _execution_of(ctx, id, call)


@action_routes.post("/executions/<id>/rollback", **_ROLL_BACK)
def rollback(
    ctx: RequestContext, id: str, body: RollbackRequest | None, query: WaitQuery
) -> JsonResponse:
    """Undo a successful execution, once; what cannot be undone (again) is refused at once."""
    name = _ledger_name(ctx, id)
    entry = ctx.agent.store.executions.get(name)
    if entry is None and ctx.agent.past_work.execution(name) is not None:
        reason = "is no longer in the ledger, which tells whether it was rolled back already"
        raise HttpProblem("rollback-refused", f"{naming.short(id)} {reason}: undo it by hand")
    if entry is None:
        raise not_found(f"no execution {id!r}")
    options = dict(body or RollbackRequest())
    work = CallRequest(
        kind="rollback", action=entry.action, undoes=entry.id, actor=ctx.actor, **options
    )
    return _execute(ctx, work, query.wait, entry.target)


@action_routes.post("/executions/<id>/cancel", scope="actions", problems=["finished", "started"])
def cancel(ctx: RequestContext, id: str, body: ExecutionCancellation | None) -> Execution:
    """Cancel the execution of a client (`call:<id>`) unless it has started; it never starts.

    Repeating it changes nothing.
    """
    agent = ctx.agent.store
    kind, call_id = naming.parts(id)
    call = agent.calls.get(call_id) if kind == "call" else None
    if call is None:
        raise not_found(f"no queued execution {id!r}")
    ctx.check_right("propose", call.action, None)
    note = body.note if body else ""
    cancelled = agent.calls.cancel(call, agent.approvals.id_for(id), ctx.actor, note)
    if cancelled.outcome == "started":
        raise HttpProblem("started", f"{id} has started; {_STOP_STARTED}")
    if cancelled.outcome == "waits":
        approval = cancelled.detail
        detail = f"{id} waits, or has waited, for approval {approval}: deny that"
        raise HttpProblem("finished", detail, approvalId=approval)
    if cancelled.outcome == "over":
        raise HttpProblem("finished", f"{id} has ended: {cancelled.detail}")
    return execution(ctx, id)


@procedure_routes.get("/procedures", label="list", scope="read")
def procedures(ctx: RequestContext, query: ProceduresQuery) -> ProcedureList:
    """List the procedures, latest first, with the state of each step."""
    return ProcedureList(procedures=ctx.agent.store.procedures.all(query.limit))


@procedure_routes.get("/procedures/<id>", scope="read", label="show")
def show_procedure(ctx: RequestContext, id: str) -> ProcedureRecord:
    """Show a procedure by the id of its execution."""
    record = ctx.agent.store.procedures.get(id)
    if record is None:
        raise not_found(f"no procedure {id!r}")
    return record


@procedure_routes.post("/procedures/<id>/cancel", scope="approvals", label="cancel")
def cancel_procedure(ctx: RequestContext, id: str, body: ProcedureAnswer | None) -> ProcedureRecord:
    """Start no further step, and undo those that took effect, the latest first."""
    note = body.note if body else ""
    _check_answer(ctx, show_procedure(ctx, id))
    if ctx.agent.store.procedures.cancel(id, ctx.actor, note) == "over":
        raise HttpProblem("finished", f"procedure {id} has ended: {show_procedure(ctx, id).state}")
    return show_procedure(ctx, id)


@procedure_routes.post("/procedures/<id>/resume", scope="approvals", label="resume")
def resume_procedure(ctx: RequestContext, id: str, body: ResumeRequest | None) -> ProcedureRecord:
    """Let a stopped procedure go on; a step or compensation with an unknown outcome counts as done.

    With `repeat` it is executed again.
    """
    options = body or ResumeRequest()
    record = show_procedure(ctx, id)
    _check_answer(ctx, record)
    if refusal := resume_refusal(ctx, record):
        raise HttpProblem("forbidden", refusal)
    mode: ResumeMode = "repeat" if options.repeat else "go on"
    if ctx.agent.store.procedures.resume(id, mode, ctx.actor, options.note) == "not stopped":
        raise HttpProblem("not-stopped", f"procedure {id}: {show_procedure(ctx, id).summary}")
    return show_procedure(ctx, id)


def _execute(
    ctx: RequestContext, work: CallRequest, wait: float, target: str | None = None
) -> JsonResponse:
    agent = ctx.agent.entry
    action = next(
        (manifest for manifest in agent.catalog.actions if manifest.id == work.action), None
    )
    if action is None:
        raise not_found(f"agent {agent.id!r} has no action {work.action!r}")
    if work.kind == "rollback" and not action.rollback:
        raise HttpProblem("rollback-refused", f"action {action.id!r} has no rollback")
    if target is None and action.target in work.params:
        target = str(work.params[action.target])
    call_id = ctx.call_worker(work, action.queue, target)
    call = ctx.await_call(call_id, wait)
    execution_id = naming.call(call_id)
    result = call.result if call else None
    if result is None:
        return JsonResponse(Taken(success=False, queued=False, execution_id=execution_id), 202)
    if result.waits_for:
        waiting = Taken(
            success=False, queued=True, approval_id=result.waits_for, execution_id=execution_id
        )
        return JsonResponse(waiting, 202)
    return JsonResponse(Taken(success=result.success, result=result, execution_id=execution_id))


def _ledger_name(ctx: RequestContext, id: str) -> str:
    """The id of an execution in the ledger: of a call that was approved, that of its approval."""
    kind, call_id = naming.parts(id)
    if kind != "call":
        return id
    if call := ctx.agent.store.calls.get(call_id):
        return naming.approval(call.approval_id) if call.approval_id else id
    # A call is forgotten before its execution. The approval that it asked for has its name from it.
    by_approval = naming.approval(ctx.agent.store.approvals.id_for(id))
    return by_approval if ctx.agent.past_work.execution(by_approval) else id


def _execution_of(ctx: RequestContext, id: str, call: Call) -> Execution:
    assert call.execution is not None, "a call is stored with its execution"
    document = Execution(
        id=id,
        by=call.actor.principal,
        **call.execution.model_dump(exclude={"held_until"}),  # nobody's order waits for that
        **call.model_dump(include={"action", "params", "approval_id"}),
        result=call.result,
    )
    item = ctx.agent.store.approvals.get(call.approval_id) if call.approval_id else None
    if item is None and call.execution.state == "queued":
        return document.patched({"in_flight": ctx.agent.store.in_flight.ahead_of(id)})
    if item is None:
        return document
    if item.status == "pending":
        return document.patched({"state": "waiting"})
    if item.execution is None:
        return document.patched({"state": "failed"})
    return document.patched({"state": item.execution.state, "result": item.result})


def _check_answer(ctx: RequestContext, record: ProcedureRecord) -> None:
    """Refuse an answer to a procedure that the caller may not approve."""
    ctx.check_right("approve", record.action, record.target)


def cancel_refusal(ctx: RequestContext, record: ProcedureRecord) -> str:
    """Say why the rights of the caller do not let it cancel a procedure; empty if they do."""
    permission = ctx.may("approve", record.action, record.target)
    return "" if permission.allowed else permission.reason


def resume_refusal(ctx: RequestContext, record: ProcedureRecord) -> str:
    """Say why the caller may not resume it: a right is missing, or only people may; or empty."""
    if refusal := cancel_refusal(ctx, record):
        return refusal
    step = record.steps[record.at].action if record.at < len(record.steps) else None
    is_strict = any(
        action.id in (record.action, step) and action.autonomy.mode == "human-only"
        for action in ctx.agent.entry.catalog.actions
    )
    is_program = is_strict and not ctx.actor.person
    return f"only a person may resume {record.action}" if is_program else ""
