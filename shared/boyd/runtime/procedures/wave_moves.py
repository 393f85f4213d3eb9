"""Executes a procedure's step for each of its targets, in waves, and undoes it for each.

The procedure's job opens the waves. Each target has a job of its own while something is done, whose
end begins the next one of its wave.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from boyd import naming
from boyd.agent.procedure_plans import action_of, wave_ends
from boyd.models import (
    ActionResult,
    Fence,
    ProcedureRecord,
    ProcedureStep,
    StepCompensation,
    StepProgress,
    TargetState,
    WaveProgress,
    WaveTarget,
)
from boyd.models.procedure import AT_ONCE
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import ERRORS, Done, Fields, JobFailure, JobHandler, Later
from boyd.runtime.procedures.procedure_steps import DENIED, ProcedureSteps
from boyd.store import Stale, StuckJob, WaitsForTurn
from boyd.text import queues
from boyd.text.formatting import seconds
from boyd.text.references import MissingValue

#: Reasons for which no target is executed, not only this one: a person may resume the step.
_HALTS = ("frozen", "revoked", "closed")
_OVER = Done("succeeded", 0.0)
#: Seconds between two checks of an approval, which wakes the target anyway.
_RECHECK = 300.0
#: Seconds between attempts after an unexpected error, and their number: to go on, then to end it.
_RETRY, _TRIES = 10.0, 3
#: The ends of targets in the middle of something whose workers were lost again and again.
_GIVEN_UP: dict[TargetState, TargetState] = {
    "running": "failed",
    "asked": "failed",
    "verifying": "not effective",
    "undoing": "stuck",
    "undo asked": "stuck",
}
#: The longest reason that is kept of a target.
_MAX_REASON = 300


class Waves:
    """The waves of one step, for the job of its procedure."""

    def __init__(
        self, engine: Engine, record: ProcedureRecord, fence: Fence, step: ProcedureStep
    ) -> None:
        self._engine = engine
        self._fence = fence
        self._step = step
        self._store = engine.store.waves
        self._name = naming.wave(record.id, step.id)

    def progress(self) -> WaveProgress | None:
        """The progress of the step, if its targets are kept."""
        progress = self._store.progress(self._name)
        if progress is None:
            return None
        return progress.patched({"ends": wave_ends(self._step, progress.total)})

    def go_on(self, progress: WaveProgress, queue: str | None) -> bool:
        """Begin the targets of the wave, or of the next one; return False if there is no other."""
        beyond = progress.total - progress.begun
        limit = progress.begun
        if progress.count("pending") <= beyond:
            if not beyond:
                return False
            limit = next(end for end in progress.ends if end > progress.begun)
        self._open(queue, {"mode": "forth", "limit": limit})
        return True

    def resume(self, repeat: bool, queue: str | None, back: bool = False) -> None:
        """Go on in spite of what has failed, or *repeat* that."""
        if repeat and not self._store.repeat(self._name, self._fence, back):
            raise Stale(f"{self._name} belongs to another worker now")
        self._open(queue, {"mode": "back" if back else "forth"}, resumed=True)

    def halt(self, reason: str) -> None:
        """Begin no other target."""
        self._store.halt(self._name, self._fence, reason)

    def undo(self, queue: str | None) -> None:
        """Begin to undo it for the targets on which it took effect, the last ones first."""
        self._open(queue, {"mode": "back"})

    def _open(self, queue: str | None, fields: dict[str, Any], resumed: bool = False) -> None:
        step, action = self._step, self._engine.agent.host.actions.get(action_of(self._step).action)
        limits = {
            **fields,
            "atOnce": step.at_once or AT_ONCE,
            "stopAt": step.stop_at or 1,
            "queue": queue or queues.ACT,
            "idempotent": int(action is not None and action.idempotent),
        }
        names = self._store.open(self._name, self._fence, limits, resumed)
        _send(self._engine, names, limits["queue"])


def _send(engine: Engine, names: Sequence[str] | None, queue: str | None) -> None:
    """Send the jobs of targets that have begun; the sweeper sends those that are lost."""
    if names is None:
        raise Stale("the step belongs to another worker now")
    for name in names:
        engine.dispatcher.job(engine.agent.id, name, 1, queue)


class _Target:
    """One move of one target, on the worker that holds its job."""

    def __init__(
        self,
        engine: Engine,
        record: ProcedureRecord,
        fence: Fence,
        fields: Fields,
        target: WaveTarget,
    ) -> None:
        wave, _ = naming.parts_of_target(naming.parts(str(fence.origin))[1])
        step_id = naming.parts_of_wave(wave)[1]
        step = next(step for step in record.steps if step.id == step_id)
        self._engine = engine
        self._fence = fence
        self._fields = fields
        self._target = target
        self._wave = wave
        self._step = step.model_copy(update={"id": naming.of_target(step_id, target.number)})
        self._steps = ProcedureSteps(engine, record, fence, fields, target.item)
        self._execution = naming.step(record.id, self._step.id, target.tries)

    def run(self) -> Done | Later:
        """Make the move, and return how the job continues.

        Raises:
            StillRunning: another live worker executes it, or another execution is in its way.
        """
        state = self._target.state
        if state == "running":
            return self._execute()
        if state == "verifying":
            return self._check_verification()
        if state == "undoing":
            return self._undo()
        return self._take_answer() if state in ("asked", "undo asked") else _OVER

    def _execute(self) -> Done | Later:
        try:
            result = self._steps.execute(
                self._step, self._execution, repeats=self._target.tries > 0
            )
        except MissingValue as error:
            return self._end("failed", str(error))
        except WaitsForTurn as waits:
            return self._wait(waits)
        return self._take(result, self._execution)

    def _wait(self, waits: WaitsForTurn) -> Done | Later:
        """Wait for its turn, at most as long as the step says."""
        now, within = self._engine.store.clock.now(), self._step.within
        if self._fields.get("cancelled"):
            return self._put_back()
        if self._target.started_at is None:
            self._move("running", started_at=now)
        elif now - self._target.started_at > timedelta(seconds=within):
            other = naming.short(waits.other)
            return self._end("failed", f"{other} has not ended within {seconds(within)}")
        raise waits

    def _take(self, result: ActionResult, execution: str) -> Done | Later:
        """Take the result of the execution, or that it waits for a person."""
        reason = result.error or "it failed"
        if result.waits_for:
            self._move("asked", approval=result.waits_for)
            return Later(self._engine.recheck_after(result.waits_for, _RECHECK))
        if result.unknown:
            return self._end("unknown", reason, execution=execution)
        if result.prevented == "cancelled":
            return self._put_back()
        if result.is_unneeded:
            return self._end("skipped", reason)
        if result.prevented in _HALTS:
            return self._put_back(reason)
        if not result.success:
            return self._end("failed", reason, execution=execution)
        entry = self._engine.store.executions.get(execution)
        if entry is None or entry.verification is None or not self._step.verify:
            return self._end("done", execution=execution)
        self._move("verifying", execution=execution)
        return Later(0.1)

    def _check_verification(self) -> Done | Later:
        entry = self._engine.store.executions.get(self._target.execution or "")
        verification = entry.verification if entry else None
        if entry is None or verification is None:
            return self._end("not effective", "its verification is no longer kept")
        if verification.verdict is None:
            plan = self._engine.agent.verification(entry.action)
            return Later(max(0.5, min(plan.every, 5.0)) if plan else 5.0)
        if verification.verdict == "effective":
            return self._end("done")
        state: TargetState = "worse" if verification.verdict == "worse" else "not effective"
        return self._end(
            state, ": ".join(filter(None, (verification.verdict, verification.evidence)))
        )

    def _take_answer(self) -> Done | Later:
        approval, undoes = self._target.approval or "", self._target.state == "undo asked"
        if self._fields.get("cancelled") and self._steps.withdraw(approval, "cancelled"):
            return self._put_back()
        answer = self._steps.answer(approval)
        if answer is None:
            return Later(self._engine.recheck_after(approval, _RECHECK))
        if isinstance(answer, str) and undoes:
            return self._end("left" if answer.startswith(DENIED) else "stuck", answer)
        if isinstance(answer, str):
            return self._end("failed", answer)
        return self._take_undo(answer) if undoes else self._take(answer, naming.approval(approval))

    # Back

    def _undo(self) -> Done | Later:
        name = self._undo_name()
        if name is None:
            return self._end("left", "nothing undoes it")
        undone = StepCompensation(state="running", execution=name, tries=self._target.tries)
        try:
            return self._take_undo(self._steps.undo(self._step, self._effect, undone))
        except MissingValue as error:
            return self._end("stuck", str(error))

    @property
    def _effect(self) -> StepProgress:
        return StepProgress(state="done", execution=self._target.execution, took_effect=True)

    def _undo_name(self) -> str | None:
        return self._steps.compensation_name(self._step, self._effect, self._target.tries)

    def _take_undo(self, result: ActionResult) -> Done | Later:
        reason = result.error or "it failed"
        if result.waits_for:
            self._move("undo asked", approval=result.waits_for)
            return Later(self._engine.recheck_after(result.waits_for, _RECHECK))
        if result.success:
            return self._end("undone", self._target.detail or "")
        if result.prevented in _HALTS:
            return self._end("done", halts=reason)
        return self._end("stuck", reason)

    # The record

    def give_up(self, reason: str, ask: bool = True) -> Done | Later:
        """End it after no worker took it, or each was lost; what the ledger knows stands.

        Unless *ask*: ledger and approval could not be asked, so nobody knows what was done.
        """
        state = self._target.state
        if not ask and state in _GIVEN_UP:
            return self._end("unknown" if state == "running" else _GIVEN_UP[state], reason)
        ledger = self._engine.store.executions
        if state == "running" and (result := ledger.settle(self._execution)):
            return self._take(result, self._execution)
        if state == "undoing" and (result := ledger.settle(self._undo_name() or "")):
            return self._take_undo(result)
        is_asked = state in ("asked", "undo asked")
        if is_asked and not self._steps.withdraw(self._target.approval or "", reason):
            return self._take_answer()
        return self._end(_GIVEN_UP[state], reason) if state in _GIVEN_UP else _OVER

    def _put_back(self, halts: str = "") -> Done:
        """Leave it as one that has not begun."""
        return self._end("pending", halts=halts, started_at=None)

    def _end(self, state: TargetState, detail: str = "", halts: str = "", **changes: Any) -> Done:
        """Record the end; the next targets begin."""
        self._move(state, halts, detail=detail[:_MAX_REASON] or None, **changes)
        return _OVER

    def _move(self, state: TargetState, halts: str = "", **changes: Any) -> None:
        self._target = self._target.patched({"state": state, **changes})
        names = self._engine.store.waves.move(self._wave, self._fence, self._target, halts)
        _send(self._engine, names, self._fields.get("queue"))


class TargetHandler(JobHandler):
    """The targets of the procedures of one agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds that one target may take."""
        return self._engine.longest_action_limit()

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make the next move; after too many errors end the target, at last without asking."""
        target, errors = self._target(id, fence, fields), int(fields.get(ERRORS, 0))
        if target is None:
            return _OVER
        if errors < _TRIES:
            return target.run()
        return target.give_up(fields["error"], ask=errors < 2 * _TRIES)

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Retry a few times, then end the target; leave it if that cannot even be recorded."""
        if failure.errors < 3 * _TRIES:
            return Later(_RETRY, {"error": failure.reason})
        return Done("failed", 0.0)

    def give_up(self, id: str, stuck: StuckJob) -> Done | Later:
        """End the target, unless it is over or goes on by itself."""
        fence = Fence(f"target:{id}", stuck.attempt, stuck.worker)
        target = self._target(id, fence, {"queue": stuck.queue or queues.ACT})
        return target.give_up(stuck.reason) if target else _OVER

    def _target(self, id: str, fence: Fence, fields: Fields) -> _Target | None:
        wave, number = naming.parts_of_target(id)
        record = self._engine.store.procedures.get(naming.parts_of_wave(wave)[0])
        target = self._engine.store.waves.get(wave, number) if record else None
        return _Target(self._engine, record, fence, fields, target) if record and target else None
