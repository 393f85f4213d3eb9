"""`/loop`: start an iteration, see where it is, look at past ones."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from boyd.models import Decision, LoopResult, Model, Phase, Situation, Timestamp
from boyd.models.responses import Abandoned, IterationList, Triggered, TriggerResult
from boyd.runtime import Abandoner
from boyd.store import reason_text
from boyd_api.problems import Problem
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("loop")


class TriggerRequest(Model):
    """How to trigger: `context` is answered back, `async` does not wait for the iteration.

    Other fields are passed over.
    """

    model_config = ConfigDict(extra="ignore")

    context: str | None = Field(default=None, max_length=10_000)
    async_: bool = Field(default=False, alias="async")


class LoopState(Model):
    """What the agent is doing now; `worker` is where, `paused` and `frozen` say why.

    When it is idle, start, situation and decision are those of the last iteration. In full these
    are `situation` and `decision`; `currentSituation` is a summary, `currentDecision` an action.
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
    pending_runs: int
    pending_approvals: int
    worker: str | None = None


class HistoryQuery(Model):
    """How much of the past; `cursor` is a `nextCursor`: the last iteration that was shown."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,15}$")


@routes.post(
    "/loop/trigger",
    scope="trigger",
    answers={200: Triggered, 202: Triggered},
    problems=["paused"],
    idempotent=True,
)
def trigger(ask: Ask, body: TriggerRequest | None) -> Answer:
    """Start an iteration, or join the one in flight, and wait for its end.

    202: it goes on; `async` was asked for, or it has not ended within the time that a request may
    wait.
    """
    asked = body or TriggerRequest()
    begun = ask.agent.launcher.trigger(ask.actor.principal, ask.actor, ask.repeatable_id)
    past = ask.agent.store.history.get
    result = ask.until(lambda: past(begun.iteration), 0 if asked.async_ else None)
    if result is not None and not asked.async_:
        return Answer(_ended(result, asked.context))
    message = "the iteration has begun" if begun.new else "joined the iteration in flight"
    going = Triggered(
        success=True,
        status="triggered",
        message=message,
        iteration=begun.iteration,
        context=asked.context,
    )
    return Answer(going, 202)


def _ended(result: LoopResult, context: str | None) -> Triggered:
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


class AbandonRequest(Model):
    """Why, for the record; with `iteration` only that one."""

    reason: str | None = Field(default=None, max_length=1000)
    iteration: int | None = Field(default=None, ge=1, lt=2**53)


@routes.post(
    "/loop/abandon",
    scope="admin",
    answers={200: Abandoned},
    problems=["finished"],
    idempotent=True,
)
def abandon(ask: Ask, body: AbandonRequest | None) -> Abandoned:
    """End the iteration in flight as failed.

    No worker has to be there. An action that has begun is not begun again; unless it is known how
    it ended, its outcome is unknown. What somebody still says of the iteration is refused.
    """
    asked = body or AbandonRequest()
    why = f"abandoned: {reason_text(ask.actor.principal, asked.reason)}"
    desk = Abandoner(ask.agent.store, ask.services.dispatcher, ask.agent.entry.retention)
    found = desk.abandon(why, ask.actor, asked.iteration)
    if found.outcome == "idle":
        raise Problem("finished", "no iteration is in flight")
    if found.outcome == "over":
        raise Problem("finished", f"iteration {found.iteration} is in flight, not that one")
    return Abandoned(agent_id=ask.agent.entry.id, iteration=found.iteration, error=why)


#: What clients find in each status, if only to see that there is none.
_ALWAYS = ("startTime", "currentSituation", "currentDecision", "paused", "frozen", "worker")


@routes.get("/loop/status", scope="read", answers={200: LoopState})
def status(ask: Ask) -> Answer:
    """Show what the agent is doing now."""
    record = ask.agent.store.history.last()
    situation = record.situation if record else None
    decision = record.decision if record else None
    now = dict(ask.agent.store.loop.status())
    state = LoopState(
        **now | {"start_time": record.started_at if record else None},
        current_situation=situation.summary if situation else None,
        current_decision=decision.action if decision else None,
        situation=situation,
        decision=decision,
    )
    return Answer(state, nulls=_ALWAYS)


@routes.get("/loop/history", scope="read", answers={200: IterationList})
def history(ask: Ask, query: HistoryQuery) -> IterationList:
    """List past iterations, newest first."""
    before = int(query.cursor) if query.cursor else None
    page = ask.agent.store.history.outlines(query.limit, before)
    return IterationList(
        iterations=page.iterations,
        next_cursor=str(page.before) if page.before else None,
    )


@routes.get("/loop/history/<int:iteration>", scope="read", answers={200: LoopResult})
def one(ask: Ask, iteration: int) -> LoopResult:
    """Show everything of one past iteration, with how its decision came about."""
    result = ask.agent.store.history.get(iteration)
    if result is None:
        raise not_found(f"no iteration {iteration} has ended, or it is kept no longer")
    return result
