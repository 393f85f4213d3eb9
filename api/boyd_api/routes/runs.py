"""`/runs`: what clients ask an agent to look into (R1 to R6)."""

from __future__ import annotations

from pydantic import Field

from boyd.models import Callback, Level, Model, Run, RunPage, RunRequest, RunStatus
from boyd.models.answers import Redelivering, RunCancelled, RunCreated
from boyd.outbound import check_url
from boyd_api.problems import FieldError, Problem
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("runs")


class RunsQuery(Model):
    """Which runs; a page may hold fewer than `limit` and still name a cursor to go on with."""

    status: RunStatus | None = None
    priority: Level | None = None
    source: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=500)


class CancelRequest(Model):
    """Why."""

    reason: str | None = Field(default=None, max_length=1000)


@routes.post("/runs", scope="runs", answers={201: RunCreated}, idempotent=True)
def submit(ask: Ask, body: RunRequest) -> Answer:
    """Submit a run; it starts an iteration unless the agent is continuous."""
    _check_callback(ask, body.callback_url)
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


def _check_callback(ask: Ask, url: str | None) -> None:
    if url is None:
        return
    refused = check_url(url, allow_private=ask.services.settings.callbacks.allow_private)
    if refused:
        error = FieldError(pointer="/callbackUrl", detail=refused)
        raise Problem("invalid-request", f"callbackUrl: {refused}", errors=[error])
