"""Lists that the API gives page by page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from boyd.cli.connection import Api
from boyd.models import ApprovalQueue, ExecutionEntry, ExecutionPage, Run, RunPage
from boyd.models.investigation import Investigation, InvestigationPage, Logged, LogPage

#: The most that one page may hold.
PAGE = 500


def runs(api: Api, **query: object) -> Iterator[Run]:
    """Runs, newest first, as many as there are."""
    cursor: str | None = None
    while True:
        page = api.agent.get("/runs", RunPage, **query, cursor=cursor)
        yield from page.runs
        cursor = page.next_cursor
        if cursor is None:
            return


def investigations(api: Api, **query: object) -> Iterator[Investigation]:
    """Investigations, newest first, as many as there are."""
    cursor: str | None = None
    while True:
        page = api.agent.get("/investigations", InvestigationPage, **query, cursor=cursor)
        yield from page.investigations
        cursor = page.next_cursor
        if cursor is None:
            return


def entries(api: Api, investigation: str, after: str | None = None) -> Iterator[Logged]:
    """What the log of an investigation has by now after *after*, oldest first."""
    path = f"/investigations/{quote(investigation, safe='')}/log"
    last: str | None = after
    while True:
        page = api.agent.get(path, LogPage, after=last, limit=PAGE)
        yield from page.entries
        last = page.next_after
        if last is None:
            return


def executions(api: Api, limit: int, **query: object) -> list[ExecutionEntry]:
    """The newest executions that fit, so many at most."""
    found: list[ExecutionEntry] = []
    cursor: str | None = None
    while True:
        wanted = min(limit - len(found), PAGE)
        page = api.agent.get("/executions", ExecutionPage, **query, limit=wanted, cursor=cursor)
        found += page.executions
        cursor = page.next_cursor
        if cursor is None or len(found) >= limit:
            return found


def approvals(api: Api, *, history: bool) -> Iterator[ApprovalQueue]:
    """The queue of approvals, page by page."""
    cursor: str | None = None
    while True:
        query = {"includeHistory": history, "limit": PAGE, "cursor": cursor}
        page = api.agent.get("/approvals", ApprovalQueue, **query)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
