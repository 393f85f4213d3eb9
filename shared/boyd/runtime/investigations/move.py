"""Moves of investigations, one turn of the model or one tool call each.

Recent investigations are remembered, so that a move reads only new entries. The log alone counts:
it is read from its beginning if it lacks a remembered entry, as after Redis has lost the last ones.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import BoundedSemaphore
from typing import Literal

from boyd.errors import ConfigError, StoreError, StoreUnavailable
from boyd.llm import steps
from boyd.llm.conclusion import cost, fields_of
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.gateway import Gateway
from boyd.llm.messages import ModelRequest
from boyd.llm.model_errors import ContextFull, ModelError, Stopped
from boyd.llm.replies import SPOKEN, UNREAD
from boyd.llm.steps import InvestigationSteps
from boyd.llm.toolbox import Toolbox
from boyd.models import REVOKED, ActionPerformed, Fence, to_ms
from boyd.models.investigation import (
    Delta,
    Discarded,
    Ended,
    Entry,
    Investigation,
    Started,
    ToolObservation,
    Waits,
    Warned,
    redact_entry,
)
from boyd.runtime.ending import finish_investigation
from boyd.runtime.engine import Engine
from boyd.runtime.investigations.model_access import LiveOutput, StoredMeter
from boyd.runtime.investigations.tool_runner import ToolRunner, queue_of
from boyd.runtime.jobs.job_runner import Done, Fields, Later, requeue
from boyd.runtime.leases import persistently
from boyd.settings.model import ModelSettings
from boyd.store import LogChange, Stale, Written
from boyd.store.investigations import Investigations
from boyd.text import queues

#: The most investigations of an agent that are remembered; a long one takes a few megabytes.
MOST = 8


@dataclass(frozen=True)
class _Snapshot:
    """An investigation up to a log entry that stays: pieces of a turn are removed after it.

    Attributes:
        read_to: the id of that entry; empty before the first one.
    """

    conversation: Conversation
    steps: InvestigationSteps
    read_to: str = ""


class RecentInvestigations:
    """The last investigations of one agent, shared by its threads."""

    def __init__(self, store: Investigations) -> None:
        self._store = store
        self._snapshots: OrderedDict[str, _Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, id: str, toolbox: Toolbox, make: Callable[[Toolbox], InvestigationSteps]
    ) -> tuple[Conversation, InvestigationSteps]:
        """The conversation in the log, and its rules, which *make* makes for other tools.

        Raises:
            Unreadable: a later release wrote an entry.
        """
        snapshot = self._snapshots.get(id)
        if snapshot is None or snapshot.steps.toolbox != toolbox:
            snapshot = _Snapshot(Conversation(), make(toolbox))
        log = self._store.log_from(id, snapshot.read_to) if snapshot.read_to else []
        if log:
            log = log[1:]
        else:
            snapshot, log = _Snapshot(Conversation(), snapshot.steps), self._store.log(id)
        stays = len(log)
        while stays and isinstance(log[stays - 1].entry, Delta):
            stays -= 1
        if stays:
            settled = snapshot.conversation.with_log(log[:stays])
            snapshot = _Snapshot(settled, snapshot.steps, log[stays - 1].id)
        self._remember(id, snapshot)
        return snapshot.conversation.with_log(log[stays:]), snapshot.steps

    def forget_pieces(self, id: str) -> None:
        """Forget the pieces of turns of an investigation, which were removed from its log."""
        if snapshot := self._snapshots.get(id):
            snapshot.conversation.pieces.clear()

    def _remember(self, id: str, snapshot: _Snapshot) -> None:
        with self._lock:
            self._snapshots[id] = snapshot
            self._snapshots.move_to_end(id)
            if len(self._snapshots) > MOST:
                self._snapshots.popitem(last=False)


# A move reads the next step from the log and logs it before and after, so that any other worker
# can continue from there.

log = logging.getLogger("boyd.runtime")

Step = Literal["", "decides", "starts"]

#: Seconds between checks of an approval that nothing reported.
RECHECK = 60.0
#: Seconds between attempts to get a thread that may wait for a model.
BUSY = 1.0
#: Seconds between checks whether a halted model may go on.
HALTED = 5.0
#: How often a call may be handed over, at once each time: its model may try another one.
MAX_CALL_HANDOVERS = 4
#: The field of the job with the call and the number of its handovers.
_HANDOVERS = "handedOver"


class Move:
    """At most one turn or one tool call, with the quick steps around it."""

    def __init__(
        self,
        engine: Engine,
        settings: ModelSettings,
        thinking: BoundedSemaphore,
        recent: RecentInvestigations,
        id: str,
        fence: Fence,
        job: Fields,
    ) -> None:
        """Read the log; *job* has the fields of the job as entered.

        Raises:
            Stale: the investigation no longer exists.
        """
        self._engine = engine
        self._settings = settings
        self._thinking = thinking
        self._store = engine.store.investigations
        self._id = id
        self._fence = fence
        self._job = job
        self._queue = job.get("queue") or queues.ACT
        investigation = self._store.get(id)
        if investigation is None:
            raise Stale(f"investigation {id} is gone")
        self._investigation = investigation
        self._version = investigation.version
        self._recent = recent
        self._toolbox = Toolbox(engine.agent.host, investigation.tools)
        self._log, self._steps = recent.read(
            id,
            self._toolbox,
            partial(InvestigationSteps, engine.agent.info.name, settings, investigation),
        )
        with suppress(ConfigError):
            settings.api_key()  # registers it as a secret
        self._tools = ToolRunner(engine, id, fence, self._log)
        self._moved = False

    def run(self) -> Done | Later:
        """Continue until another worker has to take over, or the investigation has ended.

        Raises:
            Stale: it was stopped, or another worker owns it.
        """
        while True:
            now = self._engine.store.clock.now()
            following = self._cancellation(now) or self._steps.next(self._log, now)
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

    def fail(self, reason: str) -> Done:
        """End the investigation with its findings so far, for a reason other than the model."""
        if self._log.ended is None:
            self._settle()
            now = self._engine.store.clock.now()
            self._write(self._steps.conclusion.stop(self._log, "error", reason, now))
        assert self._log.ended is not None, "the log has just been ended"
        return self._over(self._log.ended)

    def _cancellation(self, now: datetime) -> steps.Write | None:
        """The end of a cancelled or revoked investigation, unless a running call delays it."""
        reason = self._reason_to_end(self._investigation)
        if reason is None or self._log.ended is not None or not self._settle():
            return None
        return steps.Write(self._steps.conclusion.stop(self._log, "cancelled", reason, now))

    def _reason_to_end(self, investigation: Investigation) -> str | None:
        """Return the reason if it was cancelled, or the agent's right to act revoked."""
        if investigation.cancelled_by is not None:
            return f"cancelled by {investigation.cancelled_by}"
        reason = self._engine.store.halt()
        return reason if reason and reason.startswith(REVOKED) else None

    def _settle(self) -> bool:
        """Log the result of a started call if it is known; return False while it is executing."""
        called = self._log.open[0] if self._log.open else None
        if called is None or not called.started:
            return True
        if called.approval_id and not self._tools.withdraw(called.approval_id):
            return False
        observation = self._tools.settle(called)
        if observation is not None:
            self._write(self._steps.add_result(self._log, observation))
        return True

    def _think(self, request: ModelRequest) -> Later | None:
        """Request a turn from the model if a thread may wait for it."""
        if self._moved or self._queue != queues.THINK:
            return requeue(queues.THINK)
        if self._engine.store.halt():
            return Later(HALTED)
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
        """The entries of the model's next turn, or of its failure."""
        live = LiveOutput(
            self._piece, self._log.step + 1, self._steps.seconds_left(self._log, self._now())
        )
        meter = StoredMeter(self._engine.store.model_usage, self._settings)
        key = self._settings.api_key()
        try:
            with Gateway(self._settings, key, meter=meter) as gateway, live:
                turn = gateway.turn(request, live)
        except Stopped as stopped:
            return self._after_stop(stopped, live.is_late), ""
        except ContextFull as error:
            return self._steps.add_context_full(self._log, error, self._now()), ""
        except ModelError as error:
            reason = f"the model did not answer: {error}"
            return self._steps.conclusion.stop(self._log, "error", reason, self._now(), error), ""
        return self._steps.add_turn(self._log, turn), "decides"

    def _clear(self) -> None:
        """Discard the live output of a turn that lost its worker, and older pieces."""
        if self._log.shown:
            lost = Discarded(step=self._log.step + 1, why="its worker was lost")
            self._write([lost])
        self._store.forget(self._id, self._log.pieces)
        self._recent.forget_pieces(self._id)

    def _now(self) -> datetime:
        return self._engine.store.clock.now()

    def _after_stop(self, stopped: Stopped, is_late: bool) -> Sequence[Entry]:
        """The entries after a stopped turn: cancelled, out of time, or halted until later.

        Raises:
            Stale: another worker owns it.
        """
        investigation, now = self._store.get(self._id), self._now()
        if investigation is not None and (reason := self._reason_to_end(investigation)):
            return self._steps.conclusion.stop(self._log, "cancelled", reason, now, stopped)
        if is_late:
            reason = "it ran out of time"
            return self._steps.conclusion.stop(self._log, "deadline", reason, now, stopped)
        ours = investigation is not None and investigation.version == self._version
        if ours and (reason := self._engine.store.halt()):
            return [Discarded(step=self._log.step + 1, why=reason)]
        raise self._stale()

    def _use(self, called: ToolCallRecord) -> Later | None:
        """Execute a tool, or log the result of its approval."""
        if called.approval_id is not None:
            return self._take_up(called, called.approval_id)
        tool = self._toolbox.get(called.call.name)
        if tool is None:  # a worker that has the tool started it
            self._write(self._steps.add_result(self._log, self._tools.loss_observation(called)))
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
        reason = self._log.rounds[-1].turn.text
        came = self._tools.execute(tool, called, again, reason)
        if isinstance(came, ToolObservation):
            self._write(self._steps.add_result(self._log, came))
            return None
        self._write([Waits(call_id=called.call.id, approval_id=came)], "waiting")
        return self._wait(came)

    def _wait(self, approval_id: str) -> Later:
        """Check the approval again later, on a queue whose workers need only Redis."""
        return Later(self._engine.recheck_after(approval_id, RECHECK), queue=queues.THINK)

    def _elsewhere(self, called: ToolCallRecord, queue: str) -> Later | None:
        """Hand the call over to a worker of *queue*, if there is one."""
        which, _, number = self._job.get(_HANDOVERS, "").partition(" ")
        times = int(number) if which == called.call.id else 0
        if times < MAX_CALL_HANDOVERS and self._engine.fleet.serving(queue):
            return requeue(queue, {_HANDOVERS: f"{called.call.id} {times + 1}"})
        reason = f"No live worker consumes queue {queue!r}"
        if times >= MAX_CALL_HANDOVERS:
            reason = (
                f"Not called: the workers disagree about the queue of the tool "
                f"{called.call.name!r}. The call was handed over {MAX_CALL_HANDOVERS} times, "
                f"last to {queue!r}."
            )
        now = self._engine.store.clock.now()
        self._write(self._steps.add_failure(self._log, called, reason, now))
        return None

    def _take_up(self, called: ToolCallRecord, approval_id: str) -> Later | None:
        """Log the result of an answered approval."""
        observation = self._tools.approval_observation(called, approval_id)
        if observation is None:
            return self._wait(approval_id)
        self._write(self._steps.add_result(self._log, observation), "resumed")
        return None

    def _piece(self, entries: Sequence[Entry]) -> bool:
        """Show pieces of a turn; return False if another worker owns it, or the model is halted."""
        try:
            if self._engine.store.halt():
                return False
            written = self._store.write(self._id, self._fence, None, LogChange(entries=entries))
        except StoreUnavailable:
            return True  # a turn is expensive, and only its end counts
        if written is None:
            return False
        self._log = self._log.after(entries)
        return True

    def _write(self, entries: Sequence[Entry], event: str = "", step: Step = "") -> Written | None:
        """Append redacted entries to the log; return None if a cancellation forbids the tool.

        Raises:
            Stale: another worker owns it.
        """
        at = to_ms(self._now())
        safe = [redact_entry(self._log.with_duration(entry, at)) for entry in entries]
        after = self._log.after(safe, at)
        keep = self._engine.retention.of_runs()[0] if after.ended else None
        kind = "ended" if after.ended else event
        change = LogChange(safe, self._fields(after), kind, keep, step)
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
        """Report shortcomings of the model server in the log and to `boyd doctor`."""
        for entry in entries:
            if isinstance(entry, Warned) and entry.what in (SPOKEN, UNREAD):
                log.warning("investigation %s: %s", self._id, entry.text)
                with suppress(StoreError):
                    self._engine.store.model_usage.note_text_call(to_ms(self._now()))

    def _check_cancelled(self, step: Step) -> None:
        """Accept a refused write only if it was to start a tool and a cancellation refused it.

        Raises:
            Stale: another worker owns it.
        """
        investigation = self._store.get(self._id)
        if (
            investigation is None
            or investigation.cancelled_by is None
            or investigation.version != self._version
        ):
            raise self._stale()
        if step != "starts":
            raise self._stale()
        self._investigation = investigation

    def _stale(self) -> Stale:
        return Stale(f"another worker owns investigation {self._id}")

    def _fields(self, log: Conversation) -> Mapping[str, str]:
        """The changed fields of its hash; an empty value removes the field."""
        spent = cost(log.total.usage, self._settings.prices)
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

    def _over(self, entry: Ended) -> Done:
        return finish_investigation(
            self._engine, self._id, self._investigation.source, entry, self._actions_performed()
        )

    def _actions_performed(self) -> list[ActionPerformed]:
        return [
            ActionPerformed(
                action=called.call.name,
                success=called.observation.status == "succeeded",
                description=called.observation.output[:500],
            )
            for called in self._log.finished_calls
            if called.observation is not None
            and called.observation.status != "skipped"
            and called.call.name in self._toolbox
        ]
