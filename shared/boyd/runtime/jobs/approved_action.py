"""Executes what people have approved: once, through the one path (A4, A6, A12)."""

from __future__ import annotations

from boyd import naming, queues
from boyd.models import ActionPerformed, ActionResult, ApprovalItem, RunResult, RunStatus
from boyd.phases import act
from boyd.phases.phase_context import PhaseContext
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.runner import Done, Fields
from boyd.runtime.leases import LeasedLedger
from boyd.store import Ending, Fence, StuckJob, fingerprint, read_item


class ApprovedActionHandler:
    """The executions of one agent's approved items."""

    patient = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._approvals = engine.store.approvals

    def limit(self, fields: Fields) -> float:
        """Seconds one execution may take."""
        return self._engine.action_limit(fields.get("actionId"))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done:
        """Run the one path that executes actions; the gate is passed, everything else is not."""
        return self._done(id, self._act(read_item(fields), fence, retry))

    def broken(self, id: str, fields: Fields, why: str) -> Done:
        """End with what the ledger knows of it, or as failed."""
        execution = _execution(read_item(fields), id)
        known = self._engine.store.ledger.settle(execution)
        return self._done(id, known or act.failed(fields["actionId"], why))

    def lost(self, id: str, stuck: StuckJob) -> Done | None:
        """End with what the ledger knows of it, unless it may be executed now."""
        execution = _execution(self._approvals.get(id), id)
        result = self._engine.store.ledger.settle(execution, naming.approval(id))
        return None if result is None else self._done(id, result)

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End with what the ledger knows of it."""
        item = self._approvals.get(id)
        action = item.action_id if item else "unknown"
        return self._done(id, given_up(self._engine, _execution(item, id), action, stuck))

    def _act(self, item: ApprovalItem, fence: Fence, retry: bool) -> ActionResult:
        if fingerprint(item) != item.fingerprint:
            why = "Refused: the action and params are not those that were approved"
            return act.failed(item.action_id, why)
        engine = self._engine
        refusal = self._refusal(item)
        if refusal:
            return act.failed(item.action_id, refusal)
        request = act.Request(
            execution_id=_execution(item, item.id),
            decision=item.decision.patched({"action": item.action_id, "params": item.params}),
            situation_summary=item.situation_summary,
            approved=True,
            retry=retry,
            by=item.acted_by or "",
            undoes=item.undoes,
            for_model=bool(item.wakes),
        )
        ctx = PhaseContext(engine.agent, "act", engine.context)
        ledger = LeasedLedger(engine.store, engine.leases, fence)
        return act.act(ctx, request, ledger, engine.waiting)

    def _refusal(self, item: ApprovalItem) -> str | None:
        """Why the policy, as it is now, does not allow what was approved under an earlier one."""
        action = self._engine.agent.host.actions.get(item.action_id)
        if action is None:
            return None  # the one path says so
        required = self._engine.agent.policy(action, item.decision)
        if required.satisfied_by(item.approvals):
            return None
        return "Refused: since it was approved, the policy has come to ask for more"

    def _done(self, id: str, result: ActionResult) -> Done:
        # Read now: runs may have come to wait for the item since it was entered.
        item = self._approvals.get(id)
        runs: list[Ending] = [
            (run_id, _status(result), self._run_result(run_id, result))
            for run_id in (item.run_ids if item else [])
        ]
        keep = self._engine.retention.max_age
        return Done(result.state, keep, {"result": result.to_json()}, runs)

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


def _execution(item: ApprovalItem | None, id: str) -> str:
    """The ledger's name for what comes of an item."""
    undoes = item.undoes if item else None
    return naming.rollback(undoes) if undoes else naming.approval(id)


def given_up(engine: Engine, execution: str, action: str, stuck: StuckJob) -> ActionResult:
    """The result of an execution that no worker could bring to its end."""
    found = engine.store.ledger.settle(execution)
    return found or act.failed(action, _not_executed(stuck))


def _not_executed(stuck: StuckJob) -> str:
    worker = stuck.worker.partition("/")[0]
    if worker:
        return f"Not executed: it lost its workers before it started, last {worker}"
    return f"Not executed: no worker took it from queue {stuck.queue or queues.ACT!r}"


def _status(result: ActionResult) -> RunStatus:
    return "completed" if result.success else "failed"
