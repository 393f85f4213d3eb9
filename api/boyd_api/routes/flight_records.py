"""Finds the audit entries of an iteration, of its action and of its approvals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from boyd import naming
from boyd.models import AuditEntry, AuditPage, LoopResult
from boyd_api.http.request_context import RequestContext
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
    return naming.loop(result.id.removeprefix(f"{result.agent_id}:"))
