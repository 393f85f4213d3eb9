"""The calls of a conversation, as guards, reflection and synthesis look at them."""

from __future__ import annotations

import json
from datetime import datetime

from boyd.llm import guards, instructions
from boyd.llm.conversation import Called
from boyd.llm.toolbox import READ_OUTPUT, Toolbox
from boyd.llm.tooling import ToolOutcome, ToolUse, is_error
from boyd.models.investigation import ToolObservation, ToolStatus
from boyd.redaction import MARK
from boyd.values import check_values


class Calls:
    """Tells what calls of an agent's tools are."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    def refusal(self, called: Called) -> str | None:
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

    def use(self, called: Called) -> ToolUse:
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

    def planned(self, called: Called) -> guards.Planned:
        """A call before it is made."""
        use = self.use(called)
        runnable = self.refusal(called) is None
        return guards.Planned(use.name, use.signature, use.poll, runnable)

    def executed(self, called: Called) -> guards.Executed:
        """A call that has its result."""
        use, seen = self.use(called), result_of(called)
        return guards.Executed(
            name=use.name,
            signature=use.signature,
            result=guards.result_digest(f"{seen.status} {seen.exit_code} {seen.output}"),
            error=seen.output if is_error(seen.status) else None,
            poll=use.poll,
            runnable=self.refusal(called) is None,
        )


def observed(called: Called, status: ToolStatus, output: str, now: datetime) -> ToolObservation:
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


def outcome(called: Called) -> ToolOutcome:
    """What became of a call that has its result."""
    seen = result_of(called)
    return ToolOutcome(called.call.id, seen.status, seen.output, is_error(seen.status))


def result_of(called: Called) -> ToolObservation:
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
