"""Where an agent's gated actions wait for a person (L29, A11)."""

from __future__ import annotations

from boyd.models import Proposal
from boyd.store import AgentStore, Retention


class Waiting:
    """Implements `loop.act.Approvals` on the store."""

    def __init__(self, store: AgentStore, retention: Retention, notify: bool) -> None:
        """Queue approvals; with *notify* somebody wants to be told of them."""
        self._approvals = store.approvals
        self._runs = store.runs
        self._loop = store.loop
        self._retention = retention
        self._notify = notify

    def propose(self, proposal: Proposal, execution_id: str) -> str:
        """Queue the proposal, on behalf of those who submitted its runs, too (A11); its id."""
        asking = [*proposal.requested_by, *self._runs.requesters(proposal.run_ids)]
        changes: dict[str, object] = {"requested_by": list(dict.fromkeys(asking))}
        if not proposal.loop_iteration:
            # No iteration asks for it: it is known by the one in flight, or the last one.
            changes["loop_iteration"] = self._loop.iteration()
        complete = proposal.patched(changes)
        return self._approvals.enqueue(complete, self._retention, execution_id, self._notify)

    def waits(self, proposal: Proposal) -> bool:
        """Whether the same proposal is pending already."""
        return self._approvals.waits(proposal)

    def proposed(self, execution_id: str) -> str | None:
        """The approval that an earlier attempt has proposed, if it has."""
        return self._approvals.proposed(execution_id)
