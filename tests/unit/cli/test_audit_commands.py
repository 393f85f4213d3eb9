"""`boyd audit`: how it reads a trail over the API, page by page."""

from __future__ import annotations

from typing import Any

from boyd.models import AuditEntry, AuditPage, utc_now
from boyd_cli.commands.audit_commands import RemoteTrail


class PagedTrail:
    """An API whose trail has entries up to *newest*, and that counts the pages that were read."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.pages = 0

    def get(
        self, _path: str, _kind: type, *, limit: int, cursor: str | None, **_: Any
    ) -> AuditPage:
        """A page, newest first."""
        self.pages += 1
        newest = int(cursor or self.newest)
        entries = [entry(seq) for seq in range(newest, max(0, newest - limit), -1)]
        oldest = entries[-1].seq
        return AuditPage(entries=entries, next_cursor=str(oldest - 1) if oldest > 1 else None)


def entry(seq: int) -> AuditEntry:
    """An entry of that number."""
    return AuditEntry(
        seq=seq,
        id="",
        at=utc_now(),
        kind="agent.paused",
        who="alice",
        what={},
        sealed_by="sha256",
        prev="",
        hash="",
    )


def test_following_leaves_out_no_entry_however_many_came_at_once() -> None:
    api = PagedTrail(newest=1234)
    entries = RemoteTrail(api, "/audit").after(10, 0)  # type: ignore[arg-type]

    assert [entry.seq for entry in entries] == list(range(11, 1235))


def test_following_reads_one_page_if_that_is_enough() -> None:
    api = PagedTrail(newest=1234)

    assert RemoteTrail(api, "/audit").after(1234, 0) == []  # type: ignore[arg-type]
    assert [entry.seq for entry in RemoteTrail(api, "/audit").after(1233, 0)] == [1234]  # type: ignore[arg-type]
    assert api.pages == 2
