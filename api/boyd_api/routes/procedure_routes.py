"""`/procedures`: actions composed of actions, and the answers of people to them."""

from __future__ import annotations

from pydantic import Field

from boyd.models import Model, ProcedureList, ProcedureRecord
from boyd.store.procedures import ResumeMode
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import Routes

routes = Routes("procedures")


class ProceduresQuery(Model):
    """The most procedures to list."""

    limit: int = Field(default=50, ge=1, le=500)


class ProcedureAnswer(Model):
    """The answer of a person to a procedure; `note` says why."""

    note: str = Field(default="", max_length=5000)


class ResumeRequest(ProcedureAnswer):
    """The resumption of a procedure; `repeat` executes again what was lost or failed."""

    repeat: bool = False


@routes.get("/procedures", label="list", scope="read")
def show_all(ctx: RequestContext, query: ProceduresQuery) -> ProcedureList:
    """List the procedures, latest first, with the state of each step."""
    return ProcedureList(procedures=ctx.agent.store.procedures.all(query.limit))


@routes.get("/procedures/<id>", scope="read")
def show(ctx: RequestContext, id: str) -> ProcedureRecord:
    """Show a procedure by the id of its execution."""
    record = ctx.agent.store.procedures.get(id)
    if record is None:
        raise not_found(f"no procedure {id!r}")
    return record


@routes.post("/procedures/<id>/cancel", scope="approvals")
def cancel(ctx: RequestContext, id: str, body: ProcedureAnswer | None) -> ProcedureRecord:
    """Start no further step, and undo those that took effect, the latest first."""
    note = body.note if body else ""
    if ctx.agent.store.procedures.cancel(id, ctx.actor, note) == "over":
        raise HttpProblem("finished", f"procedure {id} has ended: {show(ctx, id).state}")
    return show(ctx, id)


@routes.post("/procedures/<id>/resume", scope="approvals")
def resume(ctx: RequestContext, id: str, body: ResumeRequest | None) -> ProcedureRecord:
    """Let a stopped procedure go on; a step or compensation with an unknown outcome counts as done.

    With `repeat` it is executed again.
    """
    options = body or ResumeRequest()
    _check_person(ctx, show(ctx, id))
    mode: ResumeMode = "repeat" if options.repeat else "go on"
    if ctx.agent.store.procedures.resume(id, mode, ctx.actor, options.note) == "not stopped":
        raise HttpProblem("not-stopped", f"procedure {id}: {show(ctx, id).summary}")
    return show(ctx, id)


def _check_person(ctx: RequestContext, record: ProcedureRecord) -> None:
    """Refuse a program where only people may approve the procedure or its current step."""
    step = record.steps[record.at].action if record.at < len(record.steps) else None
    for action in ctx.agent.entry.catalog.actions:
        strict = action.id in (record.action, step) and action.autonomy.mode == "human-only"
        if strict and not ctx.actor.person:
            raise HttpProblem("forbidden", f"only a person may resume {record.action}")
