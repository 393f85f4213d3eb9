"""Collects what belongs to an iteration: approvals, executions and audit entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from boyd import naming
from boyd.export.testimony import FlightRecord
from boyd.models import ApprovalItem, AuditEntry, AuditPage, ExecutionEntry, LoopResult
from boyd_api.http.request_context import RequestContext
from boyd_api.routes import administration_routes

#: Audit entries of a page, and pages that are searched around each time.
_ENTRIES = 500
_PAGES = 20
#: The time by which clocks may differ.
_SLACK = timedelta(seconds=1)

Period = tuple[datetime, datetime]


def flight_record(ctx: RequestContext, result: LoopResult) -> FlightRecord:
    """The record of an iteration that has ended, with all that belongs to it."""
    past = ctx.agent.past_work
    asked = [one.waits_for for one in result.action_results if one.waits_for]
    approvals = [item for item in map(past.approval, asked) if item]
    names = [execution_name(result), *map(naming.approval, asked)]
    executions = [entry for entry in map(past.execution, names) if entry]
    periods = _periods(result, approvals, executions)
    entries, missing = audit_entries(ctx, result, periods)
    return FlightRecord(result, approvals, executions, entries, missing)


def audit_entries(
    ctx: RequestContext, result: LoopResult, periods: Sequence[Period] = ()
) -> tuple[list[AuditEntry], str | None]:
    """The audit entries of an iteration, its action and its approvals, oldest first.

    They are searched in *periods*, or else while the iteration ran. The text says why some are
    missing, if some are.
    """
    subjects = {
        ("iteration", str(result.iteration)),
        ("execution", execution_name(result)),
        *(("run", run) for run in result.runs),
    }
    for one in result.action_results:
        if one.waits_for:
            subjects |= {("approval", one.waits_for), ("execution", naming.approval(one.waits_for))}
    found: dict[int, AuditEntry] = {}
    missing = None
    for since, until in periods or [(result.started_at, result.ended_at)]:
        for page in _pages(ctx, since - _SLACK, until + _SLACK):
            found |= {one.seq: one for one in page.entries if subjects & set(one.what.items())}
            missing = page.missing or missing
            cursor = page.next_cursor
        if cursor:
            missing = f"there are more than {_ENTRIES * _PAGES} entries around {since.isoformat()}"
    return [found[seq] for seq in sorted(found)], missing


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


def _periods(
    result: LoopResult, approvals: Sequence[ApprovalItem], executions: Sequence[ExecutionEntry]
) -> list[Period]:
    """The times around which something happened to the iteration, its approvals or its action."""
    times = [(result.started_at, result.ended_at)]
    for item in approvals:
        moments = [item.created_at, item.updated_at, *(vote.at for vote in item.approvals)]
        times += [(at, at) for at in moments]
    for entry in executions:
        if entry.started_at:
            times.append((entry.started_at, entry.ended_at or entry.started_at))
    return times


def execution_name(result: LoopResult) -> str:
    """The name of the execution of its action."""
    return naming.loop(result.id.removeprefix(f"{result.agent_id}:"))
