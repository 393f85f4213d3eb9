"""Moves a procedure back: undoes the steps that took effect, the latest first."""

from __future__ import annotations

from typing import Any

from boyd.agent.procedure_plans import action_of
from boyd.models import ActionResult, ProcedureState, StepCompensation
from boyd.phases import action_call
from boyd.runtime.jobs.job_runner import Later, requeue
from boyd.runtime.procedures.fenced_procedure import (
    RESUMABLE,
    WATCH,
    FencedProcedure,
    list_targets,
    queue_of,
    shorten,
)
from boyd.runtime.procedures.procedure_steps import DENIED
from boyd.text import queues
from boyd.text.references import MissingValue


def compensate(procedure: FencedProcedure) -> Later:
    """Make the next move of undoing, or end the procedure.

    Raises:
        StillRunning: another live worker executes what undoes the step.
    """
    record = procedure.record
    for index in range(len(record.steps) - 1, -1, -1):
        step, done = record.step(index), record.progress[index]
        if not done.took_effect:
            continue
        compensation = done.compensation
        if compensation is None:
            name = procedure.steps.compensation_name(step, done, 0)
            if name is None:
                continue
            compensation = StepCompensation(state="running", execution=name)
            return _begin(procedure, index, compensation)
        if compensation.state == "running":
            return _undo(procedure, index, compensation)
        if compensation.state == "asked":
            return _take_answer(procedure, index, compensation)
    state: ProcedureState = "cancelled" if record.cancelled_by else "failed"
    return procedure.end(state, record.reason or "it failed")


def _begin(procedure: FencedProcedure, index: int, compensation: StepCompensation) -> Later:
    queue = _queue(procedure, index)
    if not procedure.engine.fleet.serving(queue):
        return _stop(procedure, index, compensation, queues.no_worker_message(queue))
    procedure.write(procedure.change_compensation(index, compensation))
    return requeue(queue)


def _queue(procedure: FencedProcedure, index: int) -> str:
    step = procedure.record.step(index)
    planned = action_of(step) if isinstance(step.compensate, str | None) else step.compensate
    return queue_of(procedure.steps.action(planned.action))


def _undo(procedure: FencedProcedure, index: int, compensation: StepCompensation) -> Later:
    step = procedure.record.step(index)
    if step.for_each is not None:
        return _undo_wave(procedure, index, compensation)
    try:
        result = procedure.steps.undo(step, procedure.record.progress[index], compensation)
    except MissingValue as error:
        result = action_call.failure(action_of(step).action, str(error))
    if result.prevented == "cancelled":
        return Later(0.1)  # it goes back anyway: the next move takes the cancellation away
    return _take_result(procedure, index, compensation, result)


def _undo_wave(procedure: FencedProcedure, index: int, compensation: StepCompensation) -> Later:
    """Undo a step for its targets, a few at a time."""
    waves = procedure.waves(index)
    progress = waves.progress()
    if progress is None:
        return procedure.wait_for_person("its targets are no longer kept", {})
    fields = procedure.change_progress(index, {"wave": progress})
    if progress.back and progress.halted and not progress.busy:
        return procedure.wait_for_person(progress.halted, fields)
    if progress.busy or progress.count("done", "not effective", "worse"):
        if not progress.busy:
            waves.undo(_queue(procedure, index))
        procedure.write(fields)
        return Later(WATCH)
    if not (stuck := progress.count("stuck")):
        state = "left" if progress.count("left") else "done"
        end = procedure.change_compensation(index, compensation, state=state)
        procedure.write({**fields, **end})
        return requeue(queues.ACT)
    number = f"{stuck} of {progress.count('stuck', 'left', 'undone')} not undone"
    detail = shorten(list_targets(progress, number, "stuck"))
    return _stop(procedure, index, compensation, detail, state="failed", detail=detail)


def _take_result(
    procedure: FencedProcedure, index: int, compensation: StepCompensation, result: ActionResult
) -> Later:
    if result.waits_for:
        changes = {"state": "asked", "approval": result.waits_for}
        procedure.write(procedure.change_compensation(index, compensation, **changes))
        return procedure.recheck_approval(result.waits_for)
    if result.success:
        done = procedure.change_compensation(index, compensation, state="done", detail=None)
        procedure.write(done)
        return requeue(queues.ACT)
    reason = result.error or "it failed"
    if result.prevented in RESUMABLE:
        return _stop(procedure, index, compensation, reason)
    changes = {"state": "unknown" if result.unknown else "failed", "detail": shorten(reason)}
    return _stop(procedure, index, compensation, reason, **changes)


def _take_answer(procedure: FencedProcedure, index: int, compensation: StepCompensation) -> Later:
    approval_id = compensation.approval or ""
    answer = procedure.steps.answer(approval_id)
    if answer is None:
        return procedure.recheck_approval(approval_id)
    if not isinstance(answer, str):
        return _take_result(procedure, index, compensation, answer)
    if not answer.startswith(DENIED):
        changes = {"state": "failed", "detail": shorten(answer)}
        return _stop(procedure, index, compensation, answer, **changes)
    changes = {"state": "left", "detail": shorten(answer)}
    procedure.write(procedure.change_compensation(index, compensation, **changes))
    return requeue(queues.ACT)


def _stop(
    procedure: FencedProcedure,
    index: int,
    compensation: StepCompensation,
    reason: str,
    **changes: Any,
) -> Later:
    """Stop on the way back until a person resumes or cancels it."""
    fields = procedure.change_compensation(index, compensation, **changes)
    step_id = procedure.record.steps[index].id
    return procedure.wait_for_person(f"undoing step {step_id}: {reason}", fields)


# After a person's order


def leave_compensations(procedure: FencedProcedure) -> None:
    """Leave what something keeps from being undone, such as a queue without a worker."""
    for index, done in enumerate(procedure.record.progress):
        if (undone := done.compensation) and undone.state == "running":
            changes = {"state": "left", "detail": procedure.record.reason}
            procedure.write(procedure.change_compensation(index, undone, **changes))


def resume_compensation(procedure: FencedProcedure, repeat: bool) -> Later:
    """Go on undoing; *repeat* what has failed, or leave it."""
    fields: dict[str, str] = {"resumed": ""}
    for index, done in enumerate(procedure.record.progress):
        compensation = done.compensation
        if compensation is not None and done.wave is not None and done.wave.back:
            fields |= _resume_wave(procedure, index, compensation, repeat)
            continue
        if compensation is None or compensation.state not in ("failed", "unknown"):
            continue
        if not repeat:
            fields |= procedure.change_compensation(index, compensation, state="left")
            continue
        tries = compensation.tries + 1
        name = procedure.steps.compensation_name(procedure.record.step(index), done, tries)
        changes = {"state": "running", "tries": tries, "execution": name, "approval": None}
        fields |= procedure.change_compensation(index, compensation, **changes)
    procedure.write(fields)
    return requeue(queues.ACT)


def _resume_wave(
    procedure: FencedProcedure, index: int, compensation: StepCompensation, repeat: bool
) -> dict[str, str]:
    """Go on to undo a step for its targets; return the fields to store."""
    if compensation.state == "failed" and not repeat:
        return procedure.change_compensation(index, compensation, state="left")
    if compensation.state in ("failed", "running"):
        procedure.waves(index).resume(repeat, _queue(procedure, index), back=True)
        return procedure.change_compensation(index, compensation, state="running", detail=None)
    return {}
