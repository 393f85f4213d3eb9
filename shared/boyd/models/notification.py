"""Notifications of people about an approval, and their acknowledgement of it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

from pydantic import Field

from boyd.models.base import KeptModel, Model, Timestamp

NotificationStage = Literal[
    "waiting",
    "escalated",
    "acknowledged",
    "reminder",
    "half-time",
    "answered",
    "executed",
    "verified",
]

#: The stages in order. An approval is also answered when it has expired or was withdrawn.
STAGES: tuple[NotificationStage, ...] = get_args(NotificationStage)
#: The stages that ask for an answer.
ASKING: tuple[NotificationStage, ...] = ("waiting", "escalated", "reminder", "half-time")
#: The stages at which something has become of an approved action.
OUTCOMES: tuple[NotificationStage, ...] = ("executed", "verified")
#: The stages of which only those are told who know that it waited.
FOLLOWING: tuple[NotificationStage, ...] = ("acknowledged", "answered", "executed", "verified")
#: The stages that an approval may reach several times, and at any time while it waits.
_REPEATABLE = ("acknowledged", "reminder")


class Acknowledgement(Model):
    """The word of a principal that they take care of an approval or an anomaly.

    Attributes:
        number: 1 for the first one of its subject.
        by: the principal.
        name: the name of the principal, if a provider has told it.
        note: in one line.
        until: when it ends by itself; absent: it lasts as long as its subject.
        released_at: when somebody ended it.
        released_by: who.
    """

    number: int = 1
    by: str
    name: str | None = None
    note: str | None = None
    at: Timestamp
    until: Timestamp | None = None
    released_at: Timestamp | None = None
    released_by: str | None = None

    def end(self, now: datetime) -> datetime | None:
        """The time when it was released or lapsed, if it has."""
        if self.released_at is not None:
            return self.released_at
        return self.until if self.until is not None and self.until <= now else None

    def describe(self, now: datetime) -> str:
        """Name who has it since when, or until when they had it, in one line."""
        end, words = self.end(now), f"{self.by} since {self.at:%H:%M} UTC"
        if end is not None:
            return f"by {words.removesuffix(' UTC')} until {end:%H:%M} UTC"
        until = f", until {self.until:%H:%M} UTC" if self.until is not None else ""
        return "; ".join(filter(None, [f"{words}{until}", self.note]))

    def is_in_force(self, now: datetime) -> bool:
        """Check whether it has neither been released nor lapsed."""
        return self.end(now) is None


class NotificationRecipient(Model):
    """A recipient to which a plugin can send notifications; nothing in it is secret.

    Attributes:
        id: unique among the recipients of the plugin, and the same on every worker.
        group: the group of recipients.
        kind: the kind of service, such as `slack`.
        not_before: before which nothing is sent: the end of its quiet hours, or the time at which
            an approval is escalated to it.
    """

    id: str = Field(max_length=200)
    group: str
    kind: str
    not_before: Timestamp | None = None


class NotificationRecord(KeptModel):
    """A notification of one stage to one recipient, and its delivery.

    `queued` waits for its first or next attempt, at `next_at` if that is later. `skipped` was not
    wanted after all, as `error` says. `at` is the time of the last attempt. `occasion` is the
    number of the acknowledgement that it is about.
    """

    stage: NotificationStage
    occasion: int = 1
    plugin: str
    recipient: str
    group: str
    kind: str
    state: Literal["queued", "running", "succeeded", "failed", "skipped"] = "queued"
    attempts: int = 0
    at: Timestamp | None = None
    next_at: Timestamp | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        """Its name, unique within the approval."""
        number = f".{self.occasion}" if self.occasion > 1 else ""
        return f"{self.stage}{number}:{self.plugin}:{self.recipient}"

    @property
    def has_ended(self) -> bool:
        """True if there is no further attempt."""
        return self.state in ("succeeded", "failed", "skipped")

    def is_obsolete_after(self, other: NotificationRecord) -> bool:
        """Check whether *other* is of a later stage, to the same recipient."""
        if (self.plugin, self.recipient) != (other.plugin, other.recipient):
            return False
        if self.stage in _REPEATABLE and other.stage in _REPEATABLE:
            if self.occasion != other.occasion:
                return other.occasion > self.occasion
        elif "half-time" in (self.stage, other.stage) and not {self.stage, other.stage}.isdisjoint(
            _REPEATABLE
        ):
            return False
        return STAGES.index(other.stage) > STAGES.index(self.stage)
