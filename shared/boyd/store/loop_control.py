"""The loop of an agent: triggers, ticks and intake, pause and resume, and its status."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.errors import AgentPaused, QueueFull
from boyd.models import Actor, LoopStatus, Observation, from_ms, to_ms
from boyd.models.loop import Ticks
from boyd.settings.schedules import Schedule
from boyd.store.freezes import first_reason, reason_in, revocation_of, scopes_of
from boyd.store.hashes import reading
from boyd.store.keys import FREEZES, Keys
from boyd.store.server.connection import Client, read_int, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds
from boyd.store.timing import Timing

#: Fields of an observation's metadata that identify repetitions; see `Loop.intake`.
FINGERPRINT, EVENT_ID = "fingerprint", "eventId"
#: Fields of the data of an alert: its beginning, on which all who send it agree, and its end.
STARTS_AT, ENDS_AT = "startsAt", "endsAt"
#: Milliseconds to remember the outcome of a request.
REMEMBERED = 86_400_000


@dataclass(frozen=True)
class Slot:
    """A time slot on the Redis server's clock, in milliseconds.

    It lasts one `loop_interval`, or if `scheduled` from one start by the schedule until the next.
    """

    begins: int
    length: int
    scheduled: bool = False

    @classmethod
    def at(cls, now: float, ticks: Ticks) -> Slot:
        """Return the slot at *now*, in seconds since the epoch."""
        return cls(ticks.begin(ticks.slot(milliseconds(now))), ticks.length)

    @classmethod
    def of(cls, schedule: Schedule, now: datetime) -> Slot:
        """The slot of a schedule that contains *now*."""
        begins = to_ms(schedule.last(now))
        return cls(begins, to_ms(schedule.following(now)) - begins, scheduled=True)


@dataclass(frozen=True)
class TriggerOutcome:
    """The outcome of a trigger or tick.

    It is `started` or `joined` with the iteration's number; for a tick also `duplicate`, `late` or
    `paused` with 0.
    """

    outcome: str
    iteration: int

    @property
    def new(self) -> bool:
        """True if an iteration started: the caller must send its first message."""
        return self.outcome == "started"


@dataclass(frozen=True)
class IntakeLimits:
    """The limits for observations from outside that wait for one agent.

    Attributes:
        observations: their number.
        bytes: their total size as JSON.
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
        first: bool = False,
    ) -> TriggerOutcome:
        """Begin an iteration, or join the one in flight.

        A call with a *slot* is a tick of beat, which is valid once and only during its slot. The
        *first* tick of a beat for a schedule makes up for a start that was missed while no beat
        ran; for a loop without an earlier slot it starts nothing, because nothing was missed. The
        *actor* is recorded in the audit. Repeating a *request* joins the same iteration.

        Raises:
            AgentPaused: the agent is paused; a tick is ignored instead.
        """
        outcome, value = self._scripts.run(
            "trigger_iteration",
            asked=self._keys.request(request or ""),
            trigger=trigger,
            slot=slot.begins if slot else None,
            slot_length=slot.length if slot else 0,
            slot_field="scheduled" if slot and slot.scheduled else "slot",
            needs_earlier_slot=first,
            resend_after=self._resend_after,
            remember_for=REMEMBERED if request else 0,
            actor=actor_fields(actor),
        )
        if outcome == "paused" and slot is None:
            raise AgentPaused(f"agent {self._agent_id!r} is paused: {value}; resume it first")
        return TriggerOutcome(outcome, int(value) if outcome in ("started", "joined") else 0)

    def look_again(self, trigger: str) -> int:
        """Request an iteration for new work; return its number, or 0 if it begins later."""
        n = self._scripts.run("request_iteration", trigger=trigger, resend_after=self._resend_after)
        return int(n)

    def intake(
        self,
        observations: Sequence[Observation],
        start: bool,
        actor: Actor | None = None,
        request: str | None = None,
        limits: IntakeLimits | None = None,
    ) -> int:
        """Queue all *observations*; return the iteration that started, or 0.

        An observation replaces a waiting one with the same source and `metadata.fingerprint`, and
        is counted. One with the source and `metadata.eventId` of another within the last hour is
        dropped, and so is what a second Alertmanager tells of an alert, or tells too late.
        Repeating a *request* changes nothing.

        Raises:
            QueueFull: they would exceed *limits*; none was queued.
        """
        limits = limits or IntakeLimits()
        n = self._scripts.run(
            "accept_observations",
            asked=self._keys.request(request or ""),
            resend_after=self._resend_after,
            start=start,
            most=limits.observations,
            most_bytes=limits.bytes,
            remember_for=REMEMBERED if request else 0,
            actor=actor_fields(actor),
            observations=[
                item for observation in observations for item in _arguments_of(observation)
            ],
        )
        if n < 0:
            raise QueueFull(
                "too many observations are already waiting; none of these were accepted"
            )
        return int(n)

    def pause(self, reason: str, actor: Actor | None = None) -> None:
        """Ignore ticks and refuse triggers from now on; the iteration in flight still completes."""
        self._scripts.run("pause_agent", reason=reason, actor=actor_fields(actor))

    def resume(self, actor: Actor | None = None) -> int:
        """Resume the agent; return the number of the iteration that waiting work starts, or 0."""
        n = self._scripts.run(
            "resume_agent", resend_after=self._resend_after, actor=actor_fields(actor)
        )
        return int(n)

    def iteration(self) -> int:
        """The number of the iteration in flight or else of the last one; 0 before the first."""
        with translate_errors():
            return read_int(self._client.hget(self._keys.loop, "iteration")) or 0

    def status(self) -> LoopStatus:
        """The current status of the agent."""
        keys = self._keys
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(keys.loop)
            pipe.hmget(keys.iteration, ["iteration", "phase", "startedAt", "entered"])
            pipe.zcard(keys.runs_pending)
            pipe.zcard(keys.approvals_pending)
            pipe.zcard(keys.procedures_stopped)
            pipe.hmget(FREEZES, [*scopes_of(self._agent_id), revocation_of(self._agent_id)])
            loop, flight, runs, approvals, stopped, marks = pipe.execute()
        iteration, phase, started, worker = flight
        with reading("the iteration in flight"):
            return LoopStatus(
                agent_id=self._agent_id,
                phase=phase or "idle",
                iteration=read_int(iteration) or read_int(loop.get("iteration")) or 0,
                start_time=from_ms(began) if (began := read_int(started)) else None,
                paused=loop.get("paused"),
                frozen=first_reason(marks[:-1]),
                revoked=reason_in(marks[-1]),
                pending_runs=runs,
                pending_approvals=approvals,
                stopped_procedures=stopped,
                worker=worker.split("/")[0] if worker else None,
            )


def _arguments_of(observation: Observation) -> tuple[str, ...]:
    """An observation as script arguments: its digests, itself as JSON, and its change, if any."""
    alert = _digest(observation, FINGERPRINT)
    return (
        alert,
        _digest(observation, EVENT_ID),
        observation.to_json(),
        *_change(observation, alert),
    )


def _digest(observation: Observation, field: str) -> str:
    name = (observation.metadata or {}).get(field)
    if not isinstance(name, str) or not name:
        return ""
    return _digest_of(observation.source, name)


def _change(observation: Observation, alert: str) -> tuple[str, str, str]:
    """The status of an alert, a digest of how it came about, and its time; empty if it is none.

    The end of an alert is known by its beginning: two senders need not agree on when it ended.
    """
    status, began = observation.data.get("status"), _time(observation.data.get(STARTS_AT))
    if not alert or status not in ("firing", "resolved") or began is None:
        return "", "", ""
    at = began if status == "firing" else _time(observation.data.get(ENDS_AT)) or began
    change = _digest_of(alert, str(status), began.isoformat(), observation.severity or "")
    return str(status), change, str(to_ms(at))


def _time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time if time and time.tzinfo else None


def _digest_of(*names: str) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]
