"""What the result of an action says of the decision that it came of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from boyd.goals.knowledge.predicates import GOAL
from boyd.goals.outcome import State
from boyd.models import ActionResult

#: How results begin of what was not executed because acting is frozen (L34).
FROZEN = "Acting is frozen"
#: How results begin of what was not executed: what a hook or a guard has stopped (L25, L30), and
#: what was not to be done at all, or could not be (A12), which says nothing of the tool.
_STOPPED = re.compile(r"Vetoed by |guard \S+ failed: ")
_NOT_DONE = (FROZEN, "Cancelled: ", "Refused: ", "Not executed: ")
#: How remembered lines begin in which the agent tells of itself: they hold the words of the goal.
_OF_ITSELF = re.compile(
    r"\S+ \S+ (?:Decide: tool=|Cycle \d+: |Orient: |Reflection at cycle |Advice after cycle )"
)
#: What a remembered line has around what was found: when it was, and which tool has found it.
_ENVELOPE = re.compile(
    r"(?<!\S)\S+ \S+ "
    r"(?:(?:Tool result \([^)]{0,200}\)|Answer of [^:]{0,200}|came to mind|[\w:-]+(?: failed)?)"
    r": ?)?"
)
#: Where an action says which symbols it has named or found: metrics hold text and numbers only.
_SYMBOLS = "symbols"
#: How many of them count: of many conclusions the surest come first.
_NAMED = 12


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
    lines = (line for line in said.splitlines() if not _OF_ITSELF.match(line))
    return "\n".join(_ENVELOPE.sub("", line, count=1) for line in lines)


def naming(symbols: Iterable[str]) -> dict[str, float | str]:
    """The metrics of an action that has named or found those symbols."""
    known = list(dict.fromkeys(symbols))[:_NAMED]
    return {_SYMBOLS: json.dumps(known, ensure_ascii=False)} if known else {}


def named_by(result: ActionResult) -> list[str]:
    """The symbols that an action says it has named or found."""
    try:
        found = json.loads(str((result.metrics or {}).get(_SYMBOLS, "[]")))
    except ValueError:
        return []
    texts = found if isinstance(found, list) else []
    return [one for one in texts if isinstance(one, str) and not one.startswith(GOAL)]
