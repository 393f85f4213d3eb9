"""Decisions and their traces."""

from __future__ import annotations

from pydantic import Field

from boyd.models.base import Confidence, JsonObject, Level, Model

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
        """True for a no-op."""
        return self.action == NO_OP


def no_op(rationale: str) -> Decision:
    """The decision to do nothing: confidence 0, risk low."""
    return Decision(action=NO_OP, rationale=rationale, confidence=0.0)


class Change(Model):
    """The fields of a decision that a plugin's hook changed."""

    plugin: str
    fields: list[str]


class Refusal(Model):
    """A decision stopped by a plugin, or invalid."""

    by: str
    reason: str
    action: str


class DecisionTrace(Model):
    """The trace of a decision.

    A veto or failed guard sets `vetoed`; an invalid decision sets `invalid`.
    """

    strategies: list[str] = Field(default_factory=list)
    applicable: list[str] = Field(default_factory=list)
    chosen: str | None = None
    changes: list[Change] = Field(default_factory=list)
    vetoed: Refusal | None = None
    invalid: Refusal | None = None

    @property
    def asked_by(self) -> str | None:
        """The plugin whose hook last required an approval."""
        names = {"requires_approval", "requiresApproval"}
        asked = [change.plugin for change in self.changes if names & set(change.fields)]
        return asked[-1] if asked else None
