"""`/incidents`: the history of a target, by all agents that know it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flask import Response
from pydantic import Field

from boyd.export.archive.incident_grouping import QUIET
from boyd.export.archive.incident_report import report
from boyd.export.archive.period_iterations import TargetQuery
from boyd.export.archive.target_history import read_target
from boyd.models import Model, utc_now
from boyd.models.incident import Incident, TargetHistory
from boyd_api.http.problems import FieldError, HttpProblem, not_found
from boyd_api.http.request_context import PeriodQuery, RequestContext
from boyd_api.http.routing import Media, Routes

#: The period without a start, and the longest one about which is asked at once.
DAY = timedelta(days=1)
LONGEST = timedelta(days=31)
#: No record is older; of the first times of all none can be taken to look before them.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
#: The time before an incident that is read, too, and those within which its end is searched.
_BEFORE = timedelta(minutes=30)
_REACHES = (timedelta(hours=6), timedelta(days=7))

routes = Routes("incidents")


class TargetAnswer(Model):
    """Names a target; `agent` limits the answer to what that one knows."""

    target: str = Field(min_length=1, max_length=1000)
    agent: str | None = Field(default=None, min_length=1, max_length=200)


class IncidentsQuery(PeriodQuery, TargetAnswer):
    """Selects a target and a period, by default the last day."""


@routes.get("/incidents", scope="read", reach="visible", label="list", problems=["unknown-agent"])
def list_incidents(ctx: RequestContext, query: IncidentsQuery) -> TargetHistory:
    """List what happened to a target in a period: its incidents, and everything else.

    An incident is everything from the first anomaly to the last verdict.
    """
    now = _now(ctx)
    until = max(_EARLIEST, min(query.until or now, now))
    since = query.since or until - DAY
    if not since < until:
        wrong = "since: must be before until"
    elif until - since > LONGEST:
        wrong = f"since: must be at most {LONGEST.days} days before until"
    else:
        return _read(ctx, query, since, until)
    errors = [FieldError(parameter="since", detail=wrong)]
    raise HttpProblem("invalid-request", wrong, errors=errors)


@routes.get(
    "/incidents/<rest:id>", scope="read", reach="visible", label="show", problems=["unknown-agent"]
)
def show_incident(ctx: RequestContext, id: str, query: TargetAnswer) -> Incident:
    """Show the incident of a target that went on at a time, such as that of its beginning."""
    now = _now(ctx)
    absence = f"no incident of {query.target} went on at {id}"
    try:
        at = datetime.fromisoformat(id)
    except ValueError:
        raise not_found(absence) from None
    if at.tzinfo is None or not _EARLIEST <= at < now:
        raise not_found(absence)
    incident = None
    for reach in _REACHES:
        until = min(now, at + reach)
        history = _read(ctx, query, at - _BEFORE, until)
        incident = history.incident_at(at)
        if incident is None or until == now or incident.until < until - QUIET:
            break
    if incident is None:
        raise not_found("; ".join([absence, *history.notes]))
    return incident


@routes.get(
    "/incident-reports/<rest:id>",
    scope="read",
    reach="visible",
    label="report",
    problems=["unknown-agent"],
    answers={200: Media("text/markdown", "The timeline of the incident in Markdown.")},
)
def report_incident(ctx: RequestContext, id: str, query: TargetAnswer) -> Response:
    """Write the timeline of an incident in Markdown."""
    return Response(report(show_incident(ctx, id, query)), mimetype="text/markdown")


def read_around(
    ctx: RequestContext, query: TargetAnswer, since: datetime, until: datetime
) -> TargetHistory:
    """The history of a target in a period that may end in the future."""
    return _read(ctx, query, since, min(until, _now(ctx)))


def _read(
    ctx: RequestContext, query: TargetAnswer, since: datetime, until: datetime
) -> TargetHistory:
    names = [query.agent] if query.agent else list(ctx.agents)
    stores = [ctx.services.agent(name, ctx.key).store for name in names]
    return read_target(TargetQuery(query.target, since, until), stores, ctx.services.archive)


def _now(ctx: RequestContext) -> datetime:
    return ctx.now or utc_now()
