"""Resolves approvals: approve, deny, withdraw, from any process (A3 to A11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boyd import naming
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import Actor, ApprovalItem
from boyd.store import AgentStore, Answered, Retention, Verdict

Outcome = Literal[
    "approved",
    "counted",
    "denied",
    "withdrawn",
    "not-pending",
    "unknown",
    "already-approved",
    "requester",
    "not-an-approver",
    "note-required",
    "changed",
]

_REFUSED: dict[str, Outcome] = {
    "counted": "counted",
    "voted": "already-approved",
    "requester": "requester",
    "changed": "changed",
}


@dataclass(frozen=True)
class Resolution:
    """What became of an answer, and the item as it is now.

    `counted` approvals wait for others; `already-approved`, `requester`, `not-an-approver` and
    `note-required` were refused by the item's policy, `changed` by its version.
    """

    outcome: Outcome
    item: ApprovalItem | None

    @property
    def done(self) -> bool:
        """Whether the answer counts."""
        return self.outcome in ("approved", "counted", "denied", "withdrawn")


class Resolver:
    """Resolves one agent's approvals; needs no plugins."""

    def __init__(self, store: AgentStore, dispatcher: Dispatcher, retention: Retention) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._retention = retention

    def answer(
        self,
        approval_id: str,
        verdict: Verdict,
        by: Actor,
        note: str | None = None,
        version: int | None = None,
        request: str | None = None,
    ) -> Resolution:
        """Answer an item; with the last approval needed a worker executes it, come what may.

        With a *version* the item must still have it. The same *request* is answered as the first
        time, however often it comes.
        """
        approvals = self._store.approvals
        item = approvals.get(approval_id)
        if item is None:
            return Resolution("unknown", None)
        refusal = _refusal(item, verdict, by, note) if item.status == "pending" else None
        if refusal:
            return Resolution(refusal, item)
        said = approvals.resolve(
            approval_id,
            verdict,
            by,
            self._retention,
            note=note,
            policy=item.required,
            version=version,
            request=request,
        )
        found = Resolution(_outcome(verdict, said), approvals.get(approval_id))
        if found.outcome == "approved" and found.item is not None:
            name = naming.approval(approval_id)
            self._dispatcher.job(self._store.agent_id, name, 1, found.item.queue)
        return found


def _outcome(verdict: Verdict, said: Answered) -> Outcome:
    if said.outcome == "resolved":
        return verdict
    if said.outcome == "again":  # it was this one that resolved the item, or it was counted
        return verdict if said.now == verdict else "counted"
    return _REFUSED.get(said.outcome, "not-pending")


def _refusal(item: ApprovalItem, verdict: Verdict, by: Actor, note: str | None) -> Outcome | None:
    """Why the item's policy refuses an answer; the rest is checked in the step that resolves."""
    if verdict == "withdrawn":
        return None
    if verdict == "approved" and not item.required.admits(by):
        return "not-an-approver"
    if item.required.require_note and not (note and note.strip()):
        return "note-required"
    return None
