"""Freezes: while acting is frozen, of one agent or of all, no action starts (L34).

A freeze is a mark in one hash of the deployment, which every claim of an action reads in the step
that takes the right to execute. It does not depend on which agents are registered, and so holds
for agents that start later, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from boyd.models import Actor
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated
from boyd.store.keys import AGENTS, DEPLOYMENT, FREEZES, Keys
from boyd.store.scripts import Scripts

_LIFTED = re.compile(r"\d+")
_FROZEN = re.compile(r"\d+ (.*)", re.DOTALL)


def scopes_of(agent_id: str) -> list[str]:
    """The marks that decide whether an agent may act: its own, then that of the deployment."""
    return [agent_id, DEPLOYMENT]


def reason_in(mark: str | None) -> str | None:
    """Why acting is frozen by that mark; None when it is not.

    A mark that cannot be read counts as a freeze, as it does in the scripts.
    """
    if mark is None or _LIFTED.fullmatch(mark):
        return None
    frozen = _FROZEN.fullmatch(mark)
    return frozen[1] if frozen else "the freeze mark cannot be read"


def first_reason(marks: Sequence[str | None]) -> str | None:
    """Why acting is frozen by the first of those marks that freezes."""
    return next((why for mark in marks if (why := reason_in(mark)) is not None), None)


class Freezes:
    """The freezes of one deployment."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts

    def freeze(self, reason: str, agent_id: str | None = None, actor: Actor | None = None) -> None:
        """Let no action start from now on: of that agent or, without one, of all.

        Raises:
            StoreError: Redis did not confirm it; actions may start.
        """
        self._set(agent_id, reason, actor)

    def lift(self, agent_id: str | None = None, actor: Actor | None = None) -> None:
        """Lift the freeze of that agent or, without one, that of all."""
        self._set(agent_id, None, actor)

    def everywhere(self) -> str | None:
        """Why acting is frozen everywhere; None when it is not."""
        with translated():
            return reason_in(self._client.hget(FREEZES, DEPLOYMENT))

    def of(self, agent_id: str) -> str | None:
        """Why that agent may not act, by its own freeze or by that of all; None when it may."""
        with translated():
            return first_reason(self._client.hmget(FREEZES, scopes_of(agent_id)))

    def all(self) -> Mapping[str, str]:
        """Why acting is frozen, by agent; that of all under `DEPLOYMENT`."""
        with translated():
            marks = self._client.hgetall(FREEZES)
        reasons = {scope: reason_in(mark) for scope, mark in sorted(marks.items())}
        return {scope: why for scope, why in reasons.items() if why is not None}

    def _set(self, agent_id: str | None, reason: str | None, actor: Actor | None) -> None:
        scope = agent_id or DEPLOYMENT
        change = {
            "freeze": reason is not None,
            "reason": reason,
            "actor": actor_fields(actor),
        }
        if self._scripts.of(Keys(scope)).run("set_freeze", scope=scope, **change):
            self._note(agent_id, change)

    def _note(self, agent_id: str | None, change: Mapping[str, object]) -> None:
        """Tell the agents' events; the freeze holds already, whoever is known here."""
        with translated():
            agents = [agent_id] if agent_id else self._client.hkeys(AGENTS)
            pipe = self._client.pipeline(transaction=False)
            scope = "agent" if agent_id else "everywhere"
            for keys in map(Keys, agents):
                scripts = self._scripts.of(keys)
                self._scripts.run(scripts.call("announce_freeze", scope=scope, **change), pipe)
            pipe.execute()


def reason_text(who: str, why: str | None) -> str:
    """A reason for a pause or a freeze as it is stored and shown."""
    return f"{why or 'no reason given'} (by {who})"
