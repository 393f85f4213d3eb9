"""The calls of a conversation, as guards, reflection and synthesis look at them."""

from __future__ import annotations

import json
from datetime import datetime

from boyd.json_limits import check_values
from boyd.llm import instructions, loop_detection
from boyd.llm.conversation import ToolCallRecord
from boyd.llm.tool_calls import ToolOutcome, ToolUse, is_error
from boyd.llm.toolbox import READ_OUTPUT, Toolbox
from boyd.models.investigation import ToolObservation, ToolStatus
from boyd.redaction import MARK


class CallHistory:
    """Tells what calls of an agent's tools are."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    def refusal(self, called: ToolCallRecord) -> str | None:
        """Why a call cannot be made at all; None: it can."""
        arguments = called.call.arguments
        if called.call.name not in self._toolbox and called.call.name != READ_OUTPUT:
            return instructions.unknown_tool(called.call.name, list(self._toolbox))
        if MARK in arguments:
            return instructions.UNSAID
        if called.arguments is None:
            why = "it is no object" if _is_json(arguments) else "it cannot be read"
            return instructions.unreadable(arguments, why)
        return None

    def use(self, called: ToolCallRecord) -> ToolUse:
        """What was asked for."""
        name = called.call.name
        tool = self._toolbox.get(name)
        return ToolUse(
            id=called.call.id,
            name=name,
            arguments=called.call.arguments if called.arguments is None else called.arguments,
            category=tool.category if tool else "search",
            # To turn a page is no search of its own, and nothing that is done again.
            poll=name == READ_OUTPUT or getattr(tool, "poll", False),
        )

    def planned(self, called: ToolCallRecord) -> loop_detection.Planned:
        """A call before it is made."""
        use = self.use(called)
        runnable = self.refusal(called) is None
        return loop_detection.Planned(use.name, use.signature, use.poll, runnable)

    def executed(self, called: ToolCallRecord) -> loop_detection.Executed:
        """A call that has its result."""
        use, seen = self.use(called), result_of(called)
        return loop_detection.Executed(
            name=use.name,
            signature=use.signature,
            result=loop_detection.result_digest(f"{seen.status} {seen.exit_code} {seen.output}"),
            error=seen.output if is_error(seen.status) else None,
            poll=use.poll,
            runnable=self.refusal(called) is None,
        )


def observed(
    called: ToolCallRecord, status: ToolStatus, output: str, now: datetime
) -> ToolObservation:
    """A result that says *output*."""
    return ToolObservation(
        time=now,
        step=called.step,
        tool=called.call.name,
        call_id=called.call.id,
        status=status,
        total_bytes=len(output.encode()),
        output=output,
    )


def outcome(called: ToolCallRecord) -> ToolOutcome:
    """What became of a call that has its result."""
    seen = result_of(called)
    return ToolOutcome(called.call.id, seen.status, seen.output, is_error(seen.status))


def result_of(called: ToolCallRecord) -> ToolObservation:
    """The result of a call that has one."""
    assert called.observation is not None, "only calls with a result have come to something"
    return called.observation


def _is_json(text: str) -> bool:
    try:
        check_values(text)
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
