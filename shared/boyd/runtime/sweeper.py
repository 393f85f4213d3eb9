"""Recovery: finds what stopped moving and sends it again, or ends it.

Safe on every worker and beat at once: taking what is due pushes it forward in the same step, and
every remedy is fenced by epoch or attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from boyd import naming, queues
from boyd.errors import StoreError
from boyd.messaging.dispatcher import BatchHint
from boyd.models import Problem
from boyd.phases.planning import Batch
from boyd.runtime import ending
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.runner import JobRunner
from boyd.store import Retry, StillRunning, Store, StuckBatch, dump_results
from boyd.store.batches import MOST_DUE

log = logging.getLogger("boyd.runtime")

#: Agents whose due work is asked for in one round trip.
_TOGETHER = 50


class Sweeper:
    """Recovery for one agent."""

    def __init__(self, engine: Engine, jobs: JobRunner, queue_timeout: float) -> None:
        """Give up a batch that no worker took within *queue_timeout* seconds."""
        self._engine = engine
        self._jobs = jobs
        self._store = engine.store
        self.agent_id = engine.agent.id
        self._queue_timeout = queue_timeout

    def sweep(self) -> int:
        """Look after everything that passed its deadline; how much that was."""
        return self.look_after(self._store.due.take())

    def look_after(self, taken: Mapping[str, str]) -> int:
        """Look after what was taken; how much that was."""
        for member, proof in taken.items():
            try:
                self._look_after(member, proof)
            except StoreError:
                raise
            except Exception:
                log.exception("%s of agent %s cannot be looked after", member, self.agent_id)
        return len(taken)

    def _look_after(self, member: str, proof: str) -> None:
        kind, id = naming.parts(member)
        if kind == "mend":
            self._mend()
        elif kind == "phase":
            self._phase(proof)
        elif kind == "batch":
            self._batch(int(id), proof)
        else:
            self._jobs.retry(member, proof)

    def _phase(self, proof: str) -> None:
        retry = self._store.iterations.retry(proof)
        if retry is None:
            return
        if retry.finish:
            self._end(retry.iteration, retry.epoch)
            return
        if retry.epoch > 1 and self._has_acted(retry):
            return
        queue = retry.queue or (queues.ACT if retry.phase == "act" else queues.LOOP)
        served = self._engine.fleet.serving(queue, fresh=True)
        if served and retry.send:
            self._say("%s of iteration %d is sent again", retry.phase, retry.iteration)
            self._engine.dispatcher.send(
                self.agent_id, retry.iteration, retry.epoch, retry.phase, retry.queue
            )
        elif not served and retry.phase == "act" and queue != queues.LOOP:
            self._settle_act(retry, queue)
        # Else the message would only lie beside the first one.

    def _settle_act(self, retry: Retry, queue: str) -> None:
        """End the act phase that waits for a worker that is not there; the loop must not wait."""
        why = queues.unserved(queue)
        epoch = self._store.iterations.settle_act(retry.iteration, retry.epoch, why)
        if epoch:
            self._say("the action of iteration %d is given up: %s", retry.iteration, why)
            self._engine.dispatcher.send(self.agent_id, retry.iteration, epoch, "act", queues.LOOP)

    def _mend(self) -> None:
        """Make due what a script that failed halfway, or a lost key, has left behind."""
        mended = self._store.iterations.mend()
        if mended.lost is not None:
            self._say("the record of iteration %d is gone", mended.lost[0])
            mended = self._store.iterations.mend(ending.lost(self._store, *mended.lost))
        if mended.ended is not None:
            self._engine.dispatcher.send(self.agent_id, *mended.ended, "complete")

    def _has_acted(self, retry: Retry) -> bool:
        """Leave an act phase whose action no other worker may execute; False: it goes on."""
        ledger = self._store.ledger
        execution = ledger.of_iteration(retry.iteration)
        if retry.phase == "complete":
            # It has left an act phase that lost every worker, if it comes from one.
            ledger.settle(execution)
        if retry.phase != "act":
            return False
        try:
            result = ledger.settle(execution, retry.iteration)
        except StillRunning:
            return True  # it is due again when the claim lapses
        if result is None:
            return False
        token = self._engine.token()
        entry = self._store.iterations.enter(
            retry.iteration, retry.epoch, "act", token, ("iteration",)
        )
        fields = {"results": dump_results([result])}
        if entry is not None and self._store.iterations.leave(entry, "complete", fields):
            self._say("the action of iteration %d is %s", retry.iteration, result.state)
            self._engine.dispatcher.send(self.agent_id, retry.iteration, retry.epoch, "complete")
        return True

    def _end(self, iteration: int, epoch: int) -> None:
        """End an iteration whose complete phase nobody survives: without hooks."""
        record = self._store.iterations.current()
        if record is None or record.iteration != iteration:
            return
        why = record.error or "complete lost its worker again and again"
        result = ending.ruined(self.agent_id, record, self._store.clock.now(), why)
        self._say("iteration %d is ended: %s", iteration, why)
        ending.end(self._engine, iteration, epoch, "", result)

    def _batch(self, number: int, proof: str) -> None:
        stuck = self._store.batches.retry(number, proof)
        if stuck is None:
            return
        batch = Batch.from_json(stuck.payload)
        if stuck.lost:
            self._lost(stuck, batch)
        elif stuck.waited > self._queue_timeout or not self._engine.fleet.serving(batch.queue):
            self._give_up(stuck, batch, f"no worker took it from queue {batch.queue!r}")
        elif stuck.send:
            hint = BatchHint(number, stuck.attempt, batch.queue)
            self._engine.dispatcher.fan_out(self.agent_id, stuck.iteration, [hint])

    def _lost(self, stuck: StuckBatch, batch: Batch) -> None:
        """Send a lost batch's observers one by one, so that only the one to blame is left out."""
        worker = stuck.worker.partition("/")[0]
        if stuck.attempt > 1:
            self._give_up(stuck, batch, f"worker {worker} was lost while it ran")
            return
        singles = [Batch(queue=batch.queue, tasks=[task]) for task in batch.tasks]
        payloads = [single.to_json() for single in singles]
        placed = self._store.batches.replace(stuck.iteration, stuck.batch, stuck.attempt, payloads)
        if placed:
            self._say("worker %s was lost while observing; its work is sent again", worker)
            first, attempt = placed
            hints = [BatchHint(first + i, attempt, batch.queue) for i in range(len(singles))]
            self._engine.dispatcher.fan_out(self.agent_id, stuck.iteration, hints)

    def _give_up(self, stuck: StuckBatch, batch: Batch, why: str) -> None:
        fields = {
            f"fail:{task.index}": Problem(
                id=task.observer, phase="observe", error=why, duration=stuck.waited * 1000
            ).to_json()
            for task in batch.tasks
        }
        signed = self._store.batches.complete_batch(
            stuck.iteration, stuck.batch, stuck.attempt, stuck.worker, fields
        )
        if signed and signed[0] == 0:
            self._engine.dispatcher.send(self.agent_id, stuck.iteration, signed[1], "orient")

    def _say(self, message: str, *values: object) -> None:
        log.warning(f"{self.agent_id}: {message}", *values)


def sweep_all(store: Store, sweepers: Sequence[Sweeper]) -> bool:
    """Look after everything that passed its deadline, of all agents; whether more may be due.

    Raises:
        StoreError: of one agent it could not be taken; the others have been looked after.
    """
    more = False
    failed: StoreError | None = None
    for first in range(0, len(sweepers), _TOGETHER):
        some = sweepers[first : first + _TOGETHER]
        found = store.take_due(sweeper.agent_id for sweeper in some)
        for sweeper, taken in zip(some, found, strict=True):
            if isinstance(taken, StoreError):
                failed = taken
                continue
            sweeper.look_after(taken)
            more |= len(taken) >= MOST_DUE
    if failed:
        raise failed
    return more
