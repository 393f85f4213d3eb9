"""Makes the next move of a procedure: one step, one check, or one compensation.

Each move reads the record, does at most one thing through the ledger, and records the outcome. It
may be repeated after its worker was lost: the ledger knows what was executed.
"""

from __future__ import annotations

from boyd import naming
from boyd.models import Fence, ProcedureRecord
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import (
    Done,
    Fields,
    JobFailure,
    JobHandler,
    Later,
    notify_plugins,
)
from boyd.runtime.procedures.fenced_procedure import FencedProcedure
from boyd.runtime.procedures.interruptions import (
    cancel,
    give_up_step,
    go_back_unless_busy,
    resume,
)
from boyd.runtime.procedures.step_moves import go_forward
from boyd.runtime.procedures.undo_moves import compensate, resume_compensation
from boyd.store import StuckJob, read_procedure
from boyd.store.executions import KEEP
from boyd.text import queues

#: Seconds between attempts after an unexpected error, and their number.
_RETRY_JOB = 60.0
_JOB_TRIES = 5


def _move(procedure: FencedProcedure) -> Done | Later:
    """Make the move, and return how the job continues.

    Raises:
        StillRunning: another live worker executes the step.
    """
    record, fields = procedure.record, procedure.fields
    if record.has_ended:
        return _notify(procedure)
    if error := fields.get("failing"):
        return procedure.wait_for_person(error, {"failing": ""})
    if fields.get("cancelled"):
        return cancel(procedure) or go_forward(procedure)
    if record.state == "stopped":
        return _notify(procedure)
    is_going_back = record.state == "compensating"
    if answer := fields.get("resumed"):
        go_on = resume_compensation if is_going_back else resume
        return go_on(procedure, repeat=answer == "repeat")
    if is_going_back:
        return compensate(procedure)
    if procedure.is_past_last_step:
        return procedure.end("succeeded", "")
    if procedure.now >= record.until and procedure.progress.state != "asked":
        late = go_back_unless_busy(procedure, "the procedure took too long")
        if late is not None:
            return late
    return go_forward(procedure)


def _notify(procedure: FencedProcedure) -> Done | Later:
    """Notify people that it was stopped or has failed; each plugin does so at least once."""
    record, fields = procedure.record, procedure.fields
    if fields.get("tell"):
        # It may be stopped several times.
        at = fields.get("endedAt") or fields.get("stoppedAt", "")
        notice = notify_plugins(procedure.engine, "on_procedure", fields, at, procedure=record)
        if notice and notice.seconds:
            return notice
    return _end_job(record) if record.has_ended else Later(KEEP, {"tell": ""})


def _give_up(procedure: FencedProcedure, reason: str) -> Done | Later:
    """Fail it after its workers were lost repeatedly; nothing is undone."""
    if procedure.record.has_ended:
        return _end_job(procedure.record)
    if not procedure.is_past_last_step:
        give_up_step(procedure, reason)
    return procedure.end("failed", f"{reason}; nothing was undone")


def _end_job(record: ProcedureRecord) -> Done:
    return Done("succeeded" if record.state == "succeeded" else "failed", KEEP)


class ProcedureHandler(JobHandler):
    """The procedures of one agent.

    The job of a procedure begins in the step that starts it, and has the id of its execution.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds that one step may take."""
        return self._engine.longest_action_limit()

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make the next move."""
        return _move(FencedProcedure(self._engine, read_procedure(fields), fence, fields))

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
        return _give_up(FencedProcedure(self._engine, record, fence, {}), stuck.reason)
