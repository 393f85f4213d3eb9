"""An audit trail, over the API or directly on Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, Self

from boyd.cli.connection import Api
from boyd.models import AuditEntry, AuditHead, AuditPage, Verification

if TYPE_CHECKING:
    from boyd.client import Client
    from boyd.store import Audit

#: The most entries that one request may ask for.
_PAGE = 500


class Trail(Protocol):
    """One chain of entries."""

    def newest(self, limit: int) -> list[AuditEntry]:
        """The last entries, oldest first."""

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """The entries after that one; waits so long for the first."""

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """Check the chain; only a trail on Redis can begin at a head."""

    def export(self, since: datetime | None) -> Iterator[str]:
        """Every entry as a line of JSON, the oldest first."""


class DirectTrail:
    """A trail on Redis; seals what nobody else has sealed."""

    def __init__(self, chain: Audit) -> None:
        self._chain = chain

    def newest(self, limit: int) -> list[AuditEntry]:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.page(limit).entries[::-1]

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.wait(seq, seconds)

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.verify(expect, begin)

    def export(self, since: datetime | None) -> Iterator[str]:
        """See `Trail`."""
        self._chain.seal()
        return self._chain.export(since)


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

    def newest(self, limit: int) -> list[AuditEntry]:
        """See `Trail`."""
        found: list[AuditEntry] = []
        cursor: str | None = None
        while len(found) < limit:
            page = self._page(min(_PAGE, limit - len(found)), cursor)
            found += page.entries
            cursor = page.next_cursor
            if cursor is None:
                break
        return found[::-1]

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """See `Trail`; the API is asked once, after that time."""
        time.sleep(seconds)
        return [entry for entry in self._page(_PAGE, None).entries[::-1] if entry.seq > seq]

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """See `Trail`."""
        assert begin is None, "whoever begins at a head is on Redis"
        return self._client.get(f"{self._path}/verify", Verification, expect=expect)

    def export(self, since: datetime | None) -> Iterator[str]:
        """See `Trail`."""
        return self._client.lines(f"{self._path}/export", since=since)

    def _page(self, limit: int, cursor: str | None) -> AuditPage:
        return self._client.get(self._path, AuditPage, limit=limit, cursor=cursor)
