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
from boyd.agent.procedure_plans import action_of, compensation_of, holds
from boyd.models import (
    ActionResult,
    Fence,
    ProcedureRecord,
    ProcedureState,
    ProcedureStep,
    StepCompensation,
    StepProgress,
)
from boyd.models.procedure import StepState
from boyd.phases import action_call
from boyd.plugin.components import Action
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, Later
from boyd.runtime.procedures.procedure_steps import DENIED, ProcedureSteps
from boyd.store import Stale, StuckJob, read_procedure, step_field
from boyd.store.executions import KEEP
from boyd.text import queues
from boyd.text.references import MissingValue

#: Seconds between two looks at something that wakes the procedure anyway.
_LOOK = 300.0
#: Seconds between attempts to tell people, and their number.
_RETRY, _TRIES = 60.0, 30
#: Why a step was not executed, without having failed: a person may resume it.
_OBSTACLES = ("frozen", "revoked", "held", "closed", "unserved", "unsandboxed")
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
        self._steps = ProcedureSteps(engine, record, fence)

    def run(self) -> Done | Later:
        """Make the move; how the job continues.

        Raises:
            StillRunning: another live worker executes the step.
        """
        if self._record.ended:
            return self._tell()
        if self._fields.get("cancelled"):
            return self._cancel()
        if self._record.state == "stopped":
            return self._tell()
        if self._fields.get("resumed"):
            return self._resume(repeat=self._fields["resumed"] == "repeat")
        if self._record.state == "compensating":
            return self._compensate()
        if self._record.at >= len(self._record.steps):
            return self._end("succeeded", "")
        if self._now >= self._record.until:
            late = self._give_up_step("the procedure took too long")
            if late is not None:
                return late
        return self._forward()

    def _forward(self) -> Done | Later:
        state = self._progress.state
        if state == "pending":
            return self._begin()
        if state == "asked":
            return self._answered()
        if state == "verifying":
            return self._verified()
        if state == "running":
            return self._execute()
        return self._turn(self._progress.detail or f"step {self._step.id} {state}")

    # Forward

    def _begin(self) -> Done | Later:
        step = self._step
        try:
            if step.when is not None and not holds(step.when, self._steps.values()):
                return self._next("skipped", detail=f"false: {step.when}")
        except ConditionError as error:
            return self._failed(f"when: {error}")
        queue = self._queue(self._steps.action(action_of(step).action))
        if not self._engine.fleet.serving(queue):
            return self._stop(queues.unserved(queue))
        name = self._steps.name(step, self._progress)
        self._note({}, state="running", execution=name, started_at=self._now)
        return Later(0, queue=queue)

    def _execute(self) -> Done | Later:
        try:
            result = self._steps.execute(self._step, self._progress.execution or "")
        except MissingValue as error:
            return self._failed(str(error))
        return self._outcome(result)

    def _outcome(self, result: ActionResult) -> Done | Later:
        if result.waits_for:
            asked = result.waits_for
            self._note({"approvalId": asked}, state="asked", approval=asked)
            return Later(self._steps.recheck_after(result.waits_for, self._wait(_LOOK)))
        if result.unknown:
            why = result.error or "its outcome is unknown"
            return self._stop(why, state="unknown")
        if result.prevented == "cancelled":
            return Later(0.1)  # the next move finds the cancellation
        if result.prevented in _OBSTACLES:
            return self._stop(result.error or result.prevented)
        if not result.success:
            return self._failed(result.error or "it failed")
        if self._step.until is not None:
            return self._polled(result, self._step.until)
        return self._succeeded()

    def _polled(self, result: ActionResult, until: str) -> Done | Later:
        step, now = self._step, self._progress
        try:
            met = holds(until, {**self._steps.values(), "output": result.output})
        except ConditionError as error:
            return self._failed(f"until: {error}")
        if met:
            return self._next("done", took_effect=True)
        since = (self._now - (now.started_at or self._now)).total_seconds()
        if since >= step.within:
            return self._failed(f"still false after {step.within:g} s: {until}")
        polls = now.polls + 1
        name = self._steps.name(step, now.patched({"polls": polls}))
        self._note({}, polls=polls, execution=name, state="running")
        return Later(self._wait(step.every))

    def _succeeded(self) -> Done | Later:
        execution = self._progress.execution or ""
        entry = self._engine.store.executions.get(execution)
        if entry is None or entry.verification is None or not self._step.verify:
            return self._next("done", took_effect=True)
        self._note({}, state="verifying", took_effect=True)
        return Later(0.1)

    def _verified(self) -> Done | Later:
        entry = self._engine.store.executions.get(self._progress.execution or "")
        found = entry.verification if entry else None
        if entry is None or found is None:
            return self._failed("its verification is no longer kept")
        if found.verdict is None:
            plan = self._engine.agent.verification(entry.action)
            return Later(self._wait(max(0.5, min(plan.every, 5.0)) if plan else _LOOK))
        if found.verdict == "effective":
            return self._next("done", detail=found.evidence or None)
        seen = f": {found.evidence}" if found.evidence else ""
        return self._failed(f"{found.verdict}{seen}")

    def _answered(self) -> Done | Later:
        approval_id = self._progress.approval or ""
        answer = self._steps.answer(approval_id)
        if answer is None:
            return Later(self._steps.recheck_after(approval_id, self._wait(_LOOK)))
        if isinstance(answer, str):
            return self._failed(answer)
        self._note({}, state="running", execution=naming.approval(approval_id))
        return self._outcome(answer)

    def _next(self, state: StepState, **changes: Any) -> Later:
        at = self._record.at + 1
        self._note({"at": str(at), "resumed": ""}, state=state, ended_at=self._now, **changes)
        return Later(0, queue=queues.ACT)

    def _failed(self, why: str) -> Done | Later:
        self._note({}, state="failed", detail=_short(why), ended_at=self._now)
        return self._turn(f"step {self._step.id} failed: {why}")

    # Stop, cancel, resume

    def _stop(self, why: str, state: StepState | None = None) -> Later:
        changes = {"detail": _short(why), "state": state or self._progress.state}
        fields = self._changed(self._record.at, changes)
        return self._stopped(f"step {self._step.id}: {why}", fields)

    def _stopped(self, why: str, fields: Mapping[str, str]) -> Later:
        """Wait until a person resumes or cancels it."""
        stopped = {"state": "stopped", "reason": _short(why), "tell": "1"}
        at = {"stoppedAt": str(int(self._now.timestamp() * 1000))}
        self._write({**fields, **stopped, **at}, "stopped", why)
        return Later(0.1)

    def _tell(self) -> Done | Later:
        """Tell people that it was stopped or has failed, at least once."""
        tries = int(self._fields.get("tell", 0))
        if 0 < tries <= _TRIES:
            ctx = self._engine.act_context()
            ctx.run_hooks("on_procedure", procedure=self._record)
            self._write({"tell": str(tries + 1) if ctx.problems else ""})
            if ctx.problems:
                return Later(_RETRY)
        if not self._record.ended:
            return Later(KEEP)
        return Done("succeeded" if self._record.state == "succeeded" else "failed", KEEP)

    def _cancel(self) -> Done | Later:
        why = f"cancelled by {self._record.cancelled_by}"
        over = self._record.at >= len(self._record.steps)
        if self._record.state == "stopped" or self._fields.get("back") or over:
            return self._turn(why)
        return self._give_up_step(why) or self._forward()

    def _give_up_step(self, why: str) -> Done | Later | None:
        """Go back, unless the current step was begun; None: it has to end first."""
        now = self._progress
        if now.state == "asked":
            if not self._steps.withdraw(now.approval or "", why):
                return None
        elif now.state == "running" and self._is_executing(now):
            return None
        if now.state != "pending":
            self._note({}, state="failed", detail=_short(why), ended_at=self._now)
        return self._turn(why)

    def _is_executing(self, now: StepProgress) -> bool:
        """Tell whether the step was begun and its outcome is not recorded yet."""
        execution = now.execution or ""
        ended = self._step.until is not None and self._steps.result(execution) is not None
        return self._steps.begun(execution) and not ended

    def _resume(self, repeat: bool) -> Done | Later:
        if self._record.state == "compensating":
            return self._resume_compensation(repeat)
        now = self._progress
        if now.state == "unknown" and not repeat:
            detail = "a person says that it is done"
            return self._next("done", detail=detail, took_effect=True)
        # What was approved and not executed needs another approval.
        tries = now.tries + (1 if now.state == "unknown" or now.approval else 0)
        again = now.patched({"tries": tries})
        name = self._steps.name(self._step, again)
        state = "pending" if now.state == "pending" else "running"
        changes = {"state": state, "tries": tries, "execution": name}
        self._note({"resumed": ""}, **changes, approval=None, detail=None)
        return Later(0, queue=self._queue(self._steps.action(action_of(self._step).action)))

    # Back

    def _turn(self, why: str) -> Done | Later:
        """Go back: undo the steps that took effect, the latest first."""
        fields = {"state": "compensating", "back": "1", "cancelled": "", "tell": "", "resumed": ""}
        kept = {} if self._fields.get("back") else {"reason": _short(why)}
        self._write({**fields, **kept}, "compensating", why)
        return Later(0, queue=queues.ACT)

    def _compensate(self) -> Done | Later:
        for index in range(len(self._record.steps) - 1, -1, -1):
            step, done = self._record.steps[index], self._record.progress[index]
            if not done.took_effect:
                continue
            now = done.compensation
            if now is None:
                name = self._steps.compensation_name(step, done, 0)
                if name is None:
                    continue
                now = StepCompensation(state="running", execution=name)
                return self._begin_compensation(index, now)
            if now.state == "running":
                return self._undo(index, now)
            if now.state == "asked":
                return self._undo_answered(index, now)
        state: ProcedureState = "cancelled" if self._record.cancelled_by else "failed"
        return self._end(state, self._record.reason or "it failed")

    def _begin_compensation(self, index: int, now: StepCompensation) -> Later:
        step = self._record.steps[index]
        planned = compensation_of(step, self._steps.action(action_of(step).action))
        of = action_of(step) if planned is None or isinstance(planned, str) else planned
        queue = self._queue(self._steps.action(of.action))
        if not self._engine.fleet.serving(queue):
            return self._stopped(queues.unserved(queue), {})
        self._write(self._undone(index, now))
        return Later(0, queue=queue)

    def _undo(self, index: int, now: StepCompensation) -> Done | Later:
        step = self._record.steps[index]
        try:
            result = self._steps.undo(step, self._record.progress[index], now)
        except MissingValue as error:
            result = action_call.failed(action_of(step).action, str(error))
        if result.prevented == "cancelled":
            return Later(0.1)  # it goes back anyway: the next move takes the cancellation away
        return self._compensated(index, now, result)

    def _compensated(self, index: int, now: StepCompensation, result: ActionResult) -> Done | Later:
        if result.waits_for:
            changes = {"state": "asked", "approval": result.waits_for}
            self._write(self._undone(index, now.patched(changes)))
            return Later(self._steps.recheck_after(result.waits_for, _LOOK))
        if result.success:
            self._write(self._undone(index, now.patched({"state": "done"})))
            return Later(0, queue=queues.ACT)
        why = f"undoing step {self._record.steps[index].id}: {result.error}"
        if result.prevented in _OBSTACLES:
            return self._stopped(why, {})
        state = "unknown" if result.unknown else "failed"
        changes = {"state": state, "detail": _short(result.error or "it failed")}
        return self._stopped(why, self._undone(index, now.patched(changes)))

    def _undo_answered(self, index: int, now: StepCompensation) -> Done | Later:
        answer = self._steps.answer(now.approval or "")
        if answer is None:
            return Later(self._steps.recheck_after(now.approval or "", _LOOK))
        if isinstance(answer, str) and answer != DENIED:
            changes = {"state": "failed", "detail": _short(answer)}
            why = f"undoing step {self._record.steps[index].id}: {answer}"
            return self._stopped(why, self._undone(index, now.patched(changes)))
        if isinstance(answer, str):
            changes = {"state": "left", "detail": _short(answer)}
            self._write(self._undone(index, now.patched(changes)))
            return Later(0, queue=queues.ACT)
        return self._compensated(index, now, answer)

    def _resume_compensation(self, repeat: bool) -> Later:
        fields: dict[str, str] = {"resumed": ""}
        for index, done in enumerate(self._record.progress):
            now = done.compensation
            if now is None or now.state not in ("failed", "unknown"):
                continue
            if not repeat:
                fields |= self._undone(index, now.patched({"state": "left"}))
                continue
            tries = now.tries + 1
            step = self._record.steps[index]
            name = self._steps.compensation_name(step, done, tries)
            changes = {"state": "running", "tries": tries, "execution": name, "approval": None}
            fields |= self._undone(index, now.patched(changes))
        self._write(fields)
        return Later(0, queue=queues.ACT)

    # The end

    def _end(self, state: ProcedureState, why: str) -> Done | Later:
        action, record = self._record.action, self._record
        if state == "succeeded":
            states: dict[str, Any] = {
                step.id: one.state for step, one in zip(record.steps, record.progress, strict=True)
            }
            result = ActionResult(action=action, success=True, duration=self._took, output=states)
        else:
            undone = ", ".join(record.compensated)
            why = f"{why}; undone: {undone}" if undone else why
            result = action_call.failed(action, why, self._took)
        budget = self._engine.agent.budget(action)
        hold_for = (budget.window if budget else REPEAT_AFTER) if state == "failed" else 0.0
        self._write({"tell": "1" if state == "failed" else ""})
        self._store.end(record, self._fence, state, result, _short(why), hold_for)
        return Later(0.1)

    def give_up(self, why: str) -> Done:
        """End it after its workers were lost again and again; nothing is undone."""
        if self._record.ended:
            return Done("failed", KEEP)
        if self._record.at < len(self._record.steps) and self._progress.state == "running":
            known = self._engine.store.executions.settle(self._progress.execution or "")
            state: StepState = "unknown" if known and known.unknown else "failed"
            self._note({}, state=state, detail=_short(why))
        self._end("failed", f"{why}; nothing was undone")
        ended = self._store.get(self._record.id) or self._record
        self._engine.act_context().run_hooks("on_procedure", procedure=ended)
        return Done("failed", KEEP)

    # The record

    @property
    def _now(self) -> datetime:
        return self._engine.store.clock.now()

    @property
    def _took(self) -> float:
        return round((self._now - self._record.started_at).total_seconds() * 1000, 3)

    @property
    def _step(self) -> ProcedureStep:
        return self._record.steps[self._record.at]

    @property
    def _progress(self) -> StepProgress:
        return self._record.progress[self._record.at]

    def _queue(self, action: Action | None) -> str:
        return (action.queue if action else None) or queues.ACT

    def _wait(self, seconds: float) -> float:
        """Wait so long, or until the time of the procedure is over."""
        return max(0.1, min(seconds, (self._record.until - self._now).total_seconds()))

    def _note(self, fields: Mapping[str, str], **changes: Any) -> None:
        """Record *changes* of the current step, and *fields* of the job."""
        self._write({**self._changed(self._record.at, changes), **fields})

    def _undone(self, index: int, now: StepCompensation) -> dict[str, str]:
        return self._changed(index, {"compensation": now})

    def _changed(self, index: int, changes: Mapping[str, Any]) -> dict[str, str]:
        """The field for a changed step."""
        progress = list(self._record.progress)
        progress[index] = progress[index].patched(changes)
        self._record = self._record.patched({"progress": progress})
        return {step_field(index): progress[index].to_json()}

    def _write(self, fields: Mapping[str, str], kind: str = "", note: str = "") -> None:
        known = {name: fields[name] for name in ("state", "reason") if fields.get(name)}
        at = {"at": int(fields["at"])} if "at" in fields else {}
        self._record = self._record.patched({**known, **at})
        if not self._store.record(self._record, self._fence, fields, kind, _short(note)):
            raise Stale(f"procedure {self._record.id} belongs to another worker now")


def _short(why: str) -> str:
    return why if len(why) <= _MAX_REASON else f"{why[: _MAX_REASON - 1]}…"


# Goes through the steps of procedures: a job each, on the queue of the current step's action.
#
# The job begins in the step that starts the procedure. Its id is that of the procedure's
# execution.

#: Seconds between attempts after an unexpected error, and their number.
_RETRY_JOB = 60.0
_JOB_TRIES = 5


class ProcedureHandler:
    """The procedures of one agent; they wait for workers until their own time is over."""

    patient = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds that one step may take."""
        actions = self._engine.agent.host.actions.values()
        longest = max((action.timeout for action in actions), default=0.0)
        return self._engine.settings.phase_limit + longest

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make the next move."""
        return ProcedureMove(self._engine, read_procedure(fields), fence, fields).run()

    def broken(self, id: str, fields: Fields, why: str) -> Done | Later:
        """Try it again; in the end a person has to."""
        tries = int(fields.get("tries", 0)) + 1
        if tries < _JOB_TRIES:
            return Later(_RETRY_JOB, {"tries": str(tries)})
        now = str(int(self._engine.store.clock.now().timestamp() * 1000))
        stop = {"state": "stopped", "reason": why, "stoppedAt": now, "tell": "1", "tries": "0"}
        return Later(0.1, stop)

    def lost(self, id: str, stuck: StuckJob) -> None:
        """Let another worker continue: the ledger knows what was executed."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End it: its step took down its workers."""
        record = self._engine.store.procedures.get(id)
        if record is None:
            return Done("failed", 0.0)
        fence = Fence(naming.procedure(id), stuck.attempt, stuck.worker)
        move = ProcedureMove(self._engine, record, fence, {})
        worker = stuck.worker.partition("/")[0]
        return move.give_up(f"its workers were lost repeatedly, the last one was {worker}")
