"""The copy of the freeze marks beside an agent's other keys, which its claims and proposals read.

The marks of the deployment lie elsewhere, in a cluster perhaps on another server. The copy counts
only during the run of the server on which it was compared with them: after a restart, a failover or
a move it may lack the last marks, and is compared again before anything relies on it.
"""

from __future__ import annotations

from boyd.store.freezes import halt_text, revocation_of, scopes_concerning
from boyd.store.keys import DEPLOYMENT, FREEZES, REGISTERED
from boyd.store.server.connection import Client, pairs, translated
from boyd.store.server.scripts import KeyedScripts, flat


class FreezeCopy:
    """One agent's copy of the freeze marks."""

    def __init__(self, client: Client, scripts: KeyedScripts) -> None:
        self._client = client
        self._scripts = scripts
        self._agent_id = scripts.keys.agent_id

    def compare(self) -> tuple[bool, dict[str, str]]:
        """Compare the copy with the marks of the deployment.

        Returns:
            Whether the agent is registered, so that claims rely on the copy from now on; and the
            latest mark of each scope.

        Raises:
            StoreUnavailable: the server of either does not answer.
        """
        scopes = scopes_concerning(self._agent_id)
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hexists(REGISTERED, self._agent_id)
            pipe.hmget(FREEZES, ["+", *scopes])
            registered, (whole, *found) = pipe.execute()
        # Without `+`, Redis has lost marks that the next heartbeat brings back.
        known = bool(registered) and whole is not None
        marks = {scope: mark for scope, mark in zip(scopes, found, strict=True) if mark is not None}
        _, later = self._scripts.run("confirm_freezes", known=known, marks=flat(marks))
        return known, marks | pairs(later)

    def halt(self) -> str | None:
        """The reason why the agent's model is halted: revoked, or all agents are frozen; or None.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        confirmed, own = self._scripts.run("confirm_freezes", known=False, marks=[])
        marks = pairs(own) if confirmed else self.compare()[1]
        return halt_text(marks.get(revocation_of(self._agent_id)), marks.get(DEPLOYMENT))
