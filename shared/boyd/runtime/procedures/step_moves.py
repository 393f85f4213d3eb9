"""Moves a procedure forward: begins its current step, executes it once, and judges the outcome."""

from __future__ import annotations

from boyd import naming
from boyd.agent.conditions import ConditionError
from boyd.agent.procedure_plans import action_of, is_true
from boyd.models import ActionResult, TargetState, WaveProgress, from_ms
from boyd.plugin.composed_action import ASK
from boyd.runtime.jobs.job_runner import Later, requeue
from boyd.runtime.procedures.fenced_procedure import (
    RECHECK,
    RESUMABLE,
    WATCH,
    FencedProcedure,
    list_targets,
    queue_of,
    shorten,
    to_text,
)
from boyd.text import queues
from boyd.text.references import MissingValue

#: The reason why a question cannot be asked: its action goes with the last procedure.
_GONE = "the agent no longer has {} nor any other procedure: add it and resume this, or cancel it"


def go_forward(procedure: FencedProcedure) -> Later:
    """Make the next move of the current step.

    Raises:
        StillRunning: another live worker executes it.
    """
    progress = procedure.progress
    if progress.state == "pending":
        return _begin(procedure)
    if progress.state == "asked":
        return _take_answer(procedure)
    if progress.state == "verifying":
        return _check_verification(procedure)
    if progress.state == "running":
        return _execute(procedure)
    return procedure.go_back(progress.detail or f"step {procedure.step.id} {progress.state}")


def _begin(procedure: FencedProcedure) -> Later:
    step = procedure.step
    try:
        if step.when is not None and not is_true(step.when, procedure.steps.values()):
            reason = f"false: {step.when}"
            return _branch(procedure, reason) or procedure.advance("skipped", detail=reason)
    except ConditionError as error:
        return _fail(procedure, f"when: {error}")
    if step.for_each == []:
        return procedure.advance("skipped", detail="it has no targets")
    queue = queue_of(procedure.steps.action(action_of(step).action))
    if not procedure.engine.fleet.serving(queue):
        return procedure.stop(queues.no_worker_message(queue))
    if step.for_each is not None:
        procedure.note({"wave": step.id}, state="running", started_at=procedure.now)
        return requeue(queues.ACT)
    name = procedure.steps.name(step, procedure.progress)
    procedure.note({}, state="running", execution=name, started_at=procedure.now)
    return requeue(queue)


def _execute(procedure: FencedProcedure) -> Later:
    step, progress = procedure.step, procedure.progress
    if step.for_each is not None:
        return _watch_wave(procedure)
    try:
        result = procedure.steps.execute(step, progress.execution or "", repeats=progress.tries > 0)
    except MissingValue as error:
        return _fail(procedure, str(error))
    return take_result(procedure, result)


def _watch_wave(procedure: FencedProcedure) -> Later:
    """Begin the next wave once the last one has ended."""
    at = procedure.record.at
    waves, queue = procedure.waves(at), procedure.wave_queue(at)
    progress = waves.progress()
    if progress is None:
        return procedure.stop("its targets are no longer kept")
    if progress.busy or (not progress.halted and waves.go_on(progress, queue)):
        procedure.note_wave(progress)
        return Later(WATCH)
    failures = _failures(progress)
    procedure.note_wave(progress)
    if not progress.halted:
        return procedure.advance("done", detail=failures or None)
    return procedure.stop(f"{progress.halted}; {failures}" if failures else progress.halted)


def _failures(progress: WaveProgress) -> str:
    """The targets that failed, in one line, with the first reasons."""
    if not progress.failures:
        return ""
    states: tuple[TargetState, ...] = ("worse", "unknown", "failed", "not effective")
    return list_targets(progress, f"{progress.failures} failed", *states)


# Outcomes


def take_result(procedure: FencedProcedure, result: ActionResult) -> Later:
    """Go on by the result of the current step, or by the approval that it waits for."""
    step = procedure.step
    if result.waits_for:
        procedure.note_question(result.waits_for)
        return procedure.recheck_approval(result.waits_for)
    if result.unknown:
        return procedure.stop(result.error or "its outcome is unknown", state="unknown")
    if result.prevented == "cancelled":
        return Later(0.1)  # the next move finds the cancellation
    if result.is_unneeded:
        return procedure.advance("skipped", detail=shorten(result.error or ""))
    if result.prevented in RESUMABLE:
        return procedure.stop(result.error or result.prevented)
    if not result.success and step.ask is not None and not procedure.steps.action(ASK):
        return procedure.stop(_GONE.format(procedure.record.action))
    if not result.success:
        return _fail(procedure, result.error or "it failed")
    if step.until is not None:
        return _after_poll(procedure, result, step.until)
    return _after_success(procedure)


def _after_poll(procedure: FencedProcedure, result: ActionResult, until: str) -> Later:
    step, progress = procedure.step, procedure.progress
    try:
        met = is_true(until, {**procedure.steps.values(), "output": result.output})
    except ConditionError as error:
        return _fail(procedure, f"until: {error}")
    if met:
        return procedure.advance("done", took_effect=True)
    now = procedure.now
    since = (now - (progress.started_at or now)).total_seconds()
    if since >= step.within:
        return _fail(procedure, f"still false after {step.within:g} s: {until}")
    polls = progress.polls + 1
    name = procedure.steps.name(step, progress.patched({"polls": polls}))
    procedure.note({}, polls=polls, execution=name, state="running")
    return procedure.recheck(step.every)


def _after_success(procedure: FencedProcedure) -> Later:
    entry = procedure.engine.store.executions.get(procedure.progress.execution or "")
    if entry is None or entry.verification is None or not procedure.step.verify:
        return procedure.advance("done", took_effect=True)
    procedure.note({}, state="verifying", took_effect=True)
    return Later(0.1)


def _check_verification(procedure: FencedProcedure) -> Later:
    engine = procedure.engine
    entry = engine.store.executions.get(procedure.progress.execution or "")
    verification = entry.verification if entry else None
    if entry is None or verification is None:
        return _fail(procedure, "its verification is no longer kept")
    if verification.verdict is None:
        plan = engine.agent.verification(entry.action)
        return procedure.recheck(max(0.5, min(plan.every, 5.0)) if plan else RECHECK)
    if verification.verdict == "effective":
        return procedure.advance("done", detail=verification.evidence or None)
    evidence = f": {verification.evidence}" if verification.evidence else ""
    return _fail(procedure, f"{verification.verdict}{evidence}")


def _take_answer(procedure: FencedProcedure) -> Later:
    approval_id = procedure.progress.approval or ""
    answer = procedure.steps.answer(approval_id)
    if answer is None:
        return procedure.recheck_approval(approval_id)
    if isinstance(answer, str):
        return _fail(procedure, answer)
    # The time in which it waited for the person does not count.
    now = procedure.now
    asked_at = from_ms(float(procedure.fields.get("askedAt", to_text(now))))
    until = {"until": to_text(procedure.record.until + (now - asked_at))}
    procedure.note(until, state="running", execution=naming.approval(approval_id))
    return take_result(procedure, answer)


def _branch(procedure: FencedProcedure, reason: str) -> Later | None:
    """Go on with the alternative of the step, if it has one and nothing has been done."""
    if procedure.step.otherwise is None or procedure.progress.took_effect:
        return None
    changes = {"state": "pending", "instead": True, "detail": shorten(reason), "polls": 0}
    procedure.note({}, **changes, approval=None)
    return requeue(queues.ACT)


def _fail(procedure: FencedProcedure, reason: str) -> Later:
    """Go on with the alternative of the step, or go back."""
    if branch := _branch(procedure, f"failed: {reason}"):
        return branch
    step = procedure.step
    procedure.note({}, state="failed", detail=shorten(reason), ended_at=procedure.now)
    return procedure.go_back(f"step {step.id} failed: {reason}")
