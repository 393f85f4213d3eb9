"""How often a call was handed over to the queue of its tool, and not made there.

Workers with different plugins may disagree about that queue, as while one release takes the place
of another. They would pass the call on for ever, so its job counts: in the step that passes it
on, which no two workers take.
"""

from __future__ import annotations

from boyd.runtime.jobs.runner import Fields

#: How often a call may be handed over; once is usual, twice when its queue has just changed.
MOST = 4
#: The field of the job that counts: the call, and how often that one was.
_FIELD = "handedOver"


def times(job: Fields, call_id: str) -> int:
    """How often that call was handed over until now."""
    which, _, number = job.get(_FIELD, "").partition(" ")
    return int(number) if which == call_id else 0


def counted(call_id: str, number: int) -> Fields:
    """What the job is to say once that call was handed over so often."""
    return {_FIELD: f"{call_id} {number}"}


def in_vain(tool: str, queue: str) -> str:
    """What the model is told of a call that was handed over too often."""
    return (
        f"Not called: the workers do not agree about the queue of the tool {tool!r}. It was "
        f"handed over {MOST} times, last to {queue!r}."
    )
