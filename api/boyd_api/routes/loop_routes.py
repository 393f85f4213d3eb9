"""`/loop`, `/observations`, `/situation`: start iterations, and read what they found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pydantic import ConfigDict, Field

from boyd import naming
from boyd.export.archive.merged_history import CURSOR, NAME
from boyd.models import (
    AuditEntry,
    AuditPage,
    Decision,
    LoopResult,
    Model,
    Observation,
    Phase,
    Situation,
    Timestamp,
)
from boyd.models.loop import HistoryFilter
from boyd.models.responses import Abandoned, IterationList, Triggered, TriggerResult
from boyd.runtime import Abandoner
from boyd.store import AgentStore, reason_text
from boyd.store.hashes import readable
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import PageQuery, PeriodQuery, RequestContext
from boyd_api.http.routing import JsonResponse, Routes
from boyd_api.routes import administration_routes

#: Audit entries of a page, and pages that are searched around each time.
_ENTRIES = 500
_PAGES = 20
#: The time by which clocks may differ.
_SLACK = timedelta(seconds=1)


def audit_entries(ctx: RequestContext, result: LoopResult) -> list[AuditEntry]:
    """The audit entries from while an iteration ran about it, its action and its approvals.

    Oldest first; a very long iteration leaves the oldest out.
    """
    subjects = {
        ("iteration", str(result.iteration)),
        ("execution", execution_name(result)),
        *(("run", run) for run in result.runs),
    }
    for action in result.action_results:
        if id := action.waits_for:
            subjects |= {("approval", id), ("execution", naming.approval(id))}
    pages = _pages(ctx, result.started_at - _SLACK, result.ended_at + _SLACK)
    entries = {
        entry.seq: entry
        for page in pages
        for entry in page.entries
        if subjects & set(entry.what.items())
    }
    return [entries[seq] for seq in sorted(entries)]


def _pages(ctx: RequestContext, since: datetime, until: datetime) -> Iterator[AuditPage]:
    cursor = None
    for _ in range(_PAGES):
        query = administration_routes.AuditPageQuery(
            limit=_ENTRIES, since=since, until=until, cursor=cursor
        )
        page = administration_routes.show(ctx, query)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def execution_name(result: LoopResult) -> str:
    """The name of the execution of its action."""
    return naming.iteration_execution(result.id.removeprefix(f"{result.agent_id}:"))


loop_routes = Routes("loop")
observation_routes = Routes("observations")
situation_routes = Routes("situation")

#: How many iterations to search for a situation, when the last ones have failed before it.
_SEARCHED = 20


class TriggerRequest(Model):
    """A trigger: `context` is returned, `async` does not wait for the iteration.

    Unknown fields are ignored.
    """

    model_config = ConfigDict(extra="ignore")

    context: str | None = Field(default=None, max_length=10_000)
    async_: bool = Field(default=False, alias="async")


class AbandonRequest(Model):
    """The reason, for the record; with `iteration` only that one is abandoned."""

    reason: str | None = Field(default=None, max_length=1000)
    iteration: int | None = Field(default=None, ge=1, lt=2**53)


class LoopState(Model):
    """The state of the agent; `paused`, `frozen` and `revoked` give reasons.

    `worker` is its place. When it is idle, start, situation and decision are those of the last
    iteration. `situation` and `decision` are complete; `currentSituation` is a summary,
    `currentDecision` an action.
    """

    phase: Phase
    iteration: int
    start_time: Timestamp | None = None
    current_situation: str | None = None
    current_decision: str | None = None
    situation: Situation | None = None
    decision: Decision | None = None
    agent_id: str
    paused: str | None = None
    frozen: str | None = None
    revoked: str | None = None
    pending_runs: int
    pending_approvals: int
    stopped_procedures: int
    worker: str | None = None


#: Fields that clients find in each status, if only as null.
_ALWAYS = ("startTime", "currentSituation", "currentDecision", "paused", "frozen", "worker")


class HistoryQuery(PageQuery, PeriodQuery, HistoryFilter):
    """Selects past iterations; `cursor` is a `nextCursor`: the last iteration that was shown.

    `q` are words in situation, decision or errors; of a word of three letters or more the beginning
    is enough.
    """

    cursor: str | None = Field(default=None, pattern=CURSOR)

    @property
    def filter(self) -> HistoryFilter:
        """The filter without the page."""
        return HistoryFilter(**{name: getattr(self, name) for name in HistoryFilter.model_fields})


class ObservationsQuery(Model):
    """Selects observations: `source` is a part of their source."""

    limit: int = Field(default=50, ge=1, le=1000)
    source: str | None = Field(default=None, max_length=500)


class ObservationList(Model):
    """Observations; `total` counts all of the iteration, `filtered` those that match."""

    observations: list[Observation]
    total: int
    filtered: int


class CurrentSituation(Model):
    """The latest situation."""

    situation: Situation


@loop_routes.post(
    "/loop/trigger",
    scope="trigger",
    answers={200: Triggered, 202: Triggered},
    problems=["paused"],
)
def trigger(ctx: RequestContext, body: TriggerRequest | None) -> JsonResponse:
    """Start an iteration, or join the one in flight, and wait for its end.

    202: it continues, because `async` was set, or because it has not ended within the time that a
    request may wait.
    """
    options, actor = body or TriggerRequest(), ctx.actor
    start = ctx.agent.launcher.trigger(actor.principal, actor, ctx.repeatable_id)
    past = ctx.agent.store.history.get
    result = ctx.until(lambda: past(start.iteration), 0 if options.async_ else None)
    if result is not None and not options.async_:
        return JsonResponse(_completion(result, options.context))
    going = Triggered(
        success=True,
        status="triggered",
        message="iteration started" if start.new else "joined the iteration in flight",
        iteration=start.iteration,
        context=options.context,
    )
    return JsonResponse(going, 202)


def _completion(result: LoopResult, context: str | None) -> Triggered:
    return Triggered(
        success=result.success,
        status="completed" if result.success else "failed",
        result=TriggerResult(
            observations=len(result.observations),
            situation=result.situation.summary if result.situation else None,
            decision=result.decision.action if result.decision else None,
            action_results=len(result.action_results),
            duration=result.duration,
        ),
        error=result.error,
        iteration=result.iteration,
        context=context,
    )


@loop_routes.post("/loop/abandon", scope="admin", problems=["finished"])
def abandon(ctx: RequestContext, body: AbandonRequest | None) -> Abandoned:
    """End the iteration in flight as failed.

    It needs no worker. An action that has started is not started again; its outcome is unknown
    unless it was reported. Later reports for the iteration are refused.
    """
    options, agent = body or AbandonRequest(), ctx.agent
    reason = f"abandoned: {reason_text(ctx.actor.principal, options.reason)}"
    abandoner = Abandoner(agent.store, ctx.services.dispatcher, agent.entry.retention)
    abandonment = abandoner.abandon(reason, ctx.actor, options.iteration)
    if abandonment.outcome == "idle":
        raise HttpProblem("finished", "no iteration is in flight")
    if abandonment.outcome == "over":
        raise HttpProblem(
            "finished", f"iteration {abandonment.iteration} is in flight, not that one"
        )
    return Abandoned(agent_id=agent.entry.id, iteration=abandonment.iteration, error=reason)


@loop_routes.get("/loop/status", scope="read", answers={200: LoopState})
def status(ctx: RequestContext) -> JsonResponse:
    """Show the current state of the agent."""
    record = ctx.agent.store.history.last()
    name = "the latest iteration"
    situation = readable(name, lambda latest: latest.situation, record) if record else None
    decision = readable(name, lambda latest: latest.decision, record) if record else None
    fields = dict(ctx.agent.store.loop_control.status())
    state = LoopState(
        **fields | {"start_time": record.started_at if record else None},
        current_situation=situation.summary if situation else None,
        current_decision=decision.action if decision else None,
        situation=situation,
        decision=decision,
    )
    return JsonResponse(state, nulls=_ALWAYS)


@loop_routes.get("/loop/history", scope="read")
def history(ctx: RequestContext, query: HistoryQuery) -> IterationList:
    """List past iterations, newest first, from Redis and the archive.

    A page may hold fewer than `limit` iterations, or none, and still have a `nextCursor`.
    """
    return ctx.agent.past.page(query.limit, query.cursor, query.filter)


@loop_routes.get("/loop/history/<iteration>", scope="read")
def one(ctx: RequestContext, iteration: str) -> LoopResult:
    """Show a past iteration in full, with the trace of its decision.

    `iteration` is a number, which means the newest iteration of that number, or what follows the
    agent in its `id`.
    """
    result = ctx.agent.past.get(iteration) if NAME.fullmatch(iteration) else None
    if result is None:
        raise not_found(f"iteration {iteration} has not ended, or is no longer in history")
    return result


@observation_routes.get("/observations", scope="read", label="show")
def show_observations(ctx: RequestContext, query: ObservationsQuery) -> ObservationList:
    """List the observations of the last iteration."""
    last = last_result(ctx.agent.store)
    observations = last.observations if last else []
    matching = [
        observation
        for observation in observations
        if query.source is None or query.source in observation.source
    ]
    return ObservationList(
        observations=matching[: query.limit], total=len(observations), filtered=len(matching)
    )


@situation_routes.get("/situation", scope="read", problems=["not-found"], label="show")
def show_situation(ctx: RequestContext) -> CurrentSituation:
    """Show the latest situation."""
    history = ctx.agent.store.history
    situation = history.situation()
    if situation is None:
        summaries = history.summaries(_SEARCHED).iterations
        older = next(
            (summary.iteration for summary in summaries if summary.situation is not None), None
        )
        result = None if older is None else history.get(older)
        situation = result.situation if result else None
    if situation is None:
        raise not_found("no iteration has assessed a situation yet")
    return CurrentSituation(situation=situation)


def last_result(store: AgentStore) -> LoopResult | None:
    """The newest iteration that has ended."""
    results = store.history.results(1)
    return results[0] if results else None
