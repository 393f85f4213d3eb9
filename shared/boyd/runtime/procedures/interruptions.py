"""Interrupts the current step of a procedure, unless it is executing, and resumes it.

People cancel and resume; time runs out; workers are lost again and again.
"""

from __future__ import annotations

from boyd import naming
from boyd.models.procedure import StepState
from boyd.runtime.jobs.job_runner import Later, requeue
from boyd.runtime.procedures.fenced_procedure import WATCH, FencedProcedure, shorten
from boyd.runtime.procedures.undo_moves import leave_compensations
from boyd.text import queues


def cancel(procedure: FencedProcedure) -> Later | None:
    """Go back, or return None if the current step is executing and has to end first."""
    record, is_going_back = procedure.record, procedure.fields.get("back")
    reason = f"cancelled by {record.cancelled_by}"
    is_stopped = record.state == "stopped"
    if is_stopped and is_going_back:
        leave_compensations(procedure)
    if is_going_back or procedure.is_past_last_step:
        return procedure.go_back(reason)
    if is_stopped:
        _find_question(procedure)
        if not _is_open(procedure):
            return procedure.go_back(reason)
    return go_back_unless_busy(procedure, reason)


def go_back_unless_busy(procedure: FencedProcedure, reason: str) -> Later | None:
    """Go back, or return None if the current step is executing and has to end first."""
    if procedure.step.for_each is not None and procedure.progress.state == "running":
        return _give_up_wave(procedure, reason)
    _find_question(procedure)
    progress = procedure.progress
    if progress.state == "asked":
        if not procedure.steps.withdraw(progress.approval or "", reason):
            return None
    elif progress.state == "running" and _is_executing(procedure):
        return None
    if progress.state not in ("pending", "unknown"):
        procedure.note({}, state="failed", detail=shorten(reason), ended_at=procedure.now)
    return procedure.go_back(reason)


def _give_up_wave(procedure: FencedProcedure, reason: str) -> Later | None:
    waves = procedure.waves(procedure.record.at)
    waves.halt(shorten(reason))
    wave = waves.progress()
    if wave is not None:
        procedure.note_wave(wave)
        if wave.busy:
            return None
    procedure.note({}, state="failed", detail=shorten(reason), ended_at=procedure.now)
    return procedure.go_back(reason)


def give_up_step(procedure: FencedProcedure, reason: str) -> None:
    """End the current step, whose workers were lost; what the ledger knows stands."""
    if procedure.step.for_each is not None:
        procedure.waves(procedure.record.at).halt(shorten(reason))
        return
    _find_question(procedure)
    progress = procedure.progress
    execution = progress.execution or ""
    if progress.state == "asked" and not procedure.steps.withdraw(progress.approval or "", reason):
        execution = naming.approval(progress.approval or "")
    if progress.state in ("running", "asked"):
        result = procedure.engine.store.executions.settle(execution)
        state: StepState = "unknown" if result and result.unknown else "failed"
        if result and result.success and procedure.step.until is None:
            state = "done"  # by the worker that was lost before it could note that
        procedure.note({}, state=state, detail=shorten(reason))


def resume(procedure: FencedProcedure, repeat: bool) -> Later:
    """Go on where it was stopped; *repeat* what failed, or take it for done."""
    if procedure.is_past_last_step:
        return procedure.end("succeeded", "")
    _find_question(procedure)
    step, progress, at = procedure.step, procedure.progress, procedure.record.at
    if _is_open(procedure):
        procedure.note({"resumed": ""})
        return requeue(queues.ACT)
    if step.for_each is not None and progress.state == "running":
        procedure.waves(at).resume(repeat, procedure.wave_queue(at))
        procedure.note({"resumed": ""}, detail=None)
        return Later(WATCH)
    if progress.state == "unknown" and not repeat:
        detail = "a person says that it is done"
        return procedure.advance("done", detail=detail, took_effect=True)
    # What was approved and not executed needs another approval.
    tries = progress.tries + (1 if progress.state == "unknown" or progress.approval else 0)
    name = procedure.steps.name(step, progress.patched({"tries": tries}))
    state = "pending" if progress.state == "pending" else "running"
    changes = {"state": state, "tries": tries, "execution": name}
    procedure.note({"resumed": ""}, **changes, approval=None, detail=None)
    return requeue(queues.ACT)


def _find_question(procedure: FencedProcedure) -> None:
    """Note the approval that a worker has asked for, if it was lost before it noted that."""
    execution = procedure.progress.execution if procedure.progress.state == "running" else None
    approvals = procedure.engine.store.approvals
    if execution and (item := approvals.item_proposed_by(execution)):
        procedure.note_question(item)


def _is_open(procedure: FencedProcedure) -> bool:
    """Report whether the step asks, or was begun and an error has kept its outcome out."""
    state = procedure.progress.state
    return state == "asked" or (state == "running" and _is_executing(procedure))


def _is_executing(procedure: FencedProcedure) -> bool:
    """Report whether the current step was claimed and its outcome is not recorded yet."""
    execution, steps = procedure.progress.execution or "", procedure.steps
    has_ended = procedure.step.until is not None and steps.result(execution) is not None
    return steps.was_claimed(execution) and not has_ended
