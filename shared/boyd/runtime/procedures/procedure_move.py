"""Makes the next move of a procedure: one step, one check, or one compensation.

Each move reads the record, does at most one thing through the ledger, and records the outcome. It
may be repeated after its worker was lost: the ledger knows what was executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from boyd import naming
from boyd.agent.agent import REPEAT_AFTER
from boyd.agent.conditions import ConditionError
from boyd.agent.procedure_plans import action_of, is_true
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
    from_ms,
    ms_from,
    to_ms,
)
from boyd.models.procedure import StepState
from boyd.phases import action_call
from boyd.plugin.components import Action
from boyd.plugin.composed_action import ASK
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, JobFailure, JobHandler, Later, requeue
from boyd.runtime.procedures.procedure_steps import DENIED, ProcedureSteps
from boyd.runtime.procedures.wave_moves import Waves
from boyd.store import Stale, StuckJob, read_procedure, step_field
from boyd.store.executions import KEEP
from boyd.text import queues
from boyd.text.references import MissingValue

#: Seconds between two checks of something that wakes the procedure anyway.
_RECHECK = 300.0
#: Seconds between two checks of the targets of a step, whose last one wakes the procedure.
_WATCH = 2.0
#: Seconds between attempts to notify people, and their number.
_RETRY, _TRIES = 60.0, 30
#: Reasons for which a step was not executed, without having failed: a person may resume it.
_OBSTACLES = ("frozen", "revoked", "held", "closed", "unserved", "unsandboxed")
#: The reason why a question cannot be asked: its action goes with the last procedure.
_GONE = "the agent no longer has {} nor any other procedure: add it and resume this, or cancel it"
#: Targets that a reason names.
_LISTED = 5
#: The longest reason that is kept.
_MAX_REASON = 500


class ProcedureMove:
    """One move of one procedure, on the worker that holds its job."""

    def __init__(
        self, engine: Engine, record: ProcedureRecord, fence: Fence, fields: Fields
    ) -> None:
        self._engine = engine
        self._record = record
        self._fence = fence
        self._fields = fields
        self._store = engine.store.procedures
        self._steps = ProcedureSteps(engine, record, fence, fields)

    def run(self) -> Done | Later:
        """Make the move, and return how the job continues.

        Raises:
            StillRunning: another live worker executes the step.
        """
        if self._record.has_ended:
            return self._notify()
        if error := self._fields.get("failing"):
            return self._wait_for_person(error, {"failing": ""})
        if self._fields.get("cancelled"):
            return self._cancel()
        if self._record.state == "stopped":
            return self._notify()
        if self._fields.get("resumed"):
            return self._resume(repeat=self._fields["resumed"] == "repeat")
        if self._record.state == "compensating":
            return self._compensate()
        if self._record.at >= len(self._record.steps):
            return self._end("succeeded", "")
        if self._now >= self._record.until and self._progress.state != "asked":
            late = self._go_back_unless_busy("the procedure took too long")
            if late is not None:
                return late
        return self._forward()

    def _forward(self) -> Done | Later:
        state = self._progress.state
        if state == "pending":
            return self._begin()
        if state == "asked":
            return self._take_answer()
        if state == "verifying":
            return self._check_verification()
        if state == "running":
            return self._execute()
        return self._go_back(self._progress.detail or f"step {self._step.id} {state}")

    # Forward

    def _begin(self) -> Done | Later:
        step = self._step
        try:
            if step.when is not None and not is_true(step.when, self._steps.values()):
                reason = f"false: {step.when}"
                return self._branch(reason) or self._next("skipped", detail=reason)
        except ConditionError as error:
            return self._fail_step(f"when: {error}")
        if step.for_each == []:
            return self._next("skipped", detail="it has no targets")
        queue = self._queue(self._steps.action(action_of(step).action))
        if not self._engine.fleet.serving(queue):
            return self._stop(queues.no_worker_message(queue))
        if step.for_each is not None:
            self._note({"wave": step.id}, state="running", started_at=self._now)
            return requeue(queues.ACT)
        name = self._steps.name(step, self._progress)
        self._note({}, state="running", execution=name, started_at=self._now)
        return requeue(queue)

    def _execute(self) -> Done | Later:
        if self._step.for_each is not None:
            return self._watch_wave()
        execution, repeats = self._progress.execution or "", self._progress.tries > 0
        try:
            result = self._steps.execute(self._step, execution, repeats)
        except MissingValue as error:
            return self._fail_step(str(error))
        return self._outcome(result)

    def _watch_wave(self) -> Done | Later:
        """Begin the next wave once the last one has ended."""
        waves, queue = self._waves(self._record.at), self._wave_queue(self._record.at)
        progress = waves.progress()
        if progress is None:
            return self._stop("its targets are no longer kept")
        if progress.busy or (not progress.halted and waves.go_on(progress, queue)):
            self._note_wave(progress)
            return Later(_WATCH)
        failures = _failures(progress)
        self._note_wave(progress)
        if not progress.halted:
            return self._next("done", detail=failures or None)
        reason = f"{progress.halted}; {failures}" if failures else progress.halted
        return self._stop(reason)

    def _note_wave(self, progress: WaveProgress) -> None:
        if progress != self._progress.wave:
            took_effect = progress.count("done", "not effective", "worse") > 0
            self._note({}, wave=progress, took_effect=took_effect)

    def _outcome(self, result: ActionResult) -> Done | Later:
        if result.waits_for:
            self._note_question(result.waits_for)
            return Later(self._engine.recheck_after(result.waits_for, _RECHECK))
        if result.unknown:
            reason = result.error or "its outcome is unknown"
            return self._stop(reason, state="unknown")
        if result.prevented == "cancelled":
            return Later(0.1)  # the next move finds the cancellation
        if result.is_unneeded:
            return self._next("skipped", detail=_short(result.error or ""))
        if result.prevented in _OBSTACLES:
            return self._stop(result.error or result.prevented)
        if not result.success and self._step.ask is not None and not self._steps.action(ASK):
            return self._stop(_GONE.format(self._record.action))
        if not result.success:
            return self._fail_step(result.error or "it failed")
        if self._step.until is not None:
            return self._after_poll(result, self._step.until)
        return self._after_success()

    def _note_question(self, approval: str) -> None:
        self._note({"askedAt": _to_text(self._now)}, state="asked", approval=approval)

    def _after_poll(self, result: ActionResult, until: str) -> Done | Later:
        step, progress = self._step, self._progress
        try:
            met = is_true(until, {**self._steps.values(), "output": result.output})
        except ConditionError as error:
            return self._fail_step(f"until: {error}")
        if met:
            return self._next("done", took_effect=True)
        since = (self._now - (progress.started_at or self._now)).total_seconds()
        if since >= step.within:
            return self._fail_step(f"still false after {step.within:g} s: {until}")
        polls = progress.polls + 1
        name = self._steps.name(step, progress.patched({"polls": polls}))
        self._note({}, polls=polls, execution=name, state="running")
        return Later(self._wait(step.every))

    def _after_success(self) -> Done | Later:
        execution = self._progress.execution or ""
        entry = self._engine.store.executions.get(execution)
        if entry is None or entry.verification is None or not self._step.verify:
            return self._next("done", took_effect=True)
        self._note({}, state="verifying", took_effect=True)
        return Later(0.1)

    def _check_verification(self) -> Done | Later:
        entry = self._engine.store.executions.get(self._progress.execution or "")
        verification = entry.verification if entry else None
        if entry is None or verification is None:
            return self._fail_step("its verification is no longer kept")
        if verification.verdict is None:
            plan = self._engine.agent.verification(entry.action)
            return Later(self._wait(max(0.5, min(plan.every, 5.0)) if plan else _RECHECK))
        if verification.verdict == "effective":
            return self._next("done", detail=verification.evidence or None)
        evidence = f": {verification.evidence}" if verification.evidence else ""
        return self._fail_step(f"{verification.verdict}{evidence}")

    def _take_answer(self) -> Done | Later:
        approval_id = self._progress.approval or ""
        answer = self._steps.answer(approval_id)
        if answer is None:
            return Later(self._engine.recheck_after(approval_id, _RECHECK))
        if isinstance(answer, str):
            return self._fail_step(answer)
        # The time in which it waited for the person does not count.
        asked_at = from_ms(float(self._fields.get("askedAt", _to_text(self._now))))
        until = self._record.until + (self._now - asked_at)
        execution = naming.approval(approval_id)
        self._note({"until": _to_text(until)}, state="running", execution=execution)
        return self._outcome(answer)

    def _next(self, state: StepState, **changes: Any) -> Later:
        at = self._record.at + 1
        self._note(
            {"at": str(at), "resumed": "", "wave": ""}, state=state, ended_at=self._now, **changes
        )
        return requeue(queues.ACT)

    def _branch(self, reason: str) -> Later | None:
        """Go on with the alternative of the step, if it has one and nothing has been done."""
        if self._step.otherwise is None or self._progress.took_effect:
            return None
        changes = {"state": "pending", "instead": True, "detail": _short(reason), "polls": 0}
        self._note({}, **changes, approval=None)
        return requeue(queues.ACT)

    def _fail_step(self, reason: str) -> Done | Later:
        if branch := self._branch(f"failed: {reason}"):
            return branch
        self._note({}, state="failed", detail=_short(reason), ended_at=self._now)
        return self._go_back(f"step {self._step.id} failed: {reason}")

    # Stop, cancel, resume

    def _stop(self, reason: str, state: StepState | None = None) -> Later:
        changes = {"detail": _short(reason), "state": state or self._progress.state}
        fields = self._change_progress(self._record.at, changes)
        return self._wait_for_person(f"step {self._step.id}: {reason}", fields)

    def _wait_for_person(self, reason: str, fields: Mapping[str, str]) -> Later:
        """Wait until a person resumes or cancels it."""
        stopped = {"state": "stopped", "reason": _short(reason), "tell": "1"}
        at = {"stoppedAt": _to_text(self._now)}
        self._write({**fields, **stopped, **at}, "stopped", reason)
        return Later(0.1)

    def _notify(self) -> Done | Later:
        """Notify people that it was stopped or has failed, at least once."""
        tries = int(self._fields.get("tell", 0))
        if 0 < tries <= _TRIES:
            ctx = self._engine.act_context()
            ctx.run_hooks("on_procedure", procedure=self._record)
            self._write({"tell": str(tries + 1) if ctx.problems else ""})
            if ctx.problems:
                return Later(_RETRY)
        if not self._record.has_ended:
            return Later(KEEP)
        return Done("succeeded" if self._record.state == "succeeded" else "failed", KEEP)

    def _cancel(self) -> Done | Later:
        reason = f"cancelled by {self._record.cancelled_by}"
        stopped = self._record.state == "stopped"
        if stopped and self._fields.get("back"):
            self._leave_undoing()
        if self._fields.get("back") or self._record.at >= len(self._record.steps):
            return self._go_back(reason)
        if stopped:
            self._find_question()
            if not self._is_open():
                return self._go_back(reason)
        return self._go_back_unless_busy(reason) or self._forward()

    def _leave_undoing(self) -> None:
        """Leave what something keeps from being undone, such as a queue without a worker."""
        for index, done in enumerate(self._record.progress):
            if (undone := done.compensation) and undone.state == "running":
                changes = {"state": "left", "detail": self._record.reason}
                self._write(self._change_compensation(index, undone, **changes))

    def _go_back_unless_busy(self, reason: str) -> Done | Later | None:
        """Go back, or return None if the current step is executing and has to end first."""
        if self._step.for_each is not None and self._progress.state == "running":
            return self._give_up_wave(reason)
        self._find_question()
        progress = self._progress
        if progress.state == "asked":
            if not self._steps.withdraw(progress.approval or "", reason):
                return None
        elif progress.state == "running" and self._is_executing(progress):
            return None
        if progress.state not in ("pending", "unknown"):
            self._note({}, state="failed", detail=_short(reason), ended_at=self._now)
        return self._go_back(reason)

    def _find_question(self) -> None:
        """Note the approval that a worker has asked for, if it was lost before it noted that."""
        execution = self._progress.execution if self._progress.state == "running" else None
        if execution and (item := self._engine.store.approvals.item_proposed_by(execution)):
            self._note_question(item)

    def _give_up_wave(self, reason: str) -> Done | Later | None:
        waves = self._waves(self._record.at)
        waves.halt(_short(reason))
        wave = waves.progress()
        if wave is not None:
            self._note_wave(wave)
            if wave.busy:
                return None
        self._note({}, state="failed", detail=_short(reason), ended_at=self._now)
        return self._go_back(reason)

    def _is_open(self) -> bool:
        """Report whether the step asks, or was begun and an error has kept its outcome out."""
        progress = self._progress
        return progress.state == "asked" or (
            progress.state == "running" and self._is_executing(progress)
        )

    def _is_executing(self, progress: StepProgress) -> bool:
        """Report whether the current step was claimed and its outcome is not recorded yet."""
        execution = progress.execution or ""
        has_ended = self._step.until is not None and self._steps.result(execution) is not None
        return self._steps.was_claimed(execution) and not has_ended

    def _resume(self, repeat: bool) -> Done | Later:
        if self._record.state == "compensating":
            return self._resume_compensation(repeat)
        if self._record.at >= len(self._record.steps):
            return self._end("succeeded", "")
        self._find_question()
        progress = self._progress
        if self._is_open():
            self._note({"resumed": ""})
            return requeue(queues.ACT)
        if self._step.for_each is not None and progress.state == "running":
            self._waves(self._record.at).resume(repeat, self._wave_queue(self._record.at))
            self._note({"resumed": ""}, detail=None)
            return Later(_WATCH)
        if progress.state == "unknown" and not repeat:
            detail = "a person says that it is done"
            return self._next("done", detail=detail, took_effect=True)
        # What was approved and not executed needs another approval.
        tries = progress.tries + (1 if progress.state == "unknown" or progress.approval else 0)
        again = progress.patched({"tries": tries})
        name = self._steps.name(self._step, again)
        state = "pending" if progress.state == "pending" else "running"
        changes = {"state": state, "tries": tries, "execution": name}
        self._note({"resumed": ""}, **changes, approval=None, detail=None)
        return requeue(queues.ACT)

    # Back

    def _go_back(self, reason: str) -> Done | Later:
        """Go back: undo the steps that took effect, the latest first."""
        cause = _short(reason)
        if self._fields.get("back"):  # what has stopped it on the way is no cause
            cause = self._fields.get("cause") or self._record.reason or ""
        fields = {"state": "compensating", "back": "1", "cancelled": "", "tell": "", "resumed": ""}
        self._write({**fields, "cause": cause, "reason": cause}, "compensating", reason)
        return requeue(queues.ACT)

    def _compensate(self) -> Done | Later:
        for index in range(len(self._record.steps) - 1, -1, -1):
            step, done = self._record.step(index), self._record.progress[index]
            if not done.took_effect:
                continue
            compensation = done.compensation
            if compensation is None:
                name = self._steps.compensation_name(step, done, 0)
                if name is None:
                    continue
                compensation = StepCompensation(state="running", execution=name)
                return self._begin_compensation(index, compensation)
            if compensation.state == "running":
                return self._undo(index, compensation)
            if compensation.state == "asked":
                return self._take_undo_answer(index, compensation)
        state: ProcedureState = "cancelled" if self._record.cancelled_by else "failed"
        return self._end(state, self._record.reason or "it failed")

    def _begin_compensation(self, index: int, compensation: StepCompensation) -> Later:
        queue = self._undo_queue(index)
        if not self._engine.fleet.serving(queue):
            return self._stop_undoing(index, compensation, queues.no_worker_message(queue))
        self._write(self._change_compensation(index, compensation))
        return requeue(queue)

    def _undo_queue(self, index: int) -> str:
        step = self._record.step(index)
        planned = action_of(step) if isinstance(step.compensate, str | None) else step.compensate
        return self._queue(self._steps.action(planned.action))

    def _undo_wave(self, index: int, compensation: StepCompensation) -> Done | Later:
        """Undo a step for its targets, a few at a time."""
        waves = self._waves(index)
        progress = waves.progress()
        if progress is None:
            return self._wait_for_person("its targets are no longer kept", {})
        fields = self._change_progress(index, {"wave": progress})
        if progress.back and progress.halted and not progress.busy:
            return self._wait_for_person(progress.halted, fields)
        if progress.busy or progress.count("done", "not effective", "worse"):
            if not progress.busy:
                waves.undo(self._undo_queue(index))
            self._write(fields)
            return Later(_WATCH)
        if not (stuck := progress.count("stuck")):
            state = "left" if progress.count("left") else "done"
            self._write({**fields, **self._change_compensation(index, compensation, state=state)})
            return requeue(queues.ACT)
        number = f"{stuck} of {progress.count('stuck', 'left', 'undone')} not undone"
        detail = _short(_list(progress, number, "stuck"))
        return self._stop_undoing(index, compensation, detail, state="failed", detail=detail)

    def _undo(self, index: int, compensation: StepCompensation) -> Done | Later:
        step = self._record.step(index)
        if step.for_each is not None:
            return self._undo_wave(index, compensation)
        try:
            result = self._steps.undo(step, self._record.progress[index], compensation)
        except MissingValue as error:
            result = action_call.failure(action_of(step).action, str(error))
        if result.prevented == "cancelled":
            return Later(0.1)  # it goes back anyway: the next move takes the cancellation away
        return self._record_compensation(index, compensation, result)

    def _record_compensation(
        self, index: int, compensation: StepCompensation, result: ActionResult
    ) -> Done | Later:
        if result.waits_for:
            changes = {"state": "asked", "approval": result.waits_for}
            self._write(self._change_compensation(index, compensation, **changes))
            return Later(self._engine.recheck_after(result.waits_for, _RECHECK))
        if result.success:
            done = self._change_compensation(index, compensation, state="done", detail=None)
            self._write(done)
            return requeue(queues.ACT)
        reason = result.error or "it failed"
        if result.prevented in _OBSTACLES:
            return self._stop_undoing(index, compensation, reason)
        state = "unknown" if result.unknown else "failed"
        return self._stop_undoing(index, compensation, reason, state=state, detail=_short(reason))

    def _stop_undoing(
        self, index: int, compensation: StepCompensation, reason: str, **changes: Any
    ) -> Later:
        fields = self._change_compensation(index, compensation, **changes)
        return self._wait_for_person(
            f"undoing step {self._record.steps[index].id}: {reason}", fields
        )

    def _take_undo_answer(self, index: int, compensation: StepCompensation) -> Done | Later:
        answer = self._steps.answer(compensation.approval or "")
        if answer is None:
            return Later(self._engine.recheck_after(compensation.approval or "", _RECHECK))
        if not isinstance(answer, str):
            return self._record_compensation(index, compensation, answer)
        if not answer.startswith(DENIED):
            changes = {"state": "failed", "detail": _short(answer)}
            return self._stop_undoing(index, compensation, answer, **changes)
        changes = {"state": "left", "detail": _short(answer)}
        self._write(self._change_compensation(index, compensation, **changes))
        return requeue(queues.ACT)

    def _resume_compensation(self, repeat: bool) -> Later:
        fields: dict[str, str] = {"resumed": ""}
        for index, done in enumerate(self._record.progress):
            compensation = done.compensation
            if compensation is not None and done.wave is not None and done.wave.back:
                fields |= self._resume_undoing(index, compensation, repeat)
                continue
            if compensation is None or compensation.state not in ("failed", "unknown"):
                continue
            if not repeat:
                fields |= self._change_compensation(index, compensation, state="left")
                continue
            tries = compensation.tries + 1
            step = self._record.step(index)
            name = self._steps.compensation_name(step, done, tries)
            changes = {"state": "running", "tries": tries, "execution": name, "approval": None}
            fields |= self._change_compensation(index, compensation, **changes)
        self._write(fields)
        return requeue(queues.ACT)

    def _resume_undoing(
        self, index: int, compensation: StepCompensation, repeat: bool
    ) -> dict[str, str]:
        """Go on to undo a step for its targets; return the fields to store."""
        if compensation.state == "failed" and not repeat:
            return self._change_compensation(index, compensation, state="left")
        if compensation.state in ("failed", "running"):
            self._waves(index).resume(repeat, self._undo_queue(index), back=True)
            return self._change_compensation(index, compensation, state="running", detail=None)
        return {}

    # The end

    def _end(self, state: ProcedureState, reason: str) -> Done | Later:
        action, record = self._record.action, self._record
        if state == "succeeded":
            states: dict[str, Any] = {
                step.id: progress.wave.summary if progress.wave else progress.state
                for step, progress in zip(record.steps, record.progress, strict=True)
            }
            result = ActionResult(
                action=action, success=True, duration=self._duration, output=states
            )
        else:
            steps = {"undone": record.compensated, "not undone": record.steps_left}
            parts = [f"{title}: {', '.join(ids)}" for title, ids in steps.items() if ids]
            reason = "; ".join([reason, *parts])
            result = action_call.failure(action, reason, self._duration)
        budget = self._engine.agent.budget(action)
        hold_for = (budget.window if budget else REPEAT_AFTER) if state == "failed" else 0.0
        self._write({"tell": "1" if state == "failed" else ""})
        self._store.end(record, self._fence, state, result, _short(reason), hold_for)
        return Later(0.1)

    def give_up(self, reason: str) -> Done:
        """Fail it after its workers were lost repeatedly; nothing is undone."""
        if self._record.has_ended:
            return Done("failed", KEEP)
        if self._record.at < len(self._record.steps) and self._step.for_each is not None:
            self._waves(self._record.at).halt(_short(reason))
        elif self._record.at < len(self._record.steps):
            self._settle_step(reason)
        self._end("failed", f"{reason}; nothing was undone")
        record = self._store.get(self._record.id) or self._record
        self._engine.act_context().run_hooks("on_procedure", procedure=record)
        return Done("failed", KEEP)

    def _settle_step(self, reason: str) -> None:
        self._find_question()
        progress = self._progress
        execution = progress.execution or ""
        if progress.state == "asked" and not self._steps.withdraw(progress.approval or "", reason):
            execution = naming.approval(progress.approval or "")
        if progress.state in ("running", "asked"):
            result = self._engine.store.executions.settle(execution)
            state: StepState = "unknown" if result and result.unknown else "failed"
            if result and result.success and self._step.until is None:
                state = "done"  # by the worker that was lost before it could note that
            self._note({}, state=state, detail=_short(reason))

    # The record

    @property
    def _now(self) -> datetime:
        return self._engine.store.clock.now()

    @property
    def _duration(self) -> float:
        return round(ms_from(self._record.started_at, self._now), 3)

    @property
    def _step(self) -> ProcedureStep:
        return self._record.step(self._record.at)

    @property
    def _progress(self) -> StepProgress:
        return self._record.progress[self._record.at]

    def _waves(self, index: int) -> Waves:
        return Waves(self._engine, self._record, self._fence, self._record.steps[index])

    def _wave_queue(self, index: int) -> str:
        return self._queue(self._steps.action(action_of(self._record.steps[index]).action))

    def _queue(self, action: Action | None) -> str:
        return (action.queue if action else None) or queues.ACT

    def _wait(self, seconds: float) -> float:
        """Wait so long, or until the time of the procedure is over."""
        return max(0.1, min(seconds, (self._record.until - self._now).total_seconds()))

    def _note(self, fields: Mapping[str, str], **changes: Any) -> None:
        """Record *changes* of the current step, and *fields* of the job."""
        self._write({**self._change_progress(self._record.at, changes), **fields})

    def _change_compensation(
        self, index: int, compensation: StepCompensation, **changes: Any
    ) -> dict[str, str]:
        return self._change_progress(index, {"compensation": compensation.patched(changes)})

    def _change_progress(self, index: int, changes: Mapping[str, Any]) -> dict[str, str]:
        """Change the progress of a step, and return its field."""
        progress = list(self._record.progress)
        progress[index] = progress[index].patched(changes)
        self._record = self._record.patched({"progress": progress})
        return {step_field(index): progress[index].to_json()}

    def _write(self, fields: Mapping[str, str], kind: str = "", note: str = "") -> None:
        changes = {name: fields[name] for name in ("state", "reason") if fields.get(name)}
        at = {"at": int(fields["at"])} if "at" in fields else {}
        self._record = self._record.patched({**changes, **at})
        if not self._store.record(self._record, self._fence, fields, kind, _short(note)):
            raise Stale(f"procedure {self._record.id} belongs to another worker now")


def _to_text(time: datetime) -> str:
    """A time as the job's hash has it."""
    return str(int(to_ms(time)))


def _failures(progress: WaveProgress) -> str:
    """The targets that failed, in one line, with the first reasons."""
    states: tuple[TargetState, ...] = ("worse", "unknown", "failed", "not effective")
    return _list(progress, f"{progress.failures} failed", *states) if progress.failures else ""


def _list(progress: WaveProgress, title: str, *states: TargetState) -> str:
    targets = [target for target in progress.problems if target.state in states][:_LISTED]
    reasons = [f"{target.label}: {target.detail or target.state}" for target in targets]
    return f"{title} ({'; '.join(reasons)})"


def _short(reason: str) -> str:
    return reason if len(reason) <= _MAX_REASON else f"{reason[: _MAX_REASON - 1]}…"


# The job of a procedure begins in the step that starts it, and has the id of its execution.

#: Seconds between attempts after an unexpected error, and their number.
_RETRY_JOB = 60.0
_JOB_TRIES = 5


class ProcedureHandler(JobHandler):
    """The procedures of one agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds that one step may take."""
        return self._engine.longest_action_limit()

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make the next move."""
        return ProcedureMove(self._engine, read_procedure(fields), fence, fields).run()

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Retry a few times, then stop the procedure for a person with the next move."""
        if failure.errors == _JOB_TRIES:
            return Later(0.1, {"failing": failure.reason})
        return Later(_RETRY_JOB)

    def give_up(self, id: str, stuck: StuckJob) -> Done | Later:
        """Fail the procedure: every worker that ran its step died.

        If there was none, any worker can go on or stop it for a person.
        """
        if not stuck.worker:
            return Later(0.1, queue=queues.ACT)
        record = self._engine.store.procedures.get(id)
        if record is None:
            return Done("failed", 0.0)
        fence = Fence(naming.procedure(id), stuck.attempt, stuck.worker)
        move = ProcedureMove(self._engine, record, fence, {})
        return move.give_up(stuck.reason)
