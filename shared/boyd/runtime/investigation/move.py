"""One move of an investigation: a turn of the model, or a tool that it asked for (T1, T2, T7).

It reads from the log what is to be done, and writes there what it does, before and after, so that
any other worker can go on from it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from threading import BoundedSemaphore
from typing import Literal

from boyd import queues
from boyd.errors import ConfigError, StoreError, StoreUnavailable
from boyd.llm import budget, steps
from boyd.llm.conclusion import fields_of
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.gateway import Gateway
from boyd.llm.messages import ModelRequest
from boyd.llm.model_errors import ContextFull, ModelError, Stopped
from boyd.llm.replies import SPOKEN, UNREAD
from boyd.llm.steps import InvestigationSteps
from boyd.llm.toolbox import Toolbox
from boyd.models import ActionPerformed, RunResult, RunStatus, to_ms
from boyd.models.investigation import (
    Discarded,
    Ended,
    Entry,
    Started,
    ToolObservation,
    Waits,
    Warned,
    redacted,
)
from boyd.models.investigation import Ending as InvestigationEnding
from boyd.runtime.engine import Engine
from boyd.runtime.investigation import handover
from boyd.runtime.investigation.live_output import Live
from boyd.runtime.investigation.model_access import StoredMeter
from boyd.runtime.investigation.tool_runner import ToolRunner, queue_of
from boyd.runtime.jobs.runner import Done, Fields, Later
from boyd.runtime.leases import persistently
from boyd.runtime.triggers import Launcher
from boyd.settings.model import ModelSettings
from boyd.store import Ending, Fence, LogChange, Stale, Written

log = logging.getLogger("boyd.runtime")

Step = Literal["", "decides", "starts"]

#: Seconds after which an investigation looks again for what it waits for, if nothing wakes it.
LOOK_AGAIN = 60.0
#: Seconds until it looks again for a thread that may think.
BUSY = 1.0
#: What a run comes to whose investigation ended so; it has failed otherwise.
_RUN_ENDS: dict[InvestigationEnding, RunStatus] = {
    "final_answer": "completed",
    "final_synthesis": "completed",
    "cancelled": "cancelled",
}


class Move:
    """What one task does: at most one turn or one tool, and what takes no time around it."""

    def __init__(
        self,
        engine: Engine,
        settings: ModelSettings,
        thinking: BoundedSemaphore,
        id: str,
        fence: Fence,
        job: Fields,
    ) -> None:
        """Read how far it is; *job* is what its job said when it was entered.

        Raises:
            Stale: there is no such investigation.
        """
        self._engine = engine
        self._settings = settings
        self._thinking = thinking
        self._store = engine.store.investigations
        self._id = id
        self._fence = fence
        self._job = job
        self._queue = job.get("queue") or queues.ACT
        found = self._store.get(id)
        if found is None:
            raise Stale(f"investigation {id} is gone")
        self._found = found
        self._version = found.version
        self._log = Conversation.of(self._store.log(id))
        self._toolbox = Toolbox(engine.agent.host, found.tools)
        self._steps = InvestigationSteps(engine.agent.info.name, settings, found, self._toolbox)
        with suppress(ConfigError):
            settings.api_key()  # from now on it is known as a secret
        self._tools = ToolRunner(engine, id, fence, self._log.askers)
        self._moved = False

    def run(self) -> Done | Later:
        """Go on until something takes time elsewhere, or everything is over.

        Raises:
            Stale: it was stopped, or is somebody else's by now.
        """
        while True:
            now = self._engine.store.clock.now()
            following = self._cancelled(now) or self._steps.next(self._log, now)
            later: Later | None = None
            match following:
                case steps.Finish(ended):
                    return self._over(ended)
                case steps.Write(entries):
                    self._write(entries)
                case steps.Think(request):
                    later = self._think(request)
                case steps.Use(called):
                    later = self._use(called)
            if later is not None:
                return later

    def fail(self, why: str) -> Done:
        """End it for a reason that is not the model's, with what was found."""
        if self._log.ended is None:
            self._settle()
            now = self._engine.store.clock.now()
            self._write(self._steps.ends.stopped(self._log, "error", why, now))
        assert self._log.ended is not None, "what was stopped has ended"
        return self._over(self._log.ended)

    def _cancelled(self, now: datetime) -> steps.Write | None:
        """The end of a cancelled investigation, unless it has to wait for what cannot be undone."""
        by = self._found.cancelled_by
        if by is None or self._log.ended is not None or not self._settle():
            return None
        ends = self._steps.ends
        return steps.Write(ends.stopped(self._log, "cancelled", f"{by} cancelled it", now))

    def _settle(self) -> bool:
        """Take up what is known of a call that was begun; False: it is being executed."""
        called = self._log.open[0] if self._log.open else None
        if called is None or not called.started:
            return True
        if called.approval_id and not self._tools.withdraw(called.approval_id):
            return False
        known = self._tools.known(called)
        if known is not None:
            self._write(self._steps.result(self._log, known))
        return True

    def _think(self, request: ModelRequest) -> Later | None:
        """Ask the model for a turn, when a thread may wait for it."""
        if self._moved or self._queue != queues.THINK:
            return Later(0, queue=queues.THINK)
        if not self._thinking.acquire(blocking=False):
            return Later(BUSY)
        self._moved = True
        try:
            self._clear()
            entries, step = self._turn(request)
        finally:
            self._thinking.release()
        self._write(entries, step=step)
        return None

    def _turn(self, request: ModelRequest) -> tuple[Sequence[Entry], Step]:
        """What the next turn of the model adds, or that there is none."""
        live = Live(self._piece, self._log.step + 1, self._steps.left(self._log, self._now()))
        meter = StoredMeter(self._engine.store.usage, self._settings.model)
        key = self._settings.api_key()
        try:
            with Gateway(self._settings, key, meter=meter) as gateway, live:
                turn = gateway.turn(request, live)
        except Stopped as stopped:
            return self._unwanted(stopped, live.is_late), ""
        except ContextFull as error:
            return self._steps.full(self._log, error, self._now()), ""
        except ModelError as error:
            why = f"the model gave no turn: {error}"
            return self._steps.ends.stopped(self._log, "error", why, self._now(), error), ""
        return self._steps.said(self._log, turn), "decides"

    def _clear(self) -> None:
        """Take back what was shown of a turn that lost its worker, and forget earlier pieces."""
        if self._log.shown:
            lost = Discarded(step=self._log.step + 1, why="its worker was lost")
            self._write([lost])
        self._store.forget(self._id, self._log.pieces)

    def _now(self) -> datetime:
        return self._engine.store.clock.now()

    def _unwanted(self, stopped: Stopped, is_late: bool) -> Sequence[Entry]:
        """What it adds that a turn was given up: it was cancelled, or its time is up.

        Raises:
            Stale: it is somebody else's now.
        """
        found, now = self._store.get(self._id), self._now()
        if found is not None and found.cancelled_by is not None:
            why = f"{found.cancelled_by} cancelled it"
            return self._steps.ends.stopped(self._log, "cancelled", why, now, stopped)
        if is_late:
            why = "its time was up"
            return self._steps.ends.stopped(self._log, "deadline", why, now, stopped)
        raise Stale(f"investigation {self._id} is not ours any more")

    def _use(self, called: ToolCallRecord) -> Later | None:
        """Execute a tool, or take up what has become of it."""
        if called.approval_id is not None:
            return self._take_up(called, called.approval_id)
        tool = self._toolbox.get(called.call.name)
        if tool is None:  # it was begun by a worker that has it
            self._write(self._steps.result(self._log, self._tools.lost(called)))
            return None
        queue = queue_of(tool)
        if self._moved or (self._queue != queue and not called.started):
            return self._elsewhere(called, queue)
        self._moved = True
        again = called.started
        if not again:
            written = self._write([Started(call_id=called.call.id)], step="starts")
            if written is None:
                return None  # it was cancelled meanwhile
            again = written.restarted
            called = self._log.open[0]
        said = self._log.rounds[-1].turn.text
        came = self._tools.execute(tool, called, again, said)
        if isinstance(came, ToolObservation):
            self._write(self._steps.result(self._log, came))
            return None
        self._write([Waits(call_id=called.call.id, approval_id=came)], "waiting")
        return self._wait(came)

    def _wait(self, approval_id: str) -> Later:
        """Look again when it is worth it, on a queue that needs nothing but Redis."""
        return Later(self._tools.patience(approval_id, LOOK_AGAIN), queue=queues.THINK)

    def _elsewhere(self, called: ToolCallRecord, queue: str) -> Later | None:
        """Let a worker of *queue* do it, if there is one that would."""
        id, name = called.call.id, called.call.name
        times = handover.times(self._job, id)
        if times < handover.MOST and self._engine.fleet.serving(queue):
            return Later(0, handover.counted(id, times + 1), queue)
        why = f"No live worker consumes queue {queue!r}"
        if times >= handover.MOST:
            why = handover.in_vain(name, queue)
        now = self._engine.store.clock.now()
        self._write(self._steps.failed(self._log, called, why, now))
        return None

    def _take_up(self, called: ToolCallRecord, approval_id: str) -> Later | None:
        """What a person has said, and what came of it."""
        observation = self._tools.decided(called, approval_id)
        if observation is None:
            return self._wait(approval_id)
        self._write(self._steps.result(self._log, observation), "resumed")
        return None

    def _piece(self, entries: Sequence[Entry]) -> bool:
        """Show pieces of a turn; whether the investigation is still ours."""
        try:
            written = self._store.write(self._id, self._fence, None, LogChange(entries=entries))
        except StoreUnavailable:
            return True  # a turn is dear, and what it says at the end is what counts
        if written is None:
            return False
        self._log = self._log.after(entries)
        return True

    def _write(self, entries: Sequence[Entry], event: str = "", step: Step = "") -> Written | None:
        """Write to the log, redacted, and take in what was written (T8).

        Returns:
            None when a tool is not to be started: it was cancelled, which is known from then on.

        Raises:
            Stale: it is not ours any more.
        """
        at = to_ms(self._now())
        safe = [redacted(self._log.timed(entry, at)) for entry in entries]
        after = self._log.after(safe, at)
        keep = self._engine.retention.of_runs()[0] if after.ended else None
        told = "ended" if after.ended else event
        change = LogChange(safe, self._fields(after), told, keep, step)
        written = persistently(
            lambda: self._store.write(self._id, self._fence, self._version, change)
        )
        if written is None:
            self._check_cancelled(step)
            return None
        self._log, self._version = after, written.version
        self._report(safe)
        return written

    def _report(self, entries: Sequence[Entry]) -> None:
        """Tell those who run the model's server what it lacks: in the log, and to `boyd doctor`."""
        for entry in entries:
            if isinstance(entry, Warned) and entry.what in (SPOKEN, UNREAD):
                log.warning("investigation %s: %s", self._id, entry.text)
                with suppress(StoreError):
                    self._engine.store.usage.spoken(to_ms(self._now()))

    def _check_cancelled(self, step: Step) -> None:
        """Check that what was not written is a start, not written because it was cancelled.

        Raises:
            Stale: it is not ours any more.
        """
        found = self._store.get(self._id)
        if step != "starts" or found is None or found.cancelled_by is None:
            raise Stale(f"investigation {self._id} is not ours any more")
        if found.version != self._version:
            raise Stale(f"investigation {self._id} is not ours any more")
        self._found = found

    def _fields(self, log: Conversation) -> Mapping[str, str]:
        """What changes in its hash; an empty value takes the field away."""
        spent = budget.cost(log.total.usage, self._settings.prices)
        waiting = log.open[0].approval_id if log.open else None
        status = "ended" if log.ended else "waiting" if waiting else "running"
        fields = {
            "status": status,
            "counters": log.total.patched({"cost": spent}).to_json(),
            "used": json.dumps(log.tools),
            "reflection": json.dumps(self._steps.steering.stats(log)),
            "approvalId": waiting or "",
        }
        return fields | (fields_of(log.ended) if log.ended else {})

    def _over(self, ended: Ended) -> Done:
        return over(self._engine, self._id, self._found.source, ended, self._performed())

    def _performed(self) -> list[ActionPerformed]:
        return [
            ActionPerformed(
                action=called.call.name,
                success=called.observation.status == "succeeded",
                description=called.observation.output[:500],
            )
            for called in self._log.done
            if called.observation is not None
            and called.observation.status != "skipped"
            and called.call.name in self._toolbox
        ]


def over(
    engine: Engine,
    id: str,
    source: str,
    ended: Ended,
    performed: list[ActionPerformed],
    fields: Mapping[str, str] | None = None,
) -> Done:
    """The end of the job: with the run that it was for, and the iteration that waits for it."""
    answered = _RUN_ENDS.get(ended.ending) == "completed"
    runs: list[Ending] = []
    run = engine.store.runs.get(id) if source == "run" else None
    # A conversation may go on after its run has ended; what the run came to stays as it was.
    if run is not None and run.status == "investigating":
        result = RunResult(
            summary=ended.text,
            findings=[ended.text],
            actions_performed=performed,
            loop_iterations=0,
            duration=0.0,
        )
        runs.append((id, _RUN_ENDS.get(ended.ending, "failed"), result))
    if source.startswith("plugin:"):
        mode = engine.agent.settings.mode
        Launcher(engine.store, engine.dispatcher, mode).look_again("investigation")
    keep = engine.retention.of_runs()[0] / 1000
    return Done("succeeded" if answered else "failed", keep, fields or {}, runs)
