"""What was done."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import Confidence, Json, Model

AutonomyMode = Literal["auto", "approval-required", "human-only"]


#: The error of a result that says that an action waits for a person (L29).
APPROVAL_REQUIRED = "Approval required"


class Autonomy(Model):
    """When an action may run without a person (L29)."""

    mode: AutonomyMode = "auto"
    min_confidence: Confidence | None = None


class Budget(Model):
    """At most *limit* executions of an action per target within *window* seconds (L34)."""

    limit: int = Field(gt=0)
    window: float = Field(gt=0)


class ActionResult(Model):
    """The outcome of one action; `duration` is in milliseconds.

    `unknown` is true when the action was started and its outcome was lost (L32). Boyd itself says
    on which `host` it was executed and in which process there, its `worker`.
    """

    action: str
    success: bool
    duration: float = Field(ge=0)
    output: Json = None
    error: str | None = None
    side_effects: list[str] | None = None
    metrics: dict[str, float | str] | None = None
    unknown: bool | None = None
    host: str | None = None
    worker: str | None = None

    @property
    def state(self) -> Literal["succeeded", "failed", "unknown"]:
        """How it ended, in a word."""
        if self.unknown:
            return "unknown"
        return "succeeded" if self.success else "failed"

    @property
    def waits_for(self) -> str | None:
        """The approval that the action waits for, if it does."""
        if self.error != APPROVAL_REQUIRED or not self.metrics:
            return None
        return str(self.metrics.get("approvalId", "")) or None
