"""Notifications of approvals: their stages, their recipients, and what became of each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import Model, Timestamp

NotificationStage = Literal["waiting", "half-time", "answered"]

#: The stages in order. An approval is also answered when it has expired or was withdrawn.
STAGES: tuple[NotificationStage, ...] = ("waiting", "half-time", "answered")


class NotificationRecipient(Model):
    """A recipient to which a plugin can send notifications; nothing in it is secret.

    Attributes:
        id: unique among the recipients of the plugin, and the same on every worker.
        group: the group of recipients.
        kind: the kind of service, such as `slack`.
        not_before: the end of its quiet hours; None: send at once.
    """

    id: str = Field(max_length=200)
    group: str
    kind: str
    not_before: Timestamp | None = None


class NotificationRecord(Model):
    """A notification of one stage to one recipient, and its delivery.

    `queued` waits for its first or next attempt, at `next_at` if that is later. `skipped` was not
    wanted any more, as `error` says. `at` is the time of the last attempt.
    """

    stage: NotificationStage
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
        return f"{self.stage}:{self.plugin}:{self.recipient}"

    @property
    def ended(self) -> bool:
        """Tell whether nothing more is sent."""
        return self.state in ("succeeded", "failed", "skipped")

    def replaced_by(self, other: NotificationRecord) -> bool:
        """Tell whether *other* tells the same recipient something later."""
        same = (self.plugin, self.recipient) == (other.plugin, other.recipient)
        return same and STAGES.index(other.stage) > STAGES.index(self.stage)
