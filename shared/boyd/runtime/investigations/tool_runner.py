"""Executes the tool calls of a model: tools of plugins, and actions under their usual checks."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

from boyd import naming
from boyd.errors import Overrun
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import capture, shorten
from boyd.models import ActionResult, Actor, ApprovalItem, Decision, Fence
from boyd.models.investigation import ToolObservation, ToolStatus
from boyd.phases import time_limit
from boyd.phases.act_request import ActRequest, ProposalTerms, Requester
from boyd.phases.phase_context import describe
from boyd.plugin import Action, Tool
from boyd.plugin.plugin_boundary import validate
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.action_jobs import run_action
from boyd.store import ItemAnswer
from boyd.text import queues
from boyd.text.formatting import message_of, storable
from boyd.text.redaction import redactor

#: Characters of the model's text that the approval's rationale quotes.
QUOTED = 600
#: Schema of an action output that already is an observation, such as the shell's.
SCHEMA = "boyd.tool_observation.v1"

#: Output of a call that may have been executed and is not repeated.
LOST = "Its worker was lost, or Redis restarted: it may have been executed; the outcome is unknown"

_REFUSALS: dict[str, tuple[ToolStatus, str]] = {
    "denied": ("denied", "A person denied it"),
    "expired": ("expired", "Nobody answered the approval request in time"),
    "withdrawn": ("withdrawn", "The approval request was withdrawn"),
}


def queue_of(tool: Action | Tool) -> str:
    """The queue of the workers that can execute *tool*."""
    return tool.queue or queues.ACT


class ToolRunner:
    """The tool calls of one investigation, under the fence of its move."""

    def __init__(self, engine: Engine, id: str, fence: Fence, log: Conversation) -> None:
        self._engine = engine
        self._id = id
        self._name = naming.investigation(id)
        self._fence = fence
        self._askers, self._limits = tuple(log.askers), tuple(log.limits)

    def execute(
        self, tool: Action | Tool, called: ToolCallRecord, again: bool, reason: str = ""
    ) -> ToolObservation | str:
        """Execute a call, and return its observation or the id of the approval it waits for.

        *reason* is the model's reason. With *again* a lost worker may have started it before; then
        only an idempotent tool is executed.
        """
        if isinstance(tool, Action):
            result = self._act(tool, called, again, reason)
            return result.waits_for or self._result_observation(called, result)
        if again and not tool.idempotent:
            return self._observation(called, "interrupted", LOST)
        return self._run(tool, called)

    def approval_observation(
        self, called: ToolCallRecord, approval_id: str
    ) -> ToolObservation | None:
        """Return the observation of a call that needed an approval, or None until its answer."""
        item = self._engine.store.approvals.get(approval_id)
        if item is None:
            result = self._engine.store.executions.result(naming.approval(approval_id))
            reason = "The approval request no longer exists"
            return (
                self._result_observation(called, result)
                if result
                else self._observation(called, "expired", reason)
            )
        if item.result is not None:
            return self._result_observation(called, item.result)
        refusal = _REFUSALS.get(item.status)
        return (
            self._observation(called, refusal[0], _with_note(refusal[1], item)) if refusal else None
        )

    def settle(self, called: ToolCallRecord) -> ToolObservation | None:
        """Return the known result of a started call that no worker continues."""
        if called.approval_id is not None:
            return self.approval_observation(called, called.approval_id)
        result = self._engine.store.executions.settle(self._execution(called))
        return self._result_observation(called, result) if result else None

    def loss_observation(self, called: ToolCallRecord) -> ToolObservation:
        """Return the observation of a started call whose tool this worker lacks."""
        return self.settle(called) or self._observation(called, "interrupted", LOST)

    def _execution(self, called: ToolCallRecord) -> str:
        return naming.tool_call(self._id, called.call.id)

    def withdraw(self, approval_id: str) -> bool:
        """Withdraw an approval that only this investigation needs, unless it is executing."""
        item = self._engine.store.approvals.get(approval_id)
        if item is None or item.status != "pending":
            return item is None or item.status != "approved" or item.result is not None
        if item.wakes == [self._name] and not item.run_ids:
            actor = Actor(principal=f"agent:{self._engine.agent.id}")
            note = "the investigation that requested it was cancelled"
            retention = self._engine.retention
            answer = ItemAnswer("withdrawn", actor, note)
            self._engine.store.approvals.resolve(approval_id, answer, item.required, retention)
        return True

    def _act(
        self, action: Action, called: ToolCallRecord, again: bool, reason: str
    ) -> ActionResult:
        quote = f": {shorten(reason, QUOTED)}" if reason.strip() else ""
        decision = Decision(
            action=action.id,
            params=called.arguments or {},
            rationale=f"requested by the model in investigation {self._id}{quote}",
            # Models report no confidence: an action with a minimum needs an approval.
            confidence=0.0,
            risk=action.risk,
        )
        request = ActRequest(
            execution_id=self._execution(called),
            decision=decision,
            requester=Requester(self._name, self._askers, limits=self._limits, for_model=True),
            proposal=ProposalTerms(wakes=self._name),
            retry=again,
            fence=self._fence,
        )
        ledger = self._engine.ledger()
        return run_action(self._engine, ledger, request)

    def _run(self, tool: Tool, called: ToolCallRecord) -> ToolObservation:
        ctx = self._engine.act_context()

        def run() -> Any:
            params = validate(tool, called.arguments or {})
            return tool.call("run", params=params, ctx=ctx.context(tool.plugin_id))

        began = time.perf_counter()
        status: ToolStatus = "failed"
        late = False
        try:
            text, status = _text(time_limit.call(run, tool.timeout)), "succeeded"
        except Overrun as error:
            text, late = f"It {error}", True
        except Exception as error:  # noqa: BLE001 - a result, never a crash
            text = message_of(error) if isinstance(error, ValueError) else describe(error)
        took = round((time.perf_counter() - began) * 1000, 3)
        return self._observation(called, status, text, duration=took, timed_out=late)

    def _result_observation(self, called: ToolCallRecord, result: ActionResult) -> ToolObservation:
        """Describe an action's result for the model."""
        status: ToolStatus = "succeeded" if result.is_fine else "failed"
        if result.unknown:
            status = "interrupted"
        output = result.output
        if isinstance(output, dict) and output.get("schema") == SCHEMA:
            with suppress(ValueError):
                return self._shell(called, status, output)
        text = _text(output)
        if result.error:
            text = f"{result.error}\n{text}" if output is not None else result.error
        return self._observation(called, status, text, duration=result.duration)

    def _shell(
        self, called: ToolCallRecord, status: ToolStatus, output: dict[str, Any]
    ) -> ToolObservation:
        """Complete the observation that the shell made with its call.

        Raises:
            ValueError: it is not an observation.
        """
        if output.get("status") == "refused":
            status = "refused"
        own = {"step": called.step, "call_id": called.call.id, "tool": called.call.name}
        observation = ToolObservation.model_validate(
            {**output, **own, "status": status}, strict=False, extra="ignore"
        )
        captured, total = capture(redactor().redact(observation.output))
        changes = {
            "output": captured,
            "truncated": observation.truncated or total > len(captured.encode()),
            "total_bytes": max(total, observation.total_bytes),
        }
        return observation.patched(changes)

    def _observation(
        self, called: ToolCallRecord, status: ToolStatus, text: str, **more: Any
    ) -> ToolObservation:
        # Redact before truncating: half a secret would not be recognized.
        safe = redactor().redact(storable(text))
        captured, total = capture(safe)
        now = self._engine.store.clock.now()
        changes = {"truncated": total > len(captured.encode()), "total_bytes": total, **more}
        return called.observe(status, captured, now).patched(changes)


def _with_note(reason: str, item: ApprovalItem) -> str:
    return f"{reason}: {item.note}" if item.note else f"{reason}."


def _text(output: Any) -> str:
    if output is None:
        return "Done."
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
