"""The archive and traces: filters of history, whole investigations, and the state of copying."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from boyd.models.base import Model, Timestamp
from boyd.models.investigation import Investigation, Logged

#: Seconds of silence after which such a process counts as dead.
SILENT = 10.0

OutcomeFilter = Literal["ok", "failed"]


class HistoryFilter(Model):
    """A filter for iterations; absent fields match anything.

    Attributes:
        since: ended then or later.
        until: ended before that.
        host: a host where an observer or action ran.
        worker: a process that ran one.
        action: the action decided or executed.
        source: an observer, or the source of an observation.
        trigger: what began it.
        status: how it ended.
        q: words in situation, decision or errors; words of three letters or more match beginnings.
    """

    since: Timestamp | None = None
    until: Timestamp | None = None
    host: str | None = Field(default=None, min_length=1, max_length=255)
    worker: str | None = Field(default=None, min_length=1, max_length=300)
    action: str | None = Field(default=None, min_length=1, max_length=200)
    source: str | None = Field(default=None, min_length=1, max_length=500)
    trigger: str | None = Field(default=None, min_length=1, max_length=200)
    status: OutcomeFilter | None = None
    q: str | None = Field(default=None, min_length=1, max_length=500)

    @property
    def is_open(self) -> bool:
        """True if it matches every iteration."""
        return not any(getattr(self, name) for name in HistoryFilter.model_fields)


class InvestigationRecord(Model):
    """An ended investigation with all of its log."""

    investigation: Investigation
    log: list[Logged]


class FollowerStatus(Model):
    """The state of a process that follows ended work, as it announces it every few seconds.

    Attributes:
        name: the process.
        at: the time of the announcement.
        copied_at: the time up to which everything was copied; absent before the first round.
        down_since: since when the database or collector has not answered; absent while it answers.
        error: why.
        copied: the records, or spans, that the process has copied since its start.
    """

    name: str
    at: Timestamp
    copied_at: Timestamp | None = None
    down_since: Timestamp | None = None
    error: str | None = None
    copied: int = 0

    def works_at(self, now: datetime) -> bool:
        """Tell whether the process lives at the time *now* and what it writes to answers."""
        return self.down_since is None and (now - self.at).total_seconds() < SILENT


class ArchiveStatus(FollowerStatus):
    """The state of the archive."""


class TraceStatus(FollowerStatus):
    """The state of the export of traces.

    Attributes:
        refused: the spans that the collector refused for what they are.
        standby: whether another process exports.
    """

    refused: int = 0
    standby: bool = False
