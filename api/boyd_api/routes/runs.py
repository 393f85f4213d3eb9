"""`/runs`: what clients ask an agent to look into (R1 to R6)."""

from __future__ import annotations

import json

from pydantic import ConfigDict, Field

from boyd.models import Callback, Level, Model, Run, RunPage, RunRequest, RunStatus
from boyd.models.investigation import MOST_ASKED, InvestigationRequest
from boyd.models.responses import Redelivering, RunCancelled, RunCreated
from boyd.outbound import check_url
from boyd_api.problems import FieldError, Problem
from boyd_api.routes.investigations import check_model
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("runs")

#: The kind of run that the agent's model looks into, without an iteration.
INVESTIGATION = "investigation"


class RunsQuery(Model):
    """Which runs; a page may hold fewer than `limit` and still name a cursor to go on with."""

    status: RunStatus | None = None
    priority: Level | None = None
    source: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=500)


class SentRun(RunRequest):
    """A run as clients send it; fields that are not known are passed over."""

    model_config = ConfigDict(extra="ignore")


class CancelRequest(Model):
    """Why."""

    reason: str | None = Field(default=None, max_length=1000)


@routes.post(
    "/runs",
    scope="runs",
    answers={201: RunCreated},
    problems=["no-model"],
    idempotent=True,
)
def submit(ask: Ask, body: SentRun) -> Answer:
    """Submit a run; it starts an iteration unless the agent is continuous.

    One of the kind `investigation` is looked into by the agent's model instead.
    """
    _check_callback(ask, body.callback_url)
    if body.kind == INVESTIGATION:
        run = _investigated(ask, body)
    else:
        run = ask.agent.launcher.submit_run(body, ask.actor, ask.idempotent_id()).run
    where = f"/api/v0/agents/{ask.agent.entry.id}/runs/{run.id}"
    created = RunCreated(id=run.id, status=run.status, created_at=run.created_at)
    return Answer(created, headers={"Location": where})


@routes.get("/runs", scope="read", answers={200: RunPage})
def runs(ask: Ask, query: RunsQuery) -> RunPage:
    """List runs, newest first."""
    return ask.agent.store.runs.page(
        query.limit,
        query.cursor,
        status=query.status,
        priority=query.priority,
        source=query.source,
    )


@routes.get("/runs/<id>", scope="read", answers={200: Run})
def show(ask: Ask, id: str) -> Run:
    """Show one run, with its result when it has ended."""
    run = ask.agent.store.runs.get(id)
    if run is None:
        raise not_found(f"no run {id!r}")
    return run


@routes.post(
    "/runs/<id>/cancel",
    scope="runs",
    answers={200: RunCancelled},
    problems=["finished"],
    idempotent=True,
)
def cancel(ask: Ask, id: str, body: CancelRequest | None) -> RunCancelled:
    """Cancel a run that has not ended, and what has not been executed for it."""
    why = (body.reason if body else None) or "no reason given"
    reason = f"cancelled by {ask.actor.principal}: {why}"
    runs = ask.agent.store.runs
    said = runs.cancel(id, ask.actor, ask.agent.entry.retention, reason, ask.repeatable_id)
    if said.now == "unknown":
        raise not_found(f"no run {id!r}")
    if said.outcome == "over":
        how = (
            "is cancelled already" if said.now == "cancelled" else f"has ended already ({said.now})"
        )
        raise Problem("finished", f"the run {how}", state=said.now)
    run = runs.get(id)
    if run is None:
        raise not_found(f"no run {id!r}")
    return RunCancelled(id=run.id, status=run.status, updated_at=run.updated_at)


@routes.get("/runs/<id>/callback", scope="read", answers={200: Callback})
def callback(ask: Ask, id: str) -> Callback:
    """Show how far the callback of a run is, with its last deliveries."""
    found = ask.agent.store.runs.callback(id)
    if found is None:
        raise not_found(f"run {id!r} has no callback, or has not ended")
    return found


@routes.post(
    "/runs/<id>/callback/redeliver", scope="runs", answers={202: Redelivering}, idempotent=True
)
def redeliver(ask: Ask, id: str) -> Redelivering:
    """Send the callback of a run once more, from the beginning of its plan."""
    if not ask.agent.store.runs.redeliver(id, ask.actor):
        raise not_found(f"run {id!r} has no callback, or has not ended")
    return Redelivering(id=id)


def _investigated(ask: Ask, body: RunRequest) -> Run:
    """The run, which the investigation of the same id ends."""
    agent = ask.agent
    check_model(agent.entry)
    request = _question(body)
    id = agent.launcher.ask(
        request, ask.actor, agent.entry.retention, ask.idempotent_id(), run=body
    )
    run = agent.store.runs.get(id)
    if run is None:
        raise not_found(f"no run {id!r}")
    return run


def _question(run: RunRequest) -> InvestigationRequest:
    parts = [run.title, run.description]
    if run.context:
        parts.append(f"Context:\n{json.dumps(run.context, ensure_ascii=False, indent=1)}")
    question = "\n\n".join(parts)
    if len(question) > MOST_ASKED:
        wrong = f"with it the question has {len(question)} of at most {MOST_ASKED} characters"
        error = FieldError(pointer="/context", detail=wrong)
        raise Problem("invalid-request", f"context: {wrong}", errors=[error])
    return InvestigationRequest(question=question, title=run.title)


def _check_callback(ask: Ask, url: str | None) -> None:
    if url is None:
        return
    refused = check_url(url, allow_private=ask.services.settings.callbacks.allow_private)
    if refused:
        error = FieldError(pointer="/callbackUrl", detail=refused)
        raise Problem("invalid-request", f"callbackUrl: {refused}", errors=[error])
