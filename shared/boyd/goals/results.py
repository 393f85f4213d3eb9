"""What the result of an action says of the decision that it came of."""

from __future__ import annotations

import json
import re

from boyd.goals.outcome import State
from boyd.models import ActionResult

#: How results begin of what was not executed because acting is frozen (L34).
FROZEN = "Acting is frozen"
#: How results begin of what was not executed: what a hook or a guard has stopped (L25, L30), and
#: what was not to be done at all, or could not be (A12), which says nothing of the tool.
_STOPPED = re.compile(r"Vetoed by |guard \S+ failed: ")
_NOT_DONE = (FROZEN, "Cancelled: ", "Refused: ", "Not executed: ")
#: How lines begin in which the agent tells of itself; they hold the words of the goal.
_OF_ITSELF = re.compile(
    r"\S+ \S+ (?:Decide: tool=|What do you know that helps to: |Cycle \d+: |Orient: )"
)


def state_of(result: ActionResult) -> State | None:
    """What became of the decision; None: nothing that says anything of the tool."""
    error = result.error or ""
    if result.success:
        return "done"
    if result.waits_for:
        return "pending"
    if error.startswith(_NOT_DONE):
        return None
    return "vetoed" if _STOPPED.match(error) else "failed"


def said_by(tool: str, result: ActionResult) -> str:
    """What a tool has told, or why it has not worked."""
    said = result.output if isinstance(result.output, str) else json.dumps(result.output)
    if not result.success:
        return result.error or said
    return _of_the_world(tool, said)


def _of_the_world(tool: str, said: str) -> str:
    """What a tool has told of the world, without what the agent has said itself."""
    if tool == "user_interact":
        return ""
    if tool != "memory_recall":
        return said
    return "\n".join(line for line in said.splitlines() if not _OF_ITSELF.match(line))
