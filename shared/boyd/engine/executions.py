"""Executes what a person has approved: on a worker, once, through the one path (A4, A6, A12)."""

from __future__ import annotations

import logging
import uuid

from boyd import queues
from boyd.engine.engine import PUT_BACK_MARGIN, Engine
from boyd.engine.ledger import LeasedLedger
from boyd.errors import StoreUnavailable
from boyd.loop import act
from boyd.loop.context import PhaseContext, describe
from boyd.models import (
    ActionPerformed,
    ActionResult,
    ApprovalItem,
    RunResult,
    RunStatus,
)
from boyd.store import Fence, Stale, StillRunning, StuckExecution, fingerprint

log = logging.getLogger("boyd.engine")


class Executions:
    """The executions of one agent's approved items, as workers take them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._approvals = engine.store.approvals

    def execute(self, approval_id: str, attempt: int) -> None:
        """Execute an approved item, if it is queued under this attempt."""
        worker = f"{self._engine.settings.worker}/{uuid.uuid4().hex[:8]}"
        item = self._approvals.enter(approval_id, attempt, worker)
        if item is None:
            return
        action = self._engine.agent.host.actions.get(item.action_id)
        limit = self._engine.settings.phase_limit + (action.timeout if action else 0.0)

        def renew() -> bool:
            return self._approvals.renew(approval_id, attempt, worker)

        with self._engine.leases.hold(renew, limit):
            try:
                result = self._perform(item, Fence(approval_id, attempt, worker), attempt > 1)
            except StillRunning as running:
                wait = running.seconds + PUT_BACK_MARGIN
                self._approvals.put_back(approval_id, attempt, worker, wait)
                return
            except (StoreUnavailable, Stale):
                raise  # the sweeper sends it again, or has done so
            except Exception as error:
                log.exception("the execution of approval %s failed", approval_id)
                result = act.failed(item.action_id, describe(error))
        self._end(item, attempt, worker, result)

    def give_up(self, approval_id: str, stuck: StuckExecution) -> None:
        """End an execution that no worker took, or that lost every worker that did."""
        item = self._approvals.get(approval_id)
        if item is None:
            return
        result = self._engine.store.ledger.find(_execution_id(approval_id))
        if result is None:
            known = self._engine.store.ledger.knows(_execution_id(approval_id))
            result = act.failed(item.action_id, _given_up(stuck, known), lost=known)
        self._end(item, stuck.attempt, "", result)

    def _perform(self, item: ApprovalItem, fence: Fence, retry: bool) -> ActionResult:
        """Run the one path that executes actions; the gate is passed, everything else is not."""
        if fingerprint(item) != item.fingerprint:
            why = "Refused: the action and params are not those that were approved"
            return act.failed(item.action_id, why)
        engine = self._engine
        ctx = PhaseContext(engine.agent, "act", engine.context)
        request = act.Request(
            execution_id=_execution_id(item.id),
            decision=item.decision.patched({"action": item.action_id, "params": item.params}),
            situation_summary=item.situation_summary,
            approved=True,
            retry=retry,
        )
        ledger = LeasedLedger(engine.store, engine.leases, fence)
        return act.act(ctx, request, ledger, engine.waiting)

    def _end(self, item: ApprovalItem, attempt: int, worker: str, result: ActionResult) -> None:
        # Read again: runs may have come to wait for the item since it was entered.
        current = self._approvals.get(item.id) or item
        runs = [
            (run_id, _status(result), self._run_result(run_id, result))
            for run_id in current.run_ids
        ]
        self._approvals.leave(item.id, attempt, worker, result, runs, self._engine.retention)

    def _run_result(self, run_id: str, result: ActionResult) -> RunResult:
        """What the run found in its iteration, with what has been done now."""
        run = self._engine.store.runs.get(run_id)
        done = [ActionPerformed.of(result)]
        if run is not None and run.result is not None:
            return run.result.patched({"actions_performed": done})
        return RunResult(
            summary=done[0].description,
            findings=[],
            actions_performed=done,
            loop_iterations=1,
            duration=result.duration,
        )


def _given_up(stuck: StuckExecution, known: bool) -> str:
    worker = stuck.worker.partition("/")[0]
    if known:
        return f"Outcome unknown: it lost its workers again and again, last {worker}"
    if worker:
        return f"Not executed: it lost its workers before it started, last {worker}"
    return f"Not executed: no worker took it from queue {stuck.queue or queues.ACT!r}"


def _execution_id(approval_id: str) -> str:
    return f"approval:{approval_id}"


def _status(result: ActionResult) -> RunStatus:
    return "completed" if result.success else "failed"
