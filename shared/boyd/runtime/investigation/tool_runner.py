"""Executes what a model asks for: tools of plugins, and actions on the path of all actions."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from boyd import naming, queues
from boyd.errors import Overrun
from boyd.llm.call_history import observed
from boyd.llm.conversation import ToolCallRecord
from boyd.llm.output_view import captured, shortened
from boyd.llm.tool_call_parsing import storable
from boyd.models import ActionResult, Actor, ApprovalItem, Decision
from boyd.models.investigation import ToolObservation, ToolStatus
from boyd.phases import act, time_limit
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Action, Tool
from boyd.redaction import redactor
from boyd.runtime.action_runner import ledger_of, take
from boyd.runtime.engine import Engine
from boyd.store import Fence

#: How much of what the model said is told to whoever has to allow what it wants.
SAID = 600
#: What says that an action's output is an observation already, as that of the shell is.
SCHEMA = "boyd.tool_observation.v1"

#: What is told of a call that may have been made, and is not made again.
LOST = "Its worker was lost, or Redis restarted: it may have been made, and the outcome is unknown"

_REFUSALS: dict[str, tuple[ToolStatus, str]] = {
    "denied": ("denied", "A person has refused it"),
    "expired": ("expired", "Nobody has answered in time whether it may be done"),
    "withdrawn": ("withdrawn", "The question whether it may be done was withdrawn"),
}


def queue_of(tool: Action | Tool) -> str:
    """The queue of the workers that can execute *tool*."""
    return tool.queue or queues.ACT


class ToolRunner:
    """The tools of one investigation, under the fence of its move."""

    def __init__(self, engine: Engine, id: str, fence: Fence, askers: Sequence[str]) -> None:
        self._engine = engine
        self._id = id
        self._name = naming.investigation(id)
        self._fence = fence
        self._askers = tuple(askers)

    def execute(
        self, tool: Action | Tool, called: ToolCallRecord, again: bool, said: str = ""
    ) -> ToolObservation | str:
        """What came of it, or the approval that it waits for; *said* is why the model wants it.

        With *again* it was started before, or may have been, by a worker that was lost: what is not
        idempotent is not executed once more (T2).
        """
        if isinstance(tool, Action):
            result = self._act(tool, called, again, said)
            return result.waits_for or self._observed(called, result)
        if again and not tool.idempotent:
            return self._said(called, "interrupted", LOST)
        return self._run(tool, called)

    def decided(self, called: ToolCallRecord, approval_id: str) -> ToolObservation | None:
        """What became of a call that waits for a person; None: it still does."""
        item = self._item(approval_id)
        if item is None:
            found = self._engine.store.ledger.find(naming.approval(approval_id))
            gone = "The question whether it may be done is gone"
            return self._observed(called, found) if found else self._said(called, "expired", gone)
        if item.result is not None:
            return self._observed(called, item.result)
        refusal = _REFUSALS.get(item.status)
        return self._said(called, refusal[0], _told(refusal[1], item)) if refusal else None

    def known(self, called: ToolCallRecord) -> ToolObservation | None:
        """What is known of a call that was begun and that nobody goes on with."""
        if called.approval_id is not None:
            return self.decided(called, called.approval_id)
        found = self._engine.store.ledger.settle(self._execution(called))
        return self._observed(called, found) if found else None

    def lost(self, called: ToolCallRecord) -> ToolObservation:
        """What is told of a call that was begun, and that nobody here can go on with."""
        return self.known(called) or self._said(called, "interrupted", LOST)

    def _execution(self, called: ToolCallRecord) -> str:
        return naming.tool_call(self._id, called.call.id)

    def patience(self, approval_id: str, longest: float) -> float:
        """Seconds until it is worth to look again at an approval that nobody has resolved."""
        item = self._engine.store.approvals.get(approval_id)
        if item is None or item.status != "pending" or item.expires_at is None:
            return longest
        left = (item.expires_at - self._engine.store.clock.now()).total_seconds()
        return min(longest, max(0.0, left) + 0.1)

    def withdraw(self, approval_id: str) -> bool:
        """Withdraw what this investigation alone has asked for; False: it is being executed."""
        item = self._item(approval_id)
        if item is None or item.status != "pending":
            return item is None or item.status != "approved" or item.result is not None
        if item.wakes == [self._name] and not item.run_ids:
            actor = Actor(principal=f"agent:{self._engine.agent.id}")
            note = "the investigation that asked for it was cancelled"
            retention = self._engine.retention
            self._engine.store.approvals.resolve(
                approval_id, "withdrawn", actor, retention, note=note, policy=item.required
            )
        return True

    def _item(self, approval_id: str) -> ApprovalItem | None:
        """An approval; one whose time is up has expired."""
        approvals = self._engine.store.approvals
        item = approvals.get(approval_id)
        if item is None or item.status != "pending" or item.expires_at is None:
            return item
        if item.expires_at > self._engine.store.clock.now():
            return item
        self._engine.purge_approvals()
        return approvals.get(approval_id)

    def _act(self, action: Action, called: ToolCallRecord, again: bool, said: str) -> ActionResult:
        why = f": {shortened(said, SAID)}" if said.strip() else ""
        decision = Decision(
            action=action.id,
            params=called.arguments or {},
            rationale=f"asked for by the model in investigation {self._id}{why}",
            # Models do not say how sure they are: what wants to know asks a person.
            confidence=0.0,
            risk=action.risk,
        )
        wanted = act.Request(
            execution_id=self._execution(called),
            decision=decision,
            retry=again,
            requested_by=self._askers,
            by=self._name,
            wakes=self._name,
            for_model=True,
        )
        return take(self._engine, ledger_of(self._engine, self._fence), wanted)

    def _run(self, tool: Tool, called: ToolCallRecord) -> ToolObservation:
        ctx = PhaseContext(self._engine.agent, "act", self._engine.context)

        def run() -> Any:
            params = act.validate(tool, called.arguments or {})
            return tool.call("run", params=params, ctx=ctx.context(tool.plugin_id))

        began = time.perf_counter()
        status: ToolStatus = "failed"
        late = False
        try:
            text, status = _text(time_limit.call(run, tool.timeout)), "succeeded"
        except Overrun as error:
            text, late = f"It {error}", True
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a result, never a crash
            text = str(error) if isinstance(error, ValueError) else describe(error)
        took = round((time.perf_counter() - began) * 1000, 3)
        return self._said(called, status, text, duration=took, timed_out=late)

    def _observed(self, called: ToolCallRecord, result: ActionResult) -> ToolObservation:
        """What an action's result tells the model."""
        status: ToolStatus = "succeeded" if result.success else "failed"
        if result.unknown:
            status = "interrupted"
        output = result.output
        if isinstance(output, dict) and output.get("schema") == SCHEMA:
            with suppress(ValueError):
                return self._shell(called, status, output)
        text = _text(output)
        if result.error:
            text = f"{result.error}\n{text}" if output is not None else result.error
        return self._said(called, status, text, duration=result.duration)

    def _shell(
        self, called: ToolCallRecord, status: ToolStatus, seen: dict[str, Any]
    ) -> ToolObservation:
        """The observation that the shell has made, with where it belongs.

        Raises:
            ValueError: it is none.
        """
        if seen.get("status") == "refused":
            status = "refused"
        own = {"step": called.step, "call_id": called.call.id, "tool": called.call.name}
        found = ToolObservation.model_validate(
            {**seen, **own, "status": status}, strict=False, extra="ignore"
        )
        kept, total = captured(redactor().redact(found.output))
        changes = {
            "output": kept,
            "truncated": found.truncated or total > len(kept.encode()),
            "total_bytes": max(total, found.total_bytes),
        }
        return found.patched(changes)

    def _said(
        self, called: ToolCallRecord, status: ToolStatus, text: str, **more: Any
    ) -> ToolObservation:
        # Redacted before it is cut: half of a secret is found by nobody.
        safe = redactor().redact(storable(text))
        kept, total = captured(safe)
        now = self._engine.store.clock.now()
        changes = {"truncated": total > len(kept.encode()), "total_bytes": total, **more}
        return observed(called, status, kept, now).patched(changes)


def _told(why: str, item: ApprovalItem) -> str:
    return f"{why}: {item.note}" if item.note else f"{why}."


def _text(output: Any) -> str:
    if output is None:
        return "Done."
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
