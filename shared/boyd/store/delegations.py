"""Delegation between agents: decides what one agent may do with another one, and notes refusals."""

from __future__ import annotations

from boyd.errors import NotDelegated
from boyd.models import Actor, Delegable, Delegation
from boyd.store.audit_chain import Sealing
from boyd.store.audit_trail import Audit
from boyd.store.fleet import AgentEntry
from boyd.store.freezes import reason_in, revocation_of
from boyd.store.keys import AGENTS, FREEZES, Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import Scripts


class Delegations:
    """The policies of a deployment's agents for each other."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts
        #: The refusals that this process has noted: an agent may try with each iteration.
        self._noted: set[tuple[str, str, str]] = set()

    def check(self, owner: str, caller: str, right: Delegable) -> None:
        """Check that the agent *owner* lets the agent *caller* do *right*.

        Raises:
            NotDelegated: it does not, or the right of *caller* to act is revoked.
        """
        if owner == caller:
            return
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hget(AGENTS, owner)
            pipe.hget(FREEZES, revocation_of(caller))
            entry, mark = pipe.execute()
        revoked = reason_in(mark)
        delegation = AgentEntry.from_json(entry).delegation if entry else Delegation()
        if revoked is None and delegation.allows(right, caller):
            return
        reason = f"the right of agent {caller!r} to act is revoked: {revoked}"
        if revoked is None:
            reason = (
                f"agent {owner!r} does not let agent {caller!r} do this: its file has no "
                f"{caller!r} in `{right}` of the table [delegation]"
            )
        if entry:
            self._note(owner, caller, right, reason)
        raise NotDelegated(reason)

    def _note(self, owner: str, caller: str, right: str, reason: str) -> None:
        """Record a refusal in the owner's audit trail, once for each process."""
        if (owner, caller, right) in self._noted:
            return
        keys = Keys(owner)
        audit = Audit(self._client, self._scripts.of(keys), keys, Sealing())
        audit.append(
            "delegation.refused", Actor(principal=f"agent:{caller}"), of=right, note=reason
        )
        self._noted.add((owner, caller, right))
