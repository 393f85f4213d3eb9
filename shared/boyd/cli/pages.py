"""Lists that the API gives page by page."""

from __future__ import annotations

from collections.abc import Iterator

from boyd.cli.connection import Api
from boyd.models import ApprovalQueue, Run, RunPage

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
