"""Goes through the steps of procedures: a job each, on the queue of the current step's action.

The job begins in the step that starts the procedure. Its id is that of the procedure's execution.
"""

from __future__ import annotations

from boyd import naming
from boyd.models import Fence
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, Later
from boyd.runtime.procedures.procedure_move import ProcedureMove
from boyd.store import StuckJob, read_procedure

#: Seconds between attempts after an unexpected error, and their number.
_RETRY = 60.0
_TRIES = 5


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
        if tries < _TRIES:
            return Later(_RETRY, {"tries": str(tries)})
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
