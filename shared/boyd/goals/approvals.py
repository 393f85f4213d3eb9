"""What has become of what waits for a person, found when an iteration begins (M6)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from boyd.errors import StoreError, StoreUnavailable
from boyd.goals.cycle import known_of
from boyd.goals.outcome import Outcome, State
from boyd.goals.replies import WaitingTool
from boyd.goals.results import named_by, said_by, state_of
from boyd.goals.shapes import Decision, Session
from boyd.models import ApprovalItem
from boyd.plugin import Approvals, Graph

log = logging.getLogger("boyd.goals")

_GONE = "the approval is not kept any more"


def outcomes(session: Session, approvals: Approvals, graph: Graph) -> list[Outcome]:
    """What has come of decisions that wait for a person; what still waits has none.

    Nothing is looked up when nothing waits, and otherwise each approval once that was answered.
    """
    pending = _pending(session)
    if not pending:
        return []
    asked = {one.approval for one in pending if one.approval}
    answered = asked - approvals.waiting(asked)
    items = dict(_readable(approvals, sorted(answered)))
    found = [
        _outcome(session, one, items[one.approval], graph)
        for one in pending
        if one.approval in items
    ]
    return [one for one in found if one is not None]


def waiting(session: Session, approvals: Approvals) -> list[WaitingTool]:
    """What goals of the session wait for and nobody has answered yet, the oldest first."""
    pending = _pending(session)
    unanswered = approvals.waiting({one.approval for one in pending if one.approval})
    return [
        WaitingTool(tool=one.tool, goal=one.goal, approval=one.approval)
        for one in pending
        if one.approval in unanswered
    ]


def _pending(session: Session) -> list[Decision]:
    every = session.decisions
    return [one for one in every if one.progress == "Pending" and one.goal in session.goals]


def _readable(
    approvals: Approvals, ids: Sequence[str]
) -> Iterator[tuple[str, ApprovalItem | None]]:
    """The approvals as they are; what only a later release can read waits for one (P13)."""
    for id in ids:
        try:
            yield id, approvals.get(id)
        except StoreUnavailable:
            raise
        except StoreError as error:
            log.warning("%s", error)


def _outcome(
    session: Session, decision: Decision, item: ApprovalItem | None, graph: Graph
) -> Outcome | None:
    """What has come of one; None: it is not done yet."""
    if item is None:
        return _settled(decision, "refused", _GONE)
    if item.status not in ("pending", "approved"):
        return _settled(decision, "refused", _answer(item))
    if item.result is None:
        return None
    state, said = state_of(item.result), said_by(decision.tool, item.result)
    if state is None:
        return _settled(decision, "undone", f"approved, and not done: {said}")
    known = known_of(session, session.goals[decision.goal], graph)
    outcome = _settled(decision, state, said, known, item.result.duration / 1000)
    return outcome.patched({"symbols": named_by(item.result)})


def _settled(
    decision: Decision,
    state: State,
    output: str,
    known: Sequence[str] = (),
    duration: float | None = None,
) -> Outcome:
    """The outcome of a decision; without a claim, so that who works on the goal now goes on."""
    return Outcome(
        cycle=decision.cycle,
        goal=decision.goal,
        tool=decision.tool,
        state=state,
        output=output,
        known=list(known),
        params_digest=decision.params_digest,
        breakdown=decision.breakdown,
        iteration=decision.iteration,
        approval=decision.approval,
        duration=duration,
    )


def _answer(item: ApprovalItem) -> str:
    """How an item was resolved, as in `denied by ann: not today`."""
    by = f" by {item.acted_by}" if item.acted_by else ""
    why = f": {item.note}" if item.note else ""
    return f"{item.status}{by}{why}"
