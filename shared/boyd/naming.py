"""Names of what an agent has done: a kind, a colon, and the id of what it comes from.

A name is what the ledger calls an execution (L32), or what workers call a job: `call:<id>` is
both. People see and type the names of executions, so what is written here never changes.
"""

from __future__ import annotations

import re

_LOOP = "loop"
_ROLLBACK = "rollback"
#: The part of a UUID that tells it apart, and the rest.
_UUID = re.compile(r"\b([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def iteration(number: int, timeline: str) -> str:
    """An iteration, by a name that no other one of its agent ever has (P16).

    Numbers may begin again when Redis loses data; each time the timeline is another one.
    """
    return f"{number}.{timeline}" if timeline else str(number)


def loop(iteration: str) -> str:
    """The execution that an iteration decides on; *iteration* as `iteration` names it."""
    return f"{_LOOP}:{iteration}"


def loop_number(name: str) -> int | None:
    """The iteration's number where *name* is that of its execution without the timeline."""
    kind, number = parts(name)
    return int(number) if kind == _LOOP and number.isdecimal() and len(number) < 16 else None


def approval(approval_id: str) -> str:
    """The job to execute what was approved, and that execution (A4)."""
    return f"approval:{approval_id}"


def call(call_id: str) -> str:
    """The job to do what a client asks for, and the execution that it leads to (L31)."""
    return f"call:{call_id}"


def rollback(undone: str) -> str:
    """The execution that undoes *undone*: one, whoever asks for it (L33)."""
    return f"{_ROLLBACK}:{undone}"


def investigation(investigation_id: str) -> str:
    """The job to make the next move of an investigation."""
    return f"investigation:{investigation_id}"


def tool_call(investigation_id: str, call_id: str) -> str:
    """The execution that a model asks for in an investigation."""
    return f"{investigation(investigation_id)}:{call_id}"


def callback(run_id: str) -> str:
    """The job to tell whoever asked for it how a run ended (R5)."""
    return f"callback:{run_id}"


def title(action: str, undoes: str | None) -> str:
    """The words for what an approval or a call does: its action, or the undo of an execution."""
    return f"undo of {action} ({short(undoes)})" if undoes else action


def short(name: str) -> str:
    """A name with its ids cut as tables show them; commands take it as it is."""
    return _UUID.sub(r"\1", name)


def parts(name: str) -> tuple[str, str]:
    """The kind of a name, and the id after it; of what is no name, the whole and nothing."""
    kind, _, id = name.partition(":")
    return kind, id


def is_rollback(name: str) -> bool:
    """Whether that execution undoes another one."""
    return parts(name)[0] == _ROLLBACK
