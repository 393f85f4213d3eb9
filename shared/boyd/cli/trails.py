"""An audit trail, over the API or directly on Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, Self

from boyd.cli.connection import Api
from boyd.models import AuditEntry, AuditFilter, AuditHead, AuditPage, Verification

if TYPE_CHECKING:
    from boyd.client import Client
    from boyd.store import Audit

#: The most entries that one request may ask for.
_PAGE = 500


@dataclass(frozen=True)
class Wanted:
    """Which entries of a trail are wanted, and from when."""

    filter: AuditFilter = field(default_factory=AuditFilter)
    since: datetime | None = None
    until: datetime | None = None

    def query(self) -> dict[str, object]:
        """As the API takes it."""
        filters = {name: getattr(self.filter, name) for name in AuditFilter.model_fields}
        return {**filters, "since": self.since, "until": self.until}


class Trail(Protocol):
    """One chain of entries."""

    def newest(self, limit: int, wanted: Wanted) -> list[AuditEntry]:
        """The last entries, oldest first."""

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """The entries after that one; waits so long for the first."""

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """Check the chain; only a trail on Redis can begin at a head."""

    def export(self, wanted: Wanted) -> Iterator[str]:
        """The entries as lines of JSON, the oldest first."""


class DirectTrail:
    """A trail on Redis; seals what nobody else has sealed."""

    def __init__(self, chain: Audit) -> None:
        self._chain = chain

    def newest(self, limit: int, wanted: Wanted) -> list[AuditEntry]:
        """See `Trail`."""
        self._chain.seal()

        def page(count: int, cursor: str | None) -> AuditPage:
            return self._chain.page(count, cursor, wanted.since, wanted.until, wanted.filter)

        return _newest(page, limit)

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.wait(seq, seconds)

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.verify(expect, begin)

    def export(self, wanted: Wanted) -> Iterator[str]:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.export(wanted.since, wanted.until, wanted.filter)


class RemoteTrail:
    """A trail as the API tells it."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    @classmethod
    def of_agent(cls, api: Api) -> Self:
        """The trail of the agent that is meant."""
        return cls(api.agent, "/audit")

    @classmethod
    def of_deployment(cls, api: Api) -> Self:
        """The trail of what concerns all agents."""
        return cls(api.deployment, "/deployment/audit")

    def newest(self, limit: int, wanted: Wanted) -> list[AuditEntry]:
        """See `Trail`."""
        query = wanted.query()
        return _newest(lambda count, cursor: self._page(count, cursor, **query), limit)

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """See `Trail`; the API is asked once, after that time."""
        time.sleep(seconds)
        return [entry for entry in self._page(_PAGE, None).entries[::-1] if entry.seq > seq]

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """See `Trail`."""
        assert begin is None, "whoever begins at a head is on Redis"
        return self._client.get(f"{self._path}/verify", Verification, expect=expect)

    def export(self, wanted: Wanted) -> Iterator[str]:
        """See `Trail`."""
        return self._client.lines(f"{self._path}/export", **wanted.query())

    def _page(self, limit: int, cursor: str | None, **query: object) -> AuditPage:
        return self._client.get(self._path, AuditPage, **query, limit=limit, cursor=cursor)


def _newest(page: Callable[[int, str | None], AuditPage], limit: int) -> list[AuditEntry]:
    """So many entries, oldest first, page by page."""
    found: list[AuditEntry] = []
    cursor: str | None = None
    while len(found) < limit:
        read = page(min(_PAGE, limit - len(found)), cursor)
        found += read.entries
        cursor = read.next_cursor
        if cursor is None:
            break
    return found[::-1]
