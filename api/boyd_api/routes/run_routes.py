"""`/runs`: work that clients submit to an agent."""

from __future__ import annotations

import json

from flask import request
from pydantic import ConfigDict, Field

from boyd.models import Callback, Level, Model, Run, RunPage, RunRequest, RunStatus
from boyd.models.investigation import MOST_ASKED, InvestigationRequest
from boyd.models.responses import Redelivering, RunCancelled, RunCreated
from boyd.outbound.public_addresses import check_url
from boyd.text.trace_context import parse_traceparent
from boyd_api.http.problems import FieldError, HttpProblem, not_found
from boyd_api.http.request_context import PageQuery, RequestContext
from boyd_api.http.routing import JsonResponse, Routes
from boyd_api.routes.investigation_routes import check_model

routes = Routes("runs")

#: The kind of run that the agent's model investigates, without an iteration.
INVESTIGATION = "investigation"


#: How often what was sent is kept: as a run, and as the investigation or callback that follows.
_COPIES = 2


class RunsQuery(PageQuery):
    """Selects runs; a page may hold fewer than `limit` and still have a `nextCursor`."""

    status: RunStatus | None = None
    priority: Level | None = None
    source: str | None = Field(default=None, max_length=200)


class SentRun(RunRequest):
    """A run as clients send it; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class CancelRequest(Model):
    """Gives the reason."""

    reason: str | None = Field(default=None, max_length=1000)


@routes.post("/runs", scope="runs", answers={201: RunCreated}, problems=["no-model"])
def submit(ctx: RequestContext, body: SentRun) -> JsonResponse:
    """Submit a run; it starts an iteration unless the agent is continuous.

    The agent's model investigates runs of the kind `investigation` instead.
    """
    _check_callback(ctx, body.callback_url)
    sent = request.headers.get("traceparent")
    if body.traceparent is None and parse_traceparent(sent):
        body = body.patched({"traceparent": sent})
    agent = ctx.agent
    ctx.take_storage(_COPIES * len(body.to_json().encode()))
    if body.kind == INVESTIGATION:
        check_model(agent.entry)
        id, retention = ctx.idempotent_id(), agent.entry.retention
        # The run and the investigation have the same id.
        asker = ctx.actor_with_rights()
        run = _run(ctx, agent.launcher.ask(_question(body), asker, retention, id, run=body))
    else:
        run = agent.launcher.submit_run(body, ctx.actor, ctx.idempotent_id()).run
    where = f"/api/v0/agents/{agent.entry.id}/runs/{run.id}"
    created = RunCreated(id=run.id, status=run.status, created_at=run.created_at)
    return JsonResponse(created, headers={"Location": where})


@routes.get("/runs", scope="read")
def runs(ctx: RequestContext, query: RunsQuery) -> RunPage:
    """List runs, newest first."""
    return ctx.agent.past_work.runs(**dict(query))


@routes.get("/runs/<id>", scope="read")
def show(ctx: RequestContext, id: str) -> Run:
    """Show one run, with its result when it has ended."""
    run = ctx.agent.past_work.run(id)
    if run is None:
        raise not_found(f"no run {id!r}")
    return run


@routes.post("/runs/<id>/cancel", scope="runs", problems=["finished"])
def cancel(ctx: RequestContext, id: str, body: CancelRequest | None) -> RunCancelled:
    """Cancel a run that has not ended, and its actions that were not executed."""
    cause = (body.reason if body else None) or "no reason given"
    reason, actor = f"cancelled by {ctx.actor.principal}: {cause}", ctx.actor
    runs, retention = ctx.agent.store.runs, ctx.agent.entry.retention
    status = runs.cancel(id, actor, retention, reason, ctx.repeatable_id)
    if status == "unknown":
        status = show(ctx, id).status  # only the archive has it
    if status is not None:
        cancelled = status == "cancelled"
        state = "is already cancelled" if cancelled else f"has already ended ({status})"
        raise HttpProblem("finished", f"the run {state}", state=status)
    run = _run(ctx, id)
    return RunCancelled(id=run.id, status=run.status, updated_at=run.updated_at)


@routes.get("/runs/<id>/callback", scope="read")
def callback(ctx: RequestContext, id: str) -> Callback:
    """Show the state of a run's callback, with its last deliveries."""
    state = ctx.agent.store.runs.callback(id)
    if state is None:
        raise not_found(f"run {id!r} has no callback, or has not ended")
    return state


@routes.post(
    "/runs/<id>/callback/redeliver", scope="runs", answers={202: Redelivering}, idempotent=True
)
def redeliver(ctx: RequestContext, id: str) -> Redelivering:
    """Send the callback of a run again, from the start of its schedule."""
    if not ctx.agent.store.runs.redeliver(id, ctx.actor):
        raise not_found(f"run {id!r} has no callback, or has not ended")
    return Redelivering(id=id)


def _run(ctx: RequestContext, id: str) -> Run:
    run = ctx.agent.store.runs.get(id)
    if run is None:
        raise not_found(f"no run {id!r}")
    return run


def _question(run: RunRequest) -> InvestigationRequest:
    parts = [run.title, run.description]
    if run.context:
        parts.append(f"Context:\n{json.dumps(run.context, ensure_ascii=False, indent=1)}")
    question = "\n\n".join(parts)
    if len(question) > MOST_ASKED:
        wrong = f"question and context have {len(question)} characters; the limit is {MOST_ASKED}"
        error = FieldError(pointer="/context", detail=wrong)
        raise HttpProblem("invalid-request", f"context: {wrong}", errors=[error])
    return InvestigationRequest(question=question, title=run.title)


def _check_callback(ctx: RequestContext, url: str | None) -> None:
    if url is None:
        return
    refused = check_url(url, allow_private=ctx.services.settings.callbacks.allow_private)
    if refused:
        error = FieldError(pointer="/callbackUrl", detail=refused)
        raise HttpProblem("invalid-request", f"callbackUrl: {refused}", errors=[error])
