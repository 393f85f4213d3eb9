"""Freezes: while an agent or the deployment is frozen, no action starts.

A freeze is a mark in one hash of the deployment, which the claim of every execution reads in its
own atomic step. It also holds for agents that are registered later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.models import Actor, from_ms
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated
from boyd.store.keys import AGENTS, DEPLOYMENT, FREEZES, Keys
from boyd.store.scripts import Scripts

_LIFTED = re.compile(r"\d+")
_FROZEN = re.compile(r"(\d+) (.*)", re.DOTALL)


@dataclass(frozen=True)
class Stop:
    """A pause or a freeze in force; `since` is None where it is not known."""

    reason: str
    since: datetime | None


def scopes_of(agent_id: str) -> list[str]:
    """The scopes whose marks freeze an agent: its own, then the deployment."""
    return [agent_id, DEPLOYMENT]


def reason_in(mark: str | None) -> str | None:
    """The reason of the freeze in *mark*; None when it freezes nothing.

    A mark that cannot be read counts as a freeze, as it does in the scripts.
    """
    if mark is None or _LIFTED.fullmatch(mark):
        return None
    return _read_mark(mark).reason


def _read_mark(mark: str) -> Stop:
    frozen = _FROZEN.fullmatch(mark)
    if frozen is None:
        return Stop("the freeze mark cannot be read", None)
    return Stop(frozen[2], from_ms(float(frozen[1])))


def first_reason(marks: Sequence[str | None]) -> str | None:
    """The reason of the first freeze in *marks*; None without any."""
    return next((why for mark in marks if (why := reason_in(mark)) is not None), None)


class Freezes:
    """The freezes of one deployment."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts

    def freeze(self, reason: str, agent_id: str | None = None, actor: Actor | None = None) -> None:
        """Freeze an agent or, without one, the deployment: no action starts from now on.

        Raises:
            StoreError: Redis did not confirm the freeze; actions may start.
        """
        self._set(agent_id, reason, actor)

    def lift(self, agent_id: str | None = None, actor: Actor | None = None) -> None:
        """Lift the freeze of an agent or, without one, of the deployment."""
        self._set(agent_id, None, actor)

    def everywhere(self) -> str | None:
        """The reason of the deployment's freeze; None when there is none."""
        with translated():
            return reason_in(self._client.hget(FREEZES, DEPLOYMENT))

    def of(self, agent_id: str) -> str | None:
        """The reason why an agent is frozen, by its own freeze or the deployment's; else None."""
        with translated():
            return first_reason(self._client.hmget(FREEZES, scopes_of(agent_id)))

    def all(self) -> Mapping[str, Stop]:
        """All freezes by agent; the deployment's under `DEPLOYMENT`."""
        with translated():
            marks = self._client.hgetall(FREEZES)
        return {
            scope: _read_mark(mark)
            for scope, mark in sorted(marks.items())
            if not _LIFTED.fullmatch(mark)
        }

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
        """Write events for the agents concerned; the freeze itself already holds."""
        with translated():
            agents = [agent_id] if agent_id else self._client.hkeys(AGENTS)
            pipe = self._client.pipeline(transaction=False)
            scope = "agent" if agent_id else "everywhere"
            for keys in map(Keys, agents):
                scripts = self._scripts.of(keys)
                self._scripts.run(scripts.call("announce_freeze", scope=scope, **change), pipe)
            pipe.execute()


def reason_text(who: str, why: str | None) -> str:
    """The reason for a pause or freeze, as stored and shown."""
    return f"{why or 'no reason given'} (by {who})"
