"""Freezes and revocations: while one is in force, no action starts.

The marks are in one hash of the deployment, and in a copy beside each agent's other keys, which
the claim of every execution reads in its own atomic step. They also hold for agents that are
registered later. A revocation, and a freeze of the deployment, halt the models of their agents as
well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from boyd.errors import StoreError
from boyd.models import FROZEN, REVOKED, Actor, from_ms
from boyd.models.responses import WorkerInfo
from boyd.store.keys import AGENTS, DEPLOYMENT, FREEZES, REGISTERED, WORKER_INFO, Keys
from boyd.store.server.connection import Client, pairs, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts, Scripts, actor_fields, flat


class FreezeCopy:
    """One agent's copy of the freeze marks.

    It counts only during the run of the server on which it was compared with the marks: after a
    restart, a failover or a move it may lack the last ones, and is compared again before use.
    """

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
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hexists(REGISTERED, self._agent_id)
            pipe.hmget(FREEZES, ["+", *scopes])
            registered, (whole, *values) = pipe.execute()
        # Without `+`, Redis has lost marks that the next heartbeat brings back.
        is_known = bool(registered) and whole is not None
        marks = {
            scope: mark for scope, mark in zip(scopes, values, strict=True) if mark is not None
        }
        _, later = self._scripts.run("confirm_freezes", known=is_known, marks=flat(marks))
        return is_known, marks | pairs(later)

    def halt(self) -> str | None:
        """The reason for halting the agent's model, if it is revoked or all agents are frozen.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        confirmed, own = self._scripts.run("confirm_freezes", known=False, marks=[])
        marks = pairs(own) if confirmed else self.compare()[1]
        return halt_text(marks.get(revocation_of(self._agent_id)), marks.get(DEPLOYMENT))


_LIFTED = re.compile(r"\d+")
_FROZEN = re.compile(r"(\d+) (.*)", re.DOTALL)


@dataclass(frozen=True)
class Stop:
    """A pause or a freeze in force; `since` is None where it is not known."""

    reason: str
    since: datetime | None


#: The beginning of the scope of a revocation; no agent id has a colon.
_REVOKED = "revoked:"


def revocation_of(agent_id: str) -> str:
    """The scope of the mark that revokes an agent's right to act."""
    return _REVOKED + agent_id


def scopes_of(agent_id: str) -> list[str]:
    """The scopes whose marks freeze an agent: its own, then the deployment."""
    return [agent_id, DEPLOYMENT]


def scopes_concerning(agent_id: str) -> list[str]:
    """The scopes of all marks that concern an agent."""
    return [*scopes_of(agent_id), revocation_of(agent_id)]


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
    return next((reason for mark in marks if (reason := reason_in(mark)) is not None), None)


def halt_text(revoked: str | None, deployment: str | None) -> str | None:
    """The reason for halting an agent's model, from the marks, if there is one."""
    if (reason := reason_in(revoked)) is not None:
        return f"{REVOKED}: {reason}"
    reason = reason_in(deployment)
    return None if reason is None else f"{FROZEN}: {reason}"


class Freezes:
    """The freezes and revocations of one deployment."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts

    def freeze(
        self, reason: str, agent_id: str | None = None, actor: Actor | None = None
    ) -> list[str]:
        """Freeze an agent or, without one, the deployment: no action starts from now on.

        Returns:
            The agents that it has not reached, as with the other changes: their server does not
            answer, so the next heartbeat after it does brings them the mark.

        Raises:
            StoreError: Redis did not confirm the freeze; actions may start.
        """
        return self._set(agent_id, reason, actor)

    def lift(self, agent_id: str | None = None, actor: Actor | None = None) -> list[str]:
        """Lift the freeze of an agent or, without one, of the deployment."""
        return self._set(agent_id, None, actor)

    def revoke(self, agent_id: str, reason: str, actor: Actor | None = None) -> list[str]:
        """Revoke an agent's right to act: no action, approval or model starts from now on.

        Raises:
            StoreError: Redis did not confirm it; actions may start.
        """
        return self._set(agent_id, reason, actor, _REVOKED)

    def restore(self, agent_id: str, actor: Actor | None = None) -> list[str]:
        """Give an agent the right to act again; a freeze stays."""
        return self._set(agent_id, None, actor, _REVOKED)

    def everywhere(self) -> str | None:
        """The reason of the deployment's freeze; None when there is none."""
        with translate_errors(FREEZES):
            return reason_in(self._client.hget(FREEZES, DEPLOYMENT))

    def of(self, agent_id: str) -> str | None:
        """The reason of an agent's own freeze or the deployment's, if there is one."""
        with translate_errors(FREEZES):
            return first_reason(self._client.hmget(FREEZES, scopes_of(agent_id)))

    def stop_of(self, agent_id: str) -> str | None:
        """The freeze or revocation that keeps all actions of an agent from starting, if any."""
        with translate_errors(FREEZES):
            *own, revoked = self._client.hmget(FREEZES, scopes_concerning(agent_id))
        if (reason := reason_in(revoked)) is not None:
            return f"{REVOKED}: {reason}"
        reason = first_reason(own)
        return None if reason is None else f"{FROZEN}: {reason}"

    def revocation(self, agent_id: str) -> str | None:
        """The reason for revoking an agent's right to act, if it is revoked."""
        with translate_errors(FREEZES):
            return reason_in(self._client.hget(FREEZES, revocation_of(agent_id)))

    def all(self) -> Mapping[str, Stop]:
        """All freezes by agent; the deployment's under `DEPLOYMENT`."""
        return {scope: stop for scope, stop in self._in_force().items() if ":" not in scope}

    def revocations(self) -> Mapping[str, Stop]:
        """All revocations by agent."""
        return {
            scope.removeprefix(_REVOKED): stop
            for scope, stop in self._in_force().items()
            if scope.startswith(_REVOKED)
        }

    def _in_force(self) -> dict[str, Stop]:
        with translate_errors(FREEZES):
            marks = self._client.hgetall(FREEZES)
        return {
            scope: _read_mark(mark)
            for scope, mark in sorted(marks.items())
            if not _LIFTED.fullmatch(mark)
        }

    def _set(
        self, agent_id: str | None, reason: str | None, actor: Actor | None, kind: str = ""
    ) -> list[str]:
        scope = agent_id or DEPLOYMENT
        change = {
            "freeze": reason is not None,
            "reason": reason,
            "actor": actor_fields(actor),
            "scope": kind + scope,
        }
        deployment = self._scripts.of(Keys(DEPLOYMENT))
        unreached: list[str] = []
        after = 0
        while mark := deployment.run("set_freeze", after=after, **change):
            copies = self._copy(agent_id, {**change, "mark": mark})
            unreached = [name for name, later in copies.items() if later is None]
            after = max((later or 0 for later in copies.values()), default=0)
            if not after:
                break
            # The deployment's marks were lost, and its clock was ahead before: once more, later.
        return unreached

    def _copy(self, agent_id: str | None, change: Mapping[str, object]) -> dict[str, int | None]:
        """Write a mark to the copies of the agents concerned, with their events.

        Returns:
            For each agent 0, the time in ms of a later mark in its copy, or None for no answer.
        """
        names = [agent_id] if agent_id else self._roster()
        scripts = [self._scripts.of(Keys(name)) for name in names]
        replies = self._scripts.run_each(
            [agent_scripts.call("announce_freeze", **change) for agent_scripts in scripts]
        )
        return {
            name: None if isinstance(reply, StoreError) else int(reply)
            for name, reply in zip(names, replies, strict=True)
        }

    def _roster(self) -> list[str]:
        """All agents; Redis may have lost part of what is known of them, or keep something else."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hkeys(AGENTS)
            pipe.hkeys(REGISTERED)
            pipe.hvals(WORKER_INFO)
            entered, registered, processes = (names or () for names in replies_by_type(pipe))
        served = [name for text in processes for name in _agents_in(text)]
        return sorted({*entered, *registered, *served})


def reason_text(who: str, reason: str | None) -> str:
    """The reason for a pause or freeze, as stored and shown."""
    return f"{reason or 'no reason given'} (by {who})"


def _agents_in(info: str) -> list[str]:
    """The agents of a process that announced itself; empty for an unreadable announcement."""
    try:
        return WorkerInfo.from_json(info).agents
    except ValidationError:
        return []
