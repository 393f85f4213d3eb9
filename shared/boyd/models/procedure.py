"""Procedures: actions composed of actions, and their progress."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from boyd.models.base import Confidence, JsonObject, Model, Timestamp

#: The most steps of a procedure.
MAX_STEPS = 20
#: Who approves: a person the whole procedure, or each of its steps.
ProcedureApproval = Literal["whole", "each"]
#: `stopped`: a person has to resume or cancel it.
ProcedureState = Literal["running", "compensating", "stopped", "succeeded", "failed", "cancelled"]
#: `asked`: it waits for an approval; `unknown`: it was started and its outcome lost.
StepState = Literal[
    "pending", "running", "asked", "verifying", "done", "skipped", "failed", "unknown"
]
#: `left`: a person resumed the procedure without it.
StepCompensationState = Literal["running", "asked", "done", "failed", "unknown", "left"]

StepId = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,39}$")]


class StepAction(Model):
    """The action that undoes a step; `params` as for a step."""

    action: str
    params: JsonObject = Field(default_factory=dict)


class ProcedureStep(Model):
    """A step of a procedure: an action, or a question to a person.

    Attributes:
        id: names it in references and conditions.
        action: the action's id; it may not be a procedure.
        ask: the question that a person has to approve instead of an action.
        params: the action's; `${params.NAME}` and `${steps.ID.output.NAME}` stand for values.
        when: a condition in CEL; the step is skipped if it is false.
        until: a condition in CEL on `output`; the action is repeated until it is true.
        every: seconds between two repetitions.
        within: seconds in which `until` has to become true.
        verify: whether the next step waits for the verdict on its effect, if it can be verified.
        compensate: what undoes it; absent: the rollback of its action, if it has one.
    """

    id: StepId
    action: str | None = None
    ask: str | None = Field(default=None, min_length=1, max_length=2000)
    params: JsonObject = Field(default_factory=dict)
    when: str | None = None
    until: str | None = None
    every: float = Field(default=5.0, ge=0.1, le=3600)
    within: float = Field(default=300.0, gt=0, le=86400)
    verify: bool = True
    compensate: StepAction | Literal["rollback", "none"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.action is None) == (self.ask is None):
            raise ValueError("give either `action` or `ask`")
        if self.ask is not None and (self.params or self.until or self.compensate):
            raise ValueError("`ask` takes no `params`, `until` or `compensate`")
        return self


class StepCompensation(Model):
    """The fate of a step's compensation; `tries` counts repetitions that a person ordered."""

    state: StepCompensationState
    execution: str | None = None
    approval: str | None = None
    detail: str | None = None
    tries: int = 0


class StepProgress(Model):
    """The progress of a step.

    Attributes:
        execution: its latest execution in the ledger.
        approval: the approval that it waits or waited for.
        detail: why it failed, or what it waits for, in one line.
        took_effect: whether its action certainly succeeded.
        polls: how often `until` was evaluated.
        tries: how often a person has ordered to repeat it.
        compensation: of its effect; absent: none was begun.
    """

    state: StepState = "pending"
    execution: str | None = None
    approval: str | None = None
    detail: str | None = None
    took_effect: bool = False
    polls: int = 0
    tries: int = 0
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    compensation: StepCompensation | None = None


class ProcedureRecord(Model):
    """A procedure that was started; `id` is that of its execution.

    Attributes:
        steps: as they were when it began.
        progress: of each step.
        at: the index of the current step.
        reason: why it goes back, was stopped or failed.
        until: the end of its time; time in which it is stopped does not count.
        cancelled_by: who cancelled it.
        confidence: of the decision for it.
    """

    id: str
    action: str
    params: JsonObject
    target: str = ""
    state: ProcedureState
    steps: list[ProcedureStep]
    progress: list[StepProgress] = Field(default_factory=list)
    at: int = 0
    reason: str | None = None
    approve: ProcedureApproval = "whole"
    by: str = ""
    requesters: list[str] = Field(default_factory=list)
    confidence: Confidence = 1.0
    started_at: Timestamp
    until: Timestamp
    stopped_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    cancelled_by: str | None = None

    @property
    def has_ended(self) -> bool:
        """True once no step or compensation will run."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def is_compensating(self) -> bool:
        """True if it goes back, also while it is stopped."""
        return any(step.compensation for step in self.progress) or self.state == "compensating"

    @property
    def compensated(self) -> list[str]:
        """The ids of the steps that were compensated, the latest first."""
        pairs = zip(self.steps, self.progress, strict=False)
        done = [
            step.id
            for step, progress in pairs
            if progress.compensation and progress.compensation.state == "done"
        ]
        return done[::-1]

    @property
    def summary(self) -> str:
        """Its state and current step, in one line."""
        if self.has_ended or self.at >= len(self.steps):
            return self.state
        where = f"step {self.at + 1} of {len(self.steps)} ({self.steps[self.at].id})"
        progress = self.progress[self.at] if self.at < len(self.progress) else StepProgress()
        if self.state == "running" and progress.state == "asked":
            return f"{where} waits for approval {(progress.approval or '')[:8]}"
        return f"{self.state}, {where}"


class ProcedureList(Model):
    """The procedures of an agent, latest first."""

    procedures: list[ProcedureRecord]
