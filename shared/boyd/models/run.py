"""A work item that a client submits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.action import ActionResult
from boyd.models.base import JsonObject, Level, Model, Timestamp
from boyd.models.situation import SituationAssessment

RunStatus = Literal["pending", "investigating", "completed", "failed", "cancelled"]


class ActionPerformed(Model):
    """One action as a run's result tells it."""

    action: str
    success: bool
    description: str

    @classmethod
    def of(cls, result: ActionResult) -> ActionPerformed:
        """The short form of *result*."""
        said = result.error or (result.output if isinstance(result.output, str) else "done")
        return cls(action=result.action, success=result.success, description=said)


class RunResult(Model):
    """What a run led to (R3); `duration` is in milliseconds."""

    summary: str
    findings: list[str]
    actions_performed: list[ActionPerformed]
    loop_iterations: int
    duration: float
    situation_assessment: list[SituationAssessment] | None = None
    recommendations: list[str] = Field(default_factory=list)


class RunRequest(Model):
    """What a client sends to start a run (R1)."""

    title: str = Field(min_length=1, max_length=500)
    description: str = Field(min_length=1, max_length=50_000)
    priority: Level = "medium"
    context: JsonObject = Field(default_factory=dict)
    source: str = Field(default="api", min_length=1, max_length=200)


class Run(RunRequest):
    """A run and where it stands; `reason` says why it ended without its own iteration's doing."""

    id: str
    status: RunStatus
    created_at: Timestamp
    updated_at: Timestamp
    completed_at: Timestamp | None = None
    iteration: int | None = None
    approval_id: str | None = None
    reason: str | None = None
    result: RunResult | None = None
