"""A procedure under the fence of its job: its record, and how changes of it are stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from boyd.agent.agent import REPEAT_AFTER
from boyd.agent.procedure_plans import action_of
from boyd.models import (
    ActionResult,
    Fence,
    ProcedureRecord,
    ProcedureState,
    ProcedureStep,
    StepCompensation,
    StepProgress,
    TargetState,
    WaveProgress,
    ms_from,
    to_ms,
)
from boyd.models.procedure import StepState
from boyd.phases import action_call
from boyd.plugin.components import Action
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Fields, Later, requeue
from boyd.runtime.procedures.procedure_steps import ProcedureSteps
from boyd.runtime.procedures.wave_moves import Waves
from boyd.store import Stale, step_field
from boyd.text import queues

#: Seconds between two checks of something that wakes the procedure anyway.
RECHECK = 300.0
#: Seconds between two checks of the targets of a step, whose last one wakes the procedure.
WATCH = 2.0
#: Reasons for which a step was not executed, without having failed: a person may resume it.
RESUMABLE = ("frozen", "revoked", "held", "closed", "unserved", "unsandboxed")
#: Targets that a reason names.
_LISTED = 5
#: The longest reason that is kept.
_MAX_REASON = 500


class FencedProcedure:
    """One procedure, on the worker that holds its job.

    Each change is made to `record` and stored at once; `Stale` is raised if the job belongs to
    another worker by then.

    Attributes:
        record: the procedure as it is stored now.
        fields: the job as the move found it.
        steps: the executions of its steps.
    """

    def __init__(
        self, engine: Engine, record: ProcedureRecord, fence: Fence, fields: Fields
    ) -> None:
        self.engine = engine
        self.record = record
        self.fields = fields
        self.steps = ProcedureSteps(engine, record, fence, fields)
        self._fence = fence
        self._store = engine.store.procedures

    # The current step

    @property
    def now(self) -> datetime:
        """The time of Redis."""
        return self.engine.store.clock.now()

    @property
    def is_past_last_step(self) -> bool:
        """Report whether every step has ended."""
        return self.record.at >= len(self.record.steps)

    @property
    def step(self) -> ProcedureStep:
        """The current step, or its alternative."""
        return self.record.step(self.record.at)

    @property
    def progress(self) -> StepProgress:
        """The progress of the current step."""
        return self.record.progress[self.record.at]

    def waves(self, index: int) -> Waves:
        """The waves of a step with targets."""
        return Waves(self.engine, self.record, self._fence, self.record.steps[index])

    def wave_queue(self, index: int) -> str:
        """The queue that executes a step for its targets."""
        return queue_of(self.steps.action(action_of(self.record.steps[index]).action))

    def recheck(self, seconds: float) -> Later:
        """Check again in *seconds*, or as soon as the procedure has taken too long."""
        return Later(max(0.1, min(seconds, (self.record.until - self.now).total_seconds())))

    def recheck_approval(self, id: str) -> Later:
        """Check an approval again; an answer wakes the procedure before."""
        return Later(self.engine.recheck_after(id, RECHECK))

    # Changes

    def note(self, fields: Mapping[str, str], **changes: Any) -> None:
        """Record *changes* of the current step, and *fields* of the job."""
        self.write({**self.change_progress(self.record.at, changes), **fields})

    def note_question(self, approval: str) -> None:
        """Record that the current step waits for an approval."""
        self.note({"askedAt": to_text(self.now)}, state="asked", approval=approval)

    def note_wave(self, progress: WaveProgress) -> None:
        """Record how far the current step is with its targets."""
        if progress != self.progress.wave:
            took_effect = progress.count("done", "not effective", "worse") > 0
            self.note({}, wave=progress, took_effect=took_effect)

    def change_compensation(
        self, index: int, compensation: StepCompensation, **changes: Any
    ) -> dict[str, str]:
        """Change what undoes a step, and return its field, to be written."""
        return self.change_progress(index, {"compensation": compensation.patched(changes)})

    def change_progress(self, index: int, changes: Mapping[str, Any]) -> dict[str, str]:
        """Change the progress of a step, and return its field, to be written."""
        progress = list(self.record.progress)
        progress[index] = progress[index].patched(changes)
        self.record = self.record.patched({"progress": progress})
        return {step_field(index): progress[index].to_json()}

    def write(self, fields: Mapping[str, str], kind: str = "", note: str = "") -> None:
        """Store *fields* of the job, with an event of *kind* if there is one."""
        changes = {name: fields[name] for name in ("state", "reason") if fields.get(name)}
        at = {"at": int(fields["at"])} if "at" in fields else {}
        self.record = self.record.patched({**changes, **at})
        if not self._store.record(self.record, self._fence, fields, kind, shorten(note)):
            raise Stale(f"procedure {self.record.id} belongs to another worker now")

    # Transitions

    def advance(self, state: StepState, **changes: Any) -> Later:
        """End the current step in *state*; the next one is due."""
        at = {"at": str(self.record.at + 1), "resumed": "", "wave": ""}
        self.note(at, state=state, ended_at=self.now, **changes)
        return requeue(queues.ACT)

    def stop(self, reason: str, state: StepState | None = None) -> Later:
        """Stop at the current step until a person resumes or cancels it."""
        changes = {"detail": shorten(reason), "state": state or self.progress.state}
        fields = self.change_progress(self.record.at, changes)
        return self.wait_for_person(f"step {self.step.id}: {reason}", fields)

    def wait_for_person(self, reason: str, fields: Mapping[str, str]) -> Later:
        """Wait until a person resumes or cancels it; *fields* are stored, too."""
        stopped = {"state": "stopped", "reason": shorten(reason), "tell": "1"}
        at = {"stoppedAt": to_text(self.now)}
        self.write({**fields, **stopped, **at}, "stopped", reason)
        return Later(0.1)

    def go_back(self, reason: str) -> Later:
        """Undo the steps that took effect, from the next move on."""
        cause = shorten(reason)
        if self.fields.get("back"):  # what has stopped it on the way is no cause
            cause = self.fields.get("cause") or self.record.reason or ""
        fields = {"state": "compensating", "back": "1", "cancelled": "", "tell": "", "resumed": ""}
        self.write({**fields, "cause": cause, "reason": cause}, "compensating", reason)
        return requeue(queues.ACT)

    def end(self, state: ProcedureState, reason: str) -> Later:
        """End it with the result of its action; the next move notifies people if it failed."""
        action, record = self.record.action, self.record
        duration = round(ms_from(record.started_at, self.now), 3)
        if state == "succeeded":
            states: dict[str, Any] = {
                step.id: progress.wave.summary if progress.wave else progress.state
                for step, progress in zip(record.steps, record.progress, strict=True)
            }
            result = ActionResult(action=action, success=True, duration=duration, output=states)
        else:
            steps = {"undone": record.compensated, "not undone": record.steps_left}
            parts = [f"{title}: {', '.join(ids)}" for title, ids in steps.items() if ids]
            reason = "; ".join([reason, *parts])
            result = action_call.failure(action, reason, duration)
        budget = self.engine.agent.budget(action)
        hold_for = (budget.window if budget else REPEAT_AFTER) if state == "failed" else 0.0
        self.write({"tell": "1" if state == "failed" else ""})
        self._store.end(record, self._fence, state, result, shorten(reason), hold_for)
        return Later(0.1)


def queue_of(action: Action | None) -> str:
    """The queue of an action, or where actions usually go."""
    return (action.queue if action else None) or queues.ACT


def to_text(time: datetime) -> str:
    """A time as the job's hash has it."""
    return str(int(to_ms(time)))


def list_targets(progress: WaveProgress, title: str, *states: TargetState) -> str:
    """The first targets in these *states* in one line, with their reasons."""
    targets = [target for target in progress.problems if target.state in states][:_LISTED]
    reasons = [f"{target.label}: {target.detail or target.state}" for target in targets]
    return f"{title} ({'; '.join(reasons)})"


def shorten(reason: str) -> str:
    """A reason as long as it is kept."""
    return reason if len(reason) <= _MAX_REASON else f"{reason[: _MAX_REASON - 1]}…"
