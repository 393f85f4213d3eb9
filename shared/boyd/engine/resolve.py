"""Resolves approvals: approve, deny, withdraw, from any process (A3 to A11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boyd.engine.courier import Courier
from boyd.models import Actor, ApprovalItem
from boyd.store import AgentStore, Answer, Answered, Retention

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

    def __init__(self, store: AgentStore, courier: Courier, retention: Retention) -> None:
        self._store = store
        self._courier = courier
        self._retention = retention

    def approve(
        self,
        approval_id: str,
        by: Actor,
        note: str | None = None,
        version: int | None = None,
        request: str | None = None,
    ) -> Resolution:
        """Approve: with the last approval needed a worker executes the action, come what may.

        The same *request* is answered as the first time, however often it comes.
        """
        found = self._answer(approval_id, "approved", by, note, version, request)
        if found.outcome == "approved" and found.item is not None:
            name = f"approval:{approval_id}"
            self._courier.order(self._store.agent_id, name, 1, found.item.queue)
        return found

    def deny(
        self,
        approval_id: str,
        by: Actor,
        note: str | None = None,
        version: int | None = None,
        request: str | None = None,
    ) -> Resolution:
        """Deny: nothing runs."""
        return self._answer(approval_id, "denied", by, note, version, request)

    def withdraw(
        self,
        approval_id: str,
        by: Actor,
        note: str | None = None,
        version: int | None = None,
        request: str | None = None,
    ) -> Resolution:
        """Withdraw: it is not wanted any more."""
        return self._answer(approval_id, "withdrawn", by, note, version, request)

    def _answer(
        self,
        approval_id: str,
        answer: Answer,
        by: Actor,
        note: str | None,
        version: int | None,
        request: str | None,
    ) -> Resolution:
        approvals = self._store.approvals
        item = approvals.get(approval_id)
        if item is None:
            return Resolution("unknown", None)
        refusal = _refusal(item, answer, by, note) if item.status == "pending" else None
        if refusal:
            return Resolution(refusal, item)
        said = approvals.resolve(
            *(approval_id, answer, by, self._retention),
            note=note,
            policy=item.required,
            version=version,
            request=request,
        )
        return Resolution(_outcome(answer, said), approvals.get(approval_id))


def _outcome(answer: Answer, said: Answered) -> Outcome:
    if said.outcome == "resolved":
        return answer
    if said.outcome == "again":  # it was this one that resolved the item, or it was counted
        return answer if said.now == answer else "counted"
    return _REFUSED.get(said.outcome, "not-pending")


def _refusal(item: ApprovalItem, answer: Answer, by: Actor, note: str | None) -> Outcome | None:
    """Why the item's policy refuses an answer; the rest is checked in the step that resolves."""
    if answer == "withdrawn":
        return None
    if answer == "approved" and not item.required.admits(by):
        return "not-an-approver"
    if item.required.require_note and not (note and note.strip()):
        return "note-required"
    return None
