"""The loop of an agent: what starts its iterations, what stops that, and what it is doing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from boyd.errors import AgentPaused
from boyd.models import Actor, LoopStatus, Observation, from_ms
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated, whole
from boyd.store.freezes import first_reason, scopes_of
from boyd.store.keys import FREEZES, Keys
from boyd.store.scripts import KeyedScripts
from boyd.store.timing import Timing, milliseconds

#: Fields of an observation's metadata that say what it repeats; see `Loop.intake`.
FINGERPRINT, EVENT_ID = "fingerprint", "eventId"
#: Milliseconds that it is remembered what a request has led to.
REMEMBERED = 86_400_000


@dataclass(frozen=True)
class Slot:
    """A stretch of an agent's `loop_interval` on the Redis server's clock; milliseconds."""

    begins: int
    length: int

    @classmethod
    def at(cls, now: float, interval: float) -> Slot:
        """The slot in which *now* lies; both in seconds."""
        length = milliseconds(interval)
        return cls(milliseconds(now) // length * length, length)


@dataclass(frozen=True)
class Begun:
    """What a trigger or tick came to.

    `begun` or `joined` with the iteration's number; for a tick also `duplicate`, `late` or
    `paused`, and 0.
    """

    outcome: str
    iteration: int

    @property
    def new(self) -> bool:
        """Whether an iteration began and its first message has to be sent."""
        return self.outcome == "begun"


@dataclass(frozen=True)
class Room:
    """How much from outside may wait for one agent.

    Attributes:
        observations: how many.
        bytes: of JSON, all together.
    """

    observations: int = 20_000
    bytes: int = 67_108_864


class Loop:
    """The loop of one agent."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, agent_id: str, timing: Timing
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._agent_id = agent_id
        self._resend_after = timing.resend_after_ms

    def begin(
        self,
        trigger: str,
        slot: Slot | None = None,
        actor: Actor | None = None,
        request: str | None = None,
    ) -> Begun:
        """Take the agent's iteration, or join the one in flight (L3, L4).

        With a *slot* it is a tick of beat, which counts once in its slot and not after it; with an
        *actor* the audit says who asked. The same *request* joins what it has led to before.

        Raises:
            AgentPaused: the agent takes no triggers; a tick is ignored instead (L5).
        """
        outcome, value = self._scripts.run(
            "trigger_iteration",
            asked=self._keys.asked(request or ""),
            trigger=trigger,
            slot=slot.begins if slot else None,
            slot_length=slot.length if slot else 0,
            resend_after=self._resend_after,
            remember_for=REMEMBERED if request else 0,
            actor=actor_fields(actor),
        )
        if outcome == "paused" and slot is None:
            raise AgentPaused(f"agent {self._agent_id!r} is paused: {value}; resume it first")
        return Begun(outcome, int(value) if outcome in ("begun", "joined") else 0)

    def look_again(self, trigger: str) -> int:
        """Have an iteration look at what has come; its number if it begins now, 0 if later (L3)."""
        n = self._scripts.run("request_iteration", trigger=trigger, resend_after=self._resend_after)
        return int(n)

    def intake(
        self,
        observations: Sequence[Observation],
        start: bool,
        actor: Actor | None = None,
        request: str | None = None,
        room: Room | None = None,
    ) -> int:
        """Hand *observations* to the loop; the iteration that began, 0, or -1 without *room*.

        An observation with the source and `metadata.fingerprint` of one that still waits takes its
        place and is counted; one with the source and `metadata.eventId` of one that came within the
        last hour is left out. The same *request* is taken once.
        """
        room = room or Room()
        n = self._scripts.run(
            "accept_observations",
            asked=self._keys.asked(request or ""),
            resend_after=self._resend_after,
            start=start,
            most=room.observations,
            most_bytes=room.bytes,
            remember_for=REMEMBERED if request else 0,
            actor=actor_fields(actor),
            observations=[item for one in observations for item in _handed(one)],
        )
        return int(n)

    def pause(self, reason: str, actor: Actor | None = None) -> None:
        """Ignore ticks and refuse triggers from now on (L5); the iteration in flight ends."""
        self._scripts.run("pause_agent", reason=reason, actor=actor_fields(actor))

    def resume(self, actor: Actor | None = None) -> int:
        """Go on; the number of the iteration that waiting work starts, or 0."""
        n = self._scripts.run(
            "resume_agent", resend_after=self._resend_after, actor=actor_fields(actor)
        )
        return int(n)

    def iteration(self) -> int:
        """The number of the iteration in flight, or else of the last one; 0: there was none."""
        with translated():
            return int(self._client.hget(self._keys.loop, "iteration") or 0)

    def status(self) -> LoopStatus:
        """What the agent is doing now."""
        keys = self._keys
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(keys.loop)
            pipe.hmget(keys.iteration, ["iteration", "phase", "startedAt", "entered"])
            pipe.zcard(keys.runs_pending)
            pipe.zcard(keys.approvals_pending)
            pipe.hmget(FREEZES, scopes_of(self._agent_id))
            loop, (iteration, phase, started, worker), runs, approvals, marks = pipe.execute()
        return LoopStatus(
            agent_id=self._agent_id,
            phase=phase or "idle",
            iteration=whole(iteration) or whole(loop.get("iteration")) or 0,
            start_time=from_ms(began) if (began := whole(started)) else None,
            paused=loop.get("paused"),
            frozen=first_reason(marks),
            pending_runs=runs,
            pending_approvals=approvals,
            worker=worker.split("/")[0] if worker else None,
        )


def _handed(one: Observation) -> tuple[str, str, str]:
    """An observation as the script takes it: how it and its event are known, and its text."""
    return _known(one, FINGERPRINT), _known(one, EVENT_ID), one.to_json()


def _known(one: Observation, field: str) -> str:
    name = (one.metadata or {}).get(field)
    if not isinstance(name, str) or not name:
        return ""
    return hashlib.sha256(f"{one.source}\n{name}".encode()).hexdigest()[:32]
