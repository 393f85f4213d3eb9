"""What is to be done, and how that was decided."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import Confidence, Json, JsonObject, Level, Model

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


NO_OP = "no-op"


class Decision(Model):
    """An action to take with its parameters, or `no-op`."""

    action: str = Field(min_length=1)
    params: JsonObject = Field(default_factory=dict)
    rationale: str
    confidence: Confidence
    risk: Level = "low"
    requires_approval: bool = False
    alternatives: list[Decision] | None = None
    estimated_impact: str | None = None

    @property
    def is_no_op(self) -> bool:
        """Whether nothing is to be done."""
        return self.action == NO_OP


def no_op(rationale: str) -> Decision:
    """The decision to do nothing: confidence 0, risk low (L23, L24)."""
    return Decision(action=NO_OP, rationale=rationale, confidence=0.0)


class Change(Model):
    """A plugin's hook changed these fields of the decision."""

    plugin: str
    fields: list[str]


class Refusal(Model):
    """A plugin stopped the decision, or it was not valid."""

    by: str
    reason: str
    action: str


class DecisionTrace(Model):
    """How the decision came about (L27).

    `vetoed` is set by a veto or a guard that failed, `invalid` by a decision that did not validate.
    """

    strategies: list[str] = Field(default_factory=list)
    applicable: list[str] = Field(default_factory=list)
    chosen: str | None = None
    changes: list[Change] = Field(default_factory=list)
    vetoed: Refusal | None = None
    invalid: Refusal | None = None

    @property
    def asked_by(self) -> str | None:
        """The plugin whose hook last asked for an approval."""
        names = {"requires_approval", "requiresApproval"}
        asked = [change.plugin for change in self.changes if names & set(change.fields)]
        return asked[-1] if asked else None
