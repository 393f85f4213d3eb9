"""Queues an agent's approvals for the loop, shows them to plugins, and resolves them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Literal

from boyd import naming
from boyd.errors import ActionHeld
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import Actor, ApprovalItem, ApprovalOutcome, Proposal, Vote, utc_now
from boyd.models.actor import GroupRights
from boyd.security.approval_signatures import ApprovalSigner
from boyd.security.links import AnswerLink, LinkProblem
from boyd.store import AgentStore, ItemAnswer, Resolution, Retention, Verdict
from boyd.store.approvals import Approvals


class ReadOnlyApprovals:
    """Implements `boyd.plugin.ApprovalReader`, so that plugins cannot resolve approvals."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    def get(self, approval_id: str) -> ApprovalItem | None:
        """Return the current approval, or None if it does not exist or is no longer kept."""
        return self._approvals.get(approval_id)

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        """The pending ones among *approval_ids*, in one round trip."""
        return self._approvals.pending_of(list(approval_ids)) if approval_ids else set()


class StoredApprovalGateway:
    """Implements `phases.act.ApprovalGateway` on the store."""

    def __init__(self, store: AgentStore, retention: Retention, notify: bool) -> None:
        """Queue approvals; with *notify* a plugin notifies people of them."""
        self._approvals = store.approvals
        self._holds = store.holds
        self._runs = store.runs
        self._loop = store.loop_control
        self._retention = retention
        self._notify = notify

    def propose(self, proposal: Proposal, execution_id: str, by_machine: bool = False) -> str:
        """Queue the proposal, also on behalf of the submitters of its runs, and return its id."""
        requesters = [*proposal.requested_by, *self._runs.requesters(proposal.run_ids)]
        changes: dict[str, object] = {"requested_by": list(dict.fromkeys(requesters))}
        if not proposal.loop_iteration:
            # Proposed outside an iteration: list it under the current or latest one.
            changes["loop_iteration"] = self._loop.iteration()
        complete = proposal.patched(changes)
        try:
            return self._approvals.enqueue(
                complete, self._retention, execution_id, self._notify, unless_in_flight=by_machine
            )
        except ActionHeld as held:
            hold = self._holds.get(proposal.action_id, proposal.target)
            raise ActionHeld(hold.reason if hold else str(held)) from None

    def waits(self, proposal: Proposal) -> bool:
        """Report whether the same proposal is already pending."""
        return self._approvals.waits(proposal)

    def approval_of(self, execution_id: str) -> str | None:
        """The approval that an earlier attempt of this execution proposed, if any."""
        return self._approvals.item_proposed_by(execution_id)


class Resolver:
    """Resolves one agent's approvals, from any process; needs no plugins.

    *signer* signs them; without one, workers that have the secret refuse to execute them.
    *rights* are those of groups, which limit who may answer; *of_now* marks changed code.
    """

    def __init__(
        self,
        store: AgentStore,
        dispatcher: Dispatcher,
        retention: Retention,
        signer: ApprovalSigner | None = None,
        *,
        rights: GroupRights,
        of_now: Callable[[ApprovalItem], ApprovalItem] = lambda item: item,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._retention = retention
        self._signer = signer
        self._rights, self._of_now = rights, of_now

    def answer(
        self,
        approval_id: str,
        verdict: Verdict,
        by: Actor,
        note: str | None = None,
        version: int | None = None,
        request: str | None = None,
    ) -> Resolution:
        """Approve, deny or withdraw an item; a worker executes it after the last approval needed.

        With a *version* the item must still have it. Repeating the same *request* gives the same
        answer.
        """
        item = self._store.approvals.get(approval_id, in_flight=False)
        return self._answer(approval_id, item, ItemAnswer(verdict, by, note, version, request))

    def answer_link(
        self,
        link: AnswerLink,
        verdict: Literal["approved", "denied"],
        note: str | None = None,
        address: str | None = None,
    ) -> Resolution:
        """Answer as the addressee of a signed link, from *address*; the answer uses up the link.

        The outcome is `LINK_REFUSED` when the link has ended or the item needs a login.
        """
        item = self._store.approvals.get(link.approval_id, in_flight=False)
        problem = link.problem(item and self._of_now(item), self._store.clock.now())
        if problem in (LinkProblem.EXPIRED, LinkProblem.LOGIN_NEEDED):
            return Resolution(ApprovalOutcome.LINK_REFUSED, item)
        by = link.actor(address)
        answer = ItemAnswer(verdict, by, note, link.version, link_until=link.deadline)
        return self._answer(link.approval_id, item, answer)

    def _answer(
        self, approval_id: str, item: ApprovalItem | None, answer: ItemAnswer
    ) -> Resolution:
        if item is None:
            return Resolution(ApprovalOutcome.NOT_PENDING, None)
        approvals, approves = self._store.approvals, answer.verdict == "approved"
        # A stolen key may have approved before it was revoked.
        if approves and approvals.drop_votes(approval_id, self._invalid_votes(item)):
            item = approvals.get(approval_id, in_flight=False) or item
        if item.status == "pending":
            permission = self._rights.judge(answer.by, "approve", item.action_id, item.target)
            if not permission.allowed:
                outcome = ApprovalOutcome.FORBIDDEN
                return Resolution(outcome, approvals.get(item.id), permission.reason)
            if refusal := _refusal(item, answer):
                return Resolution(refusal, approvals.get(item.id))
        if self._signer and approves:
            vote = self._signer.sign(item, Vote.of(answer.by, answer.note, utc_now()))
            answer = replace(answer, vote=vote)
        resolution = approvals.resolve(approval_id, answer, item.required, self._retention)
        if resolution.outcome == ApprovalOutcome.APPROVED:
            self._dispatcher.job(self._store.agent_id, naming.approval(item.id), 1, item.queue)
        return resolution

    def _invalid_votes(self, item: ApprovalItem) -> Iterator[tuple[Vote, str]]:
        """The approvals that count no more, each with the reason."""
        keys = self._store.approvals.keys_of_votes([item])
        for vote in item.approvals if item.status == "pending" else ():
            key = keys.get(vote.key or "")
            if vote.key and key is None:
                yield vote, f"the key {vote.key} of {vote.by} was revoked"
                continue
            voter = Actor(principal=vote.by, groups=vote.groups, rights=(key and key.may) or None)
            permission = self._rights.judge(voter, "approve", item.action_id, item.target)
            if not permission.allowed:
                yield vote, permission.reason


def _refusal(item: ApprovalItem, answer: ItemAnswer) -> ApprovalOutcome | None:
    """Return the item's policy's reason to refuse an answer; the script checks the rest."""
    if answer.verdict == "withdrawn":
        return None
    if (answer.verdict == "approved" or answer.by.link) and not item.required.admits(answer.by):
        return ApprovalOutcome.NOT_AN_APPROVER
    if item.required.require_note and not (answer.note and answer.note.strip()):
        return ApprovalOutcome.NOTE_REQUIRED
    return None
