"""`/actions` and `/executions`: run an action, try it out or undo it (L31, L33)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd import naming
from boyd.models import ActionInfo, Call, CallRequest, ExecutionPage, JsonObject, Model
from boyd.models.responses import ActionList, Execution, Taken
from boyd_api.calling import finished, ordered
from boyd_api.period import Period
from boyd_api.routes.approvals import WaitQuery
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("actions")


class ActionRequest(Model):
    """How to take an action; `rationale` says why."""

    params: JsonObject = Field(default_factory=dict)
    rationale: str = Field(default="", max_length=5000)
    requires_approval: bool = False


class DryRunRequest(Model):
    """What to try out."""

    params: JsonObject = Field(default_factory=dict)


class ExecutionsQuery(Period):
    """Which executions; a page may hold fewer than `limit` and still have a `nextCursor`."""

    host: str | None = Field(default=None, max_length=255)
    worker: str | None = Field(default=None, max_length=300)
    action: str | None = Field(default=None, max_length=200)
    state: Literal["running", "succeeded", "failed", "unknown"] | None = None
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=500)


class RollbackRequest(Model):
    """Why to undo it."""

    rationale: str = Field(default="", max_length=5000)
    requires_approval: bool = False


@routes.get("/actions", scope="read", answers={200: ActionList})
def actions(ask: Ask) -> ActionList:
    """List the actions, with the JSON Schema of their parameters."""
    return ActionList(actions=ask.agent.entry.catalog.actions)


@routes.post(
    "/actions/<id>",
    scope="actions",
    answers={200: Taken, 202: Taken},
    problems=["no-worker"],
    idempotent=True,
)
def take(ask: Ask, id: str, body: ActionRequest | None, query: WaitQuery) -> Answer:
    """Take an action on a worker, through the same gate, hooks and ledger as the loop's.

    202: it waits for an approval, or has not ended in time.
    """
    asked = body or ActionRequest()
    return _taken(
        ask,
        _action(ask, id),
        CallRequest(
            kind="execute",
            action=id,
            params=asked.params,
            rationale=asked.rationale,
            requires_approval=asked.requires_approval,
            actor=ask.actor,
        ),
        query.wait,
    )


@routes.post(
    "/actions/<id>/dry-run",
    scope="actions",
    answers={200: Taken, 202: Taken},
    problems=["no-worker"],
    idempotent=True,
)
def dry_run(ask: Ask, id: str, body: DryRunRequest | None, query: WaitQuery) -> Answer:
    """Tell what an action would do, without doing it."""
    params = body.params if body else {}
    job = CallRequest(kind="dry-run", action=id, params=params, actor=ask.actor)
    return _taken(ask, _action(ask, id), job, query.wait)


@routes.get("/executions", scope="read", answers={200: ExecutionPage})
def executions(ask: Ask, query: ExecutionsQuery) -> ExecutionPage:
    """List executions without their results, newest first."""
    return ask.agent.store.ledger.page(
        query.limit,
        query.cursor,
        host=query.host,
        worker=query.worker,
        action=query.action,
        state=query.state,
        since=query.since,
        until=query.until,
    )


@routes.get("/executions/<id>", scope="read", answers={200: Execution})
def execution(ask: Ask, id: str) -> Execution:
    """Show an execution: `loop:<n>`, `approval:<id>`, `call:<id>` or `rollback:<execution>`."""
    entry = ask.agent.store.ledger.get(id)
    if entry is not None:
        return Execution(**entry.model_dump(exclude={"target", "result"}), result=entry.result)
    kind, call_id = naming.parts(id)
    call = ask.agent.store.calls.get(call_id) if kind == "call" else None
    if call is None or call.execution is None:
        raise not_found(f"no execution {id!r}")
    return _of_call(ask, id, call)


@routes.post(
    "/executions/<id>/rollback",
    scope="actions",
    answers={200: Taken, 202: Taken},
    problems=["no-worker"],
    idempotent=True,
)
def rollback(ask: Ask, id: str, body: RollbackRequest | None, query: WaitQuery) -> Answer:
    """Undo a successful execution, once; who asks again is told what came of that."""
    ledger = ask.agent.store.ledger
    entry = ledger.get(id)
    if entry is None:
        raise not_found(f"no execution {id!r}")
    undo = naming.rollback(entry.id)
    done = ledger.find(undo)
    if done is not None:
        return Answer(Taken(success=done.success, result=done, execution_id=undo, earlier=True))
    asked = body or RollbackRequest()
    job = CallRequest(
        kind="rollback",
        action=entry.action,
        undoes=entry.id,
        rationale=asked.rationale,
        requires_approval=asked.requires_approval,
        actor=ask.actor,
    )
    return _taken(ask, _action(ask, entry.action), job, query.wait)


def _action(ask: Ask, id: str) -> ActionInfo:
    for action in ask.agent.entry.catalog.actions:
        if action.id == id:
            return action
    raise not_found(f"agent {ask.agent.entry.id!r} has no action {id!r}")


def _taken(ask: Ask, action: ActionInfo, job: CallRequest, wait: float) -> Answer:
    call_id = ordered(ask, job, action.queue)
    ended = ask.until(lambda: finished(ask, call_id), wait)
    execution_id = naming.call(call_id)
    result = ended.result if ended else None
    if result is None:
        return Answer(Taken(success=False, queued=False, execution_id=execution_id), 202)
    if result.waits_for:
        waits = Taken(
            success=False, queued=True, approval_id=result.waits_for, execution_id=execution_id
        )
        return Answer(waits, 202)
    return Answer(Taken(success=result.success, result=result, execution_id=execution_id))


def _of_call(ask: Ask, id: str, call: Call) -> Execution:
    assert call.execution is not None, "a call is stored with its execution"
    told = Execution(
        id=id,
        state=call.execution.state,
        action=call.action,
        params=call.params,
        by=call.actor.principal,
        worker=call.execution.worker,
        started_at=call.execution.started_at,
        ended_at=call.execution.ended_at,
        approval_id=call.approval_id,
        result=call.result,
    )
    item = ask.agent.store.approvals.get(call.approval_id) if call.approval_id else None
    if item is None:
        return told
    if item.status == "pending":
        return told.patched({"state": "waiting"})
    if item.execution is None:
        return told.patched({"state": "failed"})
    return told.patched({"state": item.execution.state, "result": item.result})
