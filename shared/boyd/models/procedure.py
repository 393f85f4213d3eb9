"""Procedures: actions composed of actions, and their progress."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from boyd.models.base import Confidence, Json, JsonObject, KeptModel, Model, Timestamp

#: The most steps of a procedure, targets of a step, and characters of those as JSON.
MAX_STEPS, MAX_TARGETS, MAX_TARGETS_SIZE = 20, 5000, 250_000
#: Targets of a step that run at the same time, by default.
AT_ONCE = 10
#: Targets that its progress names.
MAX_NAMED = 20
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

#: `not effective`: it had no effect, or nobody can tell; `stuck`: it could not be undone.
TargetState = Literal[
    "pending",
    "running",
    "asked",
    "verifying",
    "done",
    "skipped",
    "failed",
    "not effective",
    "worse",
    "unknown",
    "undoing",
    "undo asked",
    "undone",
    "left",
    "stuck",
]

StepId = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,39}$")]
#: The size of a wave: a number of targets, or a share of all.
WaveSize = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^([1-9][0-9]?|100)%$")]


class StepAction(Model):
    """The action that undoes a step; `params` as for a step."""

    action: str
    params: JsonObject = Field(default_factory=dict)


class ObservedItems(Model):
    """The items that an observer has reported last.

    Attributes:
        observer: its id.
        path: leads to them in the data of each observation, as `servers.names`; a list there
            stands for its items.
    """

    observer: str
    path: str = Field(min_length=1)


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
        within: seconds in which `until` has to become true, or for which a target waits for its
            turn.
        verify: whether the next step waits for the verdict on its effect, if it can be verified.
        compensate: what undoes it; absent: the rollback of its action, if it has one.
        otherwise: what is executed instead if `when` is false, or it fails without an effect.
        for_each: its targets, for each of which it is executed; `${item}` stands for one.
        wave: the sizes of the first waves; the rest is another one. Absent: all are one wave.
        at_once: the most targets at the same time.
        stop_at: the number of failures at which it waits for a person; the default is 1.
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
    otherwise: StepAction | None = Field(default=None, alias="else")
    for_each: list[Json] | ObservedItems | None = None
    wave: list[WaveSize] | None = Field(default=None, max_length=100)
    at_once: int | None = Field(default=None, ge=1, le=100)
    stop_at: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.action is None) == (self.ask is None):
            raise ValueError("give either `action` or `ask`")
        if self.ask is not None and (self.params or self.until or self.compensate):
            raise ValueError("`ask` takes no `params`, `until` or `compensate`")
        if self.for_each is not None and (self.ask or self.until or self.otherwise):
            raise ValueError("`for_each` takes no `ask`, `until` or `else`")
        limits = (self.wave, self.at_once, self.stop_at)
        if self.for_each is None and any(limit is not None for limit in limits):
            raise ValueError("`wave`, `at_once` and `stop_at` need `for_each`")
        return self


class StepCompensation(KeptModel):
    """The fate of a step's compensation; `tries` counts repetitions that a person ordered."""

    state: StepCompensationState
    execution: str | None = None
    approval: str | None = None
    detail: str | None = None
    tries: int = 0


class WaveTarget(KeptModel):
    """One target of a step; `number` counts them from 0.

    Attributes:
        execution: its latest execution in the ledger.
        detail: why it failed, or what it waits for, in one line.
        started_at: the beginning of the wait for its turn, if another execution was in the way.
        tries: how often a person has ordered to repeat it, while something is done.
    """

    number: int
    item: Json
    state: TargetState
    execution: str | None = None
    approval: str | None = None
    detail: str | None = None
    started_at: Timestamp | None = None
    tries: int = 0

    @property
    def label(self) -> str:
        """The item in one line."""
        return self.item if isinstance(self.item, str) else json.dumps(self.item)


#: The states of targets whose effect lasts while their step is undone.
_IN_EFFECT: tuple[TargetState, ...] = ("done", "not effective", "worse", "left", "stuck")


class WaveProgress(KeptModel):
    """The progress of a step over its targets, a few seconds old at most while it runs.

    Attributes:
        total: the number of targets.
        ends: the number of targets after each wave.
        begun: the number of targets in the waves that were begun.
        counts: the number of targets in each state that some are in.
        problems: the first targets that failed or wait for a person.
        halted: why no other target is begun.
        back: whether it is being undone.
    """

    total: int
    ends: list[int]
    begun: int = 0
    counts: dict[TargetState, int] = Field(default_factory=dict)
    problems: list[WaveTarget] = Field(default_factory=list)
    halted: str | None = None
    back: bool = False

    @classmethod
    def of(cls, total: int) -> Self:
        """That of a step which has not begun."""
        return cls(total=total, ends=[total], counts={"pending": total})

    def count(self, *states: TargetState) -> int:
        """The number of targets in one of those *states*."""
        return sum(self.counts.get(state, 0) for state in states)

    @property
    def busy(self) -> int:
        """The number of targets that somebody or something is at work on."""
        return self.count("running", "asked", "verifying", "undoing", "undo asked")

    @property
    def failures(self) -> int:
        """The number of targets that did not become as they should."""
        return self.count("failed", "not effective", "worse", "unknown")

    @property
    def remains(self) -> str:
        """The targets whose effect was not undone, as in `1 of 3 targets (web-1)`."""
        number = self.count(*_IN_EFFECT)
        labels = [target.label for target in self.problems if target.state in _IN_EFFECT][:5]
        others = [f"{number - len(labels)} others"] if labels and number > len(labels) else []
        names = f" ({', '.join([*labels, *others])})" if labels else ""
        return f"{number} of {number + self.count('undone')} targets{names}"

    @property
    def over(self) -> int:
        """The number of targets that nothing more happens to, unless they are undone."""
        return self.total - self.count("pending") - self.busy

    @property
    def summary(self) -> str:
        """The progress in a few words, as in `120 of 1000, wave 2 of 4, 3 failed`."""
        parts = [f"{self.over} of {self.total}"]
        if len(self.ends) > 1 and self.begun:
            number = sum(end <= self.begun for end in self.ends)
            parts.append(f"wave {number} of {len(self.ends)}")
        numbers = {
            "failed": self.failures,
            "waiting for approval": self.count("asked", "undo asked"),
            "undone": self.count("undone"),
            "not undone": self.count("stuck"),
        }
        return ", ".join([*parts, *(f"{n} {word}" for word, n in numbers.items() if n)])


class StepProgress(KeptModel):
    """The progress of a step.

    Attributes:
        execution: its latest execution in the ledger.
        approval: the approval that it waits or waited for.
        detail: why it failed, or what it waits for, in one line.
        took_effect: whether its action certainly succeeded.
        polls: how often `until` was evaluated.
        tries: how often a person has ordered to repeat it.
        compensation: of its effect; absent: none was begun.
        instead: whether the action of `else` is executed instead.
        wave: of its targets, if it has some.
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
    instead: bool = False
    wave: WaveProgress | None = None


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

    def step(self, index: int) -> ProcedureStep:
        """A step as it is executed: its alternative, if that is its branch."""
        step = self.steps[index]
        if step.otherwise is None or not self.progress[index].instead:
            return step
        return ProcedureStep(
            id=step.id,
            action=step.otherwise.action,
            params=step.otherwise.params,
            verify=step.verify,
        )

    @property
    def has_ended(self) -> bool:
        """True once no step or compensation will run."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def compensated(self) -> list[str]:
        """The ids of the steps that were compensated, the latest first."""
        return [id for id, _ in self._list_compensations(done=True)]

    @property
    def steps_left(self) -> list[str]:
        """The steps whose compensation was begun and is not done, the latest first.

        Each is an id, or `patch for 1 of 3 targets (web-1)` if it was begun for many.
        """
        pairs = self._list_compensations(done=False)
        return [f"{id} for {wave.remains}" if wave and wave.back else id for id, wave in pairs]

    def _list_compensations(self, *, done: bool) -> list[tuple[str, WaveProgress | None]]:
        pairs = [*zip(self.steps, self.progress, strict=False)][::-1]
        fates = [(step.id, it.wave, it.compensation) for step, it in pairs]
        return [(id, wave) for id, wave, fate in fates if fate and (fate.state == "done") is done]

    def step_state(self, index: int) -> str:
        """The state of a step for readers: where a procedure is stopped, no single step runs."""
        step = self.progress[index]
        is_held = self.state == "stopped" and step.state == "running" and step.wave is None
        return "stopped" if is_held else step.state

    @property
    def summary(self) -> str:
        """Its state and current step, in one line."""
        if self.has_ended or self.at >= len(self.steps):
            return self.state
        where = f"step {self.at + 1} of {len(self.steps)} ({self.steps[self.at].id})"
        progress = self.progress[self.at] if self.at < len(self.progress) else StepProgress()
        if self.state == "running" and progress.state == "asked":
            return f"{where} waits for approval {(progress.approval or '')[:8]}"
        if progress.wave is not None:
            where += f": {progress.wave.summary}"
        return f"{self.state}, {where}"


class ProcedureList(Model):
    """The procedures of an agent, latest first."""

    procedures: list[ProcedureRecord]
