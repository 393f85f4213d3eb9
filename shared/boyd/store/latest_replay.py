"""The latest replay of an agent that somebody published, for the console."""

from __future__ import annotations

from datetime import datetime

from pydantic import ValidationError

from boyd.models.tape import PublishedReplay, ReplayReport
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import milliseconds

#: Seconds to keep it, and the findings of it that are kept.
KEPT = 30 * 86_400.0
FINDINGS = 200


class LatestReplay:
    """The latest published replay of one agent; a new one replaces it."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._key = keys.replay

    def publish(self, report: ReplayReport, by: str, at: datetime) -> None:
        """Publish a report, with its first findings."""
        excerpt = report.patched({"findings": report.findings[:FINDINGS]})
        text = PublishedReplay(report=excerpt, by=by, at=at).to_json()
        with translate_errors():
            self._client.set(self._key, text, px=milliseconds(KEPT))

    def read(self) -> PublishedReplay | None:
        """The latest one; None if there is none, or a later release has written it."""
        with translate_errors():
            text = self._client.get(self._key)
        try:
            return PublishedReplay.from_json(text) if text else None
        except ValidationError:
            return None
