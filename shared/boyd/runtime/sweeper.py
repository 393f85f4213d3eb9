"""Recovers overdue steps and jobs: sends them again, or ends them.

Safe on every worker and beat at once: taking an overdue item postpones it in the same step, and
every remedy is fenced by epoch or attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from boyd import naming
from boyd.errors import ForeignKey, NewerFormat, StoreError, StoreUnavailable
from boyd.messaging.dispatcher import BatchHint
from boyd.models import Fence, Problem
from boyd.phases.observe import Batch
from boyd.runtime import ending
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import JobRunner
from boyd.store import Retry, StillRunning, Store, StuckBatch
from boyd.store.due import MOST_DUE
from boyd.text import queues

log = logging.getLogger("boyd.runtime")

#: Number of agents whose overdue items are read in one round trip.
_TOGETHER = 50
#: Seconds that an action which may run again waits for a worker of its queue: a supervisor or a
#: back-off needs so long to start another one.
RESTART = 30.0


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
        """Recover everything overdue, and return the number of items."""
        return self.recover(self._store.due.take())

    def recover(self, items: Mapping[str, str]) -> int:
        """Recover overdue items, by name with their proofs, and return their number."""
        for member, proof in items.items():
            try:
                self._recover(member, proof)
            except NewerFormat as error:
                log.warning("%s of agent %s was left alone: %s", member, self.agent_id, error)
            except (StoreUnavailable, ForeignKey):
                raise  # it concerns the other items, too
            except StoreError as error:
                log.error("cannot recover %s of agent %s: %s", member, self.agent_id, error)
            except Exception:
                log.exception("cannot recover %s of agent %s", member, self.agent_id)
        return len(items)

    def _recover(self, member: str, proof: str) -> None:
        kind, id = naming.parts(member)
        if kind == "repair":
            self._repair()
        elif kind == "expire":
            self._store.approvals.expire(self._engine.retention)
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
        if retry.epoch > 1 and self._end_if_acted(retry):
            return
        queue = retry.queue or (queues.ACT if retry.phase == "act" else queues.LOOP)
        served = self._engine.fleet.serving(queue, fresh=True)
        if served and retry.send:
            self._warn("resending %s of iteration %d", retry.phase, retry.iteration)
            self._engine.dispatcher.send(
                self.agent_id, retry.iteration, retry.epoch, retry.phase, retry.queue
            )
        elif not served and retry.phase == "act" and queue != queues.LOOP:
            self._settle_act(retry, queue)
        # Otherwise the first message is still queued.

    def _settle_act(self, retry: Retry, queue: str) -> None:
        """Resend an act phase whose queue has no worker to `loop`, where nothing is executed."""
        reason = queues.no_worker_message(queue)
        execution = self._store.executions.of_iteration(retry.iteration)
        epoch = self._store.iterations.settle_act(
            retry.iteration, retry.epoch, reason, execution, RESTART
        )
        if epoch:
            self._warn("giving up the action of iteration %d: %s", retry.iteration, reason)
            self._engine.dispatcher.send(self.agent_id, retry.iteration, epoch, "act", queues.LOOP)

    def _repair(self) -> None:
        """Repair what a half-failed script or a lost key left behind."""
        repair = self._store.iterations.repair_agent()
        if repair.lost is not None:
            self._warn("the record of iteration %d is lost", repair.lost[0])
            repair = self._store.iterations.repair_agent(
                ending.remains_of(self._store, *repair.lost)
            )
        if repair.ended is not None:
            self._engine.dispatcher.send(self.agent_id, *repair.ended, "complete")

    def _end_if_acted(self, retry: Retry) -> bool:
        """End an act phase whose action must not run again; False: the phase is to be resent."""
        ledger = self._store.executions
        execution = ledger.of_iteration(retry.iteration)
        if retry.phase == "complete":
            # The act phase before it may have lost all its workers.
            ledger.settle(execution)
        if retry.phase != "act":
            return False
        try:
            result = ledger.settle(execution, retry.iteration)
        except StillRunning:
            return True  # it is due again when the claim lapses
        if result is None:
            return False
        attempt_name = self._engine.attempt_name()
        entry = self._store.iterations.enter(
            retry.iteration, retry.epoch, "act", attempt_name, ("iteration", "decision")
        )
        if entry is None:
            return True
        fields = ending.action_fields(self._engine, entry.record, result)
        if self._store.iterations.leave(entry, "complete", fields):
            self._warn("the action of iteration %d: %s", retry.iteration, result.state)
            self._engine.dispatcher.send(self.agent_id, retry.iteration, retry.epoch, "complete")
        return True

    def _end(self, iteration: int, epoch: int) -> None:
        """End an iteration whose complete phase kills its workers, without hooks."""
        record = self._store.iterations.current()
        if record is None or record.iteration != iteration:
            return
        reason = record.error or "the worker of its complete phase was lost repeatedly"
        result = ending.failure_of(self.agent_id, record, self._store.clock.now(), reason)
        self._warn("ending iteration %d: %s", iteration, reason)
        ending.end(self._engine, Fence(iteration, epoch, ""), result)

    def _batch(self, number: int, proof: str) -> None:
        stuck = self._store.observers.retry_batch(number, proof)
        if stuck is None:
            return
        batch = Batch.from_json(stuck.payload)
        if stuck.lost:
            self._resend_singly(stuck, batch)
        elif stuck.waited > self._queue_timeout or not self._engine.fleet.serving(batch.queue):
            self._give_up(stuck, batch, f"no worker took it from queue {batch.queue!r}")
        elif stuck.send:
            hint = BatchHint(number, stuck.attempt, batch.queue)
            self._engine.dispatcher.fan_out(self.agent_id, stuck.iteration, [hint])

    def _resend_singly(self, stuck: StuckBatch, batch: Batch) -> None:
        """Resend the observers of a lost batch one by one, to isolate the one to blame."""
        worker = stuck.worker.partition("/")[0]
        if stuck.attempt > 1:
            self._give_up(stuck, batch, f"worker {worker} was lost while it ran")
            return
        singles = [Batch(queue=batch.queue, tasks=[task]) for task in batch.tasks]
        payloads = [single.to_json() for single in singles]
        placed = self._store.observers.replace_batch(
            stuck.iteration, stuck.batch, stuck.attempt, payloads
        )
        if placed:
            self._warn("worker %s was lost while observing; resending its batch", worker)
            first, attempt = placed
            hints = [BatchHint(first + i, attempt, batch.queue) for i in range(len(singles))]
            self._engine.dispatcher.fan_out(self.agent_id, stuck.iteration, hints)

    def _give_up(self, stuck: StuckBatch, batch: Batch, reason: str) -> None:
        fields = {
            f"fail:{task.index}": Problem(
                id=task.observer, phase="observe", error=reason, duration=stuck.waited * 1000
            ).to_json()
            for task in batch.tasks
        }
        end = self._store.observers.give_up_batch(stuck, fields)
        if end and end.open_batches == 0:
            self._engine.dispatcher.send(self.agent_id, stuck.iteration, end.epoch, "orient")

    def _warn(self, message: str, *values: object) -> None:
        log.warning(f"{self.agent_id}: {message}", *values)


def sweep_all(store: Store, sweepers: Sequence[Sweeper]) -> bool:
    """Recover everything overdue of all agents, and report whether more may be overdue.

    Raises:
        StoreError: the overdue items of an agent could not be recovered; those of others are.
    """
    more = False
    failed: StoreError | None = None
    for first in range(0, len(sweepers), _TOGETHER):
        some = sweepers[first : first + _TOGETHER]
        due = store.take_due(sweeper.agent_id for sweeper in some)
        for sweeper, items in zip(some, due, strict=True):
            if isinstance(items, StoreError):
                failed = items
                continue
            try:
                sweeper.recover(items)
            except StoreError as error:
                failed = error
            more |= len(items) >= MOST_DUE
    if failed:
        raise failed
    return more
