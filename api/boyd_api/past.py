"""What came last: what state, observations and situation show."""

from __future__ import annotations

from boyd.models import LoopResult, Situation
from boyd.store import AgentStore

#: How many iterations back a situation is looked for, when the last ones have failed before it.
_FAR = 20


def last_result(store: AgentStore) -> LoopResult | None:
    """The newest iteration that has ended."""
    # The newest may be in flight, and is not in the history then.
    found = store.history.results(1) or store.history.results(2)
    return found[0] if found else None


def last_situation(store: AgentStore) -> Situation | None:
    """The situation as it was understood last."""
    newest = store.history.situation()
    if newest is not None:
        return newest
    outlines = store.history.outlines(_FAR).iterations
    older = next((one.iteration for one in outlines if one.situation is not None), None)
    result = None if older is None else store.history.get(older)
    return result.situation if result else None
