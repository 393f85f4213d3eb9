"""The iteration in flight, its phases and units, and the history of past ones.

Every move is one script; each returns what happened instead of raising, because a message that
comes twice or late is normal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from boyd.errors import AgentPaused, StoreError
from boyd.models import (
    Actor,
    LoopResult,
    LoopStatus,
    Observation,
    ObserverHealth,
    Phase,
    Problem,
    Refusal,
    RunResult,
    Situation,
    from_ms,
)
from boyd.models.answers import IterationSummary
from boyd.store.audit import actor_fields
from boyd.store.client import Client, pairs, translated
from boyd.store.keys import Keys
from boyd.store.outline import FIELDS, Outlines, outline_of, read_outline
from boyd.store.portion import Portion
from boyd.store.record import Record, dump_blocks, dump_problems
from boyd.store.retention import Retention
from boyd.store.scripts import Scripts

#: Milliseconds that it is remembered what a request has led to.
REMEMBERED = 86_400_000
#: How much of what is due `take_due` takes at once.
MOST_DUE = 100


@dataclass(frozen=True)
class Timing:
    """How patient the engine is, in seconds; see docs/configuration.md."""

    dispatch: float = 2.0
    lease: float = 3.0
    patience: float = 300.0
    attempts: int = 3


@dataclass(frozen=True)
class Slot:
    """A stretch of an agent's `loop_interval` on the Redis server's clock; milliseconds."""

    begins: int
    length: int

    @classmethod
    def at(cls, now: float, interval: float) -> Slot:
        """The slot in which *now* lies; both in seconds."""
        length = int(interval * 1000)
        return cls(int(now * 1000) // length * length, length)


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
class Entry:
    """A phase that was entered; `fields` is the iteration's whole record as stored."""

    iteration: int
    epoch: int
    phase: Phase
    worker: str
    now: datetime
    fields: Mapping[str, str]
    runs: Sequence[Mapping[str, str]] = ()

    @property
    def record(self) -> Record:
        """The record, readable."""
        return Record(self.fields)


@dataclass(frozen=True)
class Retry:
    """A phase to send again; with `finish` nobody could complete the iteration."""

    iteration: int
    epoch: int
    phase: Phase
    queue: str | None
    finish: bool = False


@dataclass(frozen=True)
class StuckUnit:
    """A unit that passed its deadline: `lost` with its worker, or still waiting for one."""

    iteration: int
    unit: int
    attempt: int
    payload: str
    worker: str
    lost: bool
    waited: float


@dataclass(frozen=True)
class RunEnd:
    """What becomes of a run when its iteration ends; without a status it waits."""

    run_id: str
    status: str | None
    result: RunResult
    approval_id: str | None


class Iterations:
    """The iterations of one agent."""

    def __init__(
        self, client: Client, scripts: Scripts, keys: Keys, agent_id: str, timing: Timing
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._agent_id = agent_id
        self._timing = timing
        self._dispatch = _ms(timing.dispatch)
        self._lease = _ms(timing.lease)

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
        keys = self._keys
        length = slot.length if slot else 0
        remember = REMEMBERED if request else 0
        args = [trigger, slot.begins if slot else "", self._dispatch, length, remember]
        names = [
            *(keys.loop, keys.iteration, keys.due, keys.events),
            *(keys.audit_open, keys.asked(request or "")),
        ]
        outcome, value = self._scripts.run("begin", names, [*args, *actor_fields(actor)])
        if outcome == "paused" and slot is None:
            raise AgentPaused(f"agent {self._agent_id!r} is paused: {value}; resume it first")
        return Begun(outcome, int(value) if outcome in ("begun", "joined") else 0)

    def look_again(self, trigger: str) -> int:
        """Have an iteration look at what has come; its number if it begins now, 0 if later (L3)."""
        keys = self._keys
        names = [keys.loop, keys.iteration, keys.due, keys.events]
        return int(self._scripts.run("look_again", names, [trigger, self._dispatch]))

    def enter(
        self, iteration: int, epoch: int, phase: Phase, worker: str, fields: Sequence[str] = ()
    ) -> Entry | None:
        """Enter a phase; None when it is not due under this epoch or somebody is in it.

        Only *fields* of the record come back; all of them when none is named.
        """
        names = [self._keys.iteration, self._keys.due]
        args = [iteration, epoch, phase, worker, self._lease, *fields]
        if not fields:
            reply, record = self._scripts.run_and_read("enter", names, args, self._keys.iteration)
            return _entered(reply, record, iteration, epoch, phase, worker)
        reply = self._scripts.run("enter", names, args)
        if reply[0] != "ok":
            return None
        return Entry(iteration, epoch, phase, worker, from_ms(reply[1]), pairs(reply[2]))

    def enter_orient(self, iteration: int, epoch: int, worker: str) -> Entry | None:
        """Enter orient and claim the runs and intake events that wait (L13)."""
        keys = self._keys
        names = [keys.iteration, keys.due, keys.runs_pending, keys.intake, keys.events]
        args = [iteration, epoch, worker, self._lease, keys.run_prefix]
        reply, record = self._scripts.run_and_read("enter_orient", names, args, keys.iteration)
        entry = _entered(reply, record, iteration, epoch, "orient", worker)
        return replace(entry, runs=[pairs(run) for run in reply[2]]) if entry else None

    def leave(self, entry: Entry, following: Phase, fields: Mapping[str, str]) -> bool:
        """Leave a phase with what it produced; False when the entry was lost."""
        flat = [item for pair in fields.items() for item in pair]
        args = [*_fence(entry), following, self._dispatch, *flat]
        names = [self._keys.iteration, self._keys.due, self._keys.events]
        return bool(self._scripts.run("leave", names, args) == "ok")

    def put_back(self, entry: Entry, seconds: float) -> bool:
        """Give a phase back that cannot be worked on for so many *seconds*; no attempt is lost."""
        args = [*_fence(entry), _ms(seconds)]
        return bool(self._scripts.run("put_back", [self._keys.iteration, self._keys.due], args))

    def plan(
        self,
        entry: Entry,
        observers: Sequence[str],
        units: Sequence[str],
        failures: Mapping[str, str],
        problems: list[Problem],
        blocks: list[Refusal],
    ) -> bool:
        """Leave start and open the units of observe; False when the entry was lost."""
        ran = list(dict.fromkeys(observers))
        flat = [item for pair in failures.items() for item in pair]
        args = [
            *(entry.iteration, entry.epoch, entry.worker, self._dispatch),
            *(json.dumps(list(observers)), dump_problems(problems), dump_blocks(blocks)),
            *(len(flat), *flat, len(ran), *ran, *units),
        ]
        keys = self._keys
        names = [keys.iteration, keys.due, keys.events, keys.ran]
        return bool(self._scripts.run("plan", names, args) == "ok")

    def leave_orient(
        self,
        entry: Entry,
        situation: Situation,
        added: str,
        problems: list[Problem],
        blocks: list[Refusal],
        health: Mapping[str, ObserverHealth],
    ) -> bool:
        """Leave orient with the situation; False when the entry was lost.

        *added* are the observations that no observer made, as JSON text.
        """
        flat = [item for name, value in health.items() for item in (name, value.to_json())]
        args = [
            *(entry.iteration, entry.epoch, entry.worker, self._dispatch, situation.to_json()),
            *(added, dump_problems(problems), dump_blocks(blocks)),
            *(situation.summary, *flat),
        ]
        keys = self._keys
        names = [keys.iteration, keys.due, keys.events, keys.health]
        return bool(self._scripts.run("leave_orient", names, args) == "ok")

    def enter_unit(self, iteration: int, unit: int, attempt: int, worker: str) -> str | None:
        """Enter a unit of observe; its payload, or None when it is not open for us."""
        args = [iteration, unit, attempt, worker, self._lease]
        reply = self._scripts.run("enter_unit", [self._keys.iteration, self._keys.due], args)
        return str(reply[1]) if reply[0] == "ok" else None

    def sign_off(
        self, iteration: int, unit: int, attempt: int, worker: str, fields: Mapping[str, str]
    ) -> tuple[int, int] | None:
        """Sign a unit off; how many are open and the epoch, or None when it was not ours.

        To give a unit up, *worker* is the one that has lost it, or empty when nobody entered it.
        """
        flat = [item for pair in fields.items() for item in pair]
        args = [iteration, unit, attempt, worker, self._dispatch, *flat]
        names = [self._keys.iteration, self._keys.due, self._keys.events]
        reply = self._scripts.run("sign_off", names, args)
        return (int(reply[1]), int(reply[2])) if reply[0] == "ok" else None

    def replace_unit(
        self, iteration: int, unit: int, attempt: int, payloads: Sequence[str]
    ) -> tuple[int, int] | None:
        """Put other units in place of a lost one; number of the first and their attempt."""
        args = [iteration, unit, attempt, self._dispatch, *payloads]
        reply = self._scripts.run("replace_unit", [self._keys.iteration, self._keys.due], args)
        return (int(reply[1]), int(reply[2])) if reply[0] == "ok" else None

    def renew(self, iteration: int, member: str, fence: int, worker: str) -> bool:
        """Renew the lease of a phase (`phase`) or a unit (`unit:3`); False when it is lost."""
        args = [iteration, member, fence, worker, self._lease]
        return bool(self._scripts.run("renew", [self._keys.iteration, self._keys.due], args))

    def finish(
        self,
        iteration: int,
        epoch: int,
        worker: str,
        result: LoopResult,
        runs: Iterable[RunEnd],
        unheard: RunResult,
        retention: Retention,
    ) -> int | None:
        """End the iteration; the number of the follow-up or 0, or None when the entry was lost.

        Args:
            iteration: its number.
            epoch: its fencing token.
            worker: as it entered `complete`; empty when the sweeper ends it.
            result: the complete result.
            runs: what becomes of its runs.
            unheard: the result of runs that it was to look into and could not even claim.
            retention: what is kept of iterations and finished runs.
        """
        keys = self._keys
        ends = [
            item
            for run in runs
            for item in (run.run_id, run.status or "", run.result.to_json(), run.approval_id or "")
        ]
        action = result.decision.action if result.decision else ""
        summary = result.situation.summary if result.situation else ""
        args = [
            *(iteration, epoch, worker, self._dispatch, int(result.success), result.error or ""),
            *(*retention.of_iterations(), keys.iterations),
            *(keys.prefix, *retention.of_runs(), action, summary[:200]),
            *(dump_problems(result.problems), unheard.to_json()),
            *(outline_of(result).to_json(), *ends),
        ]
        names = [
            *(keys.iteration, keys.loop, keys.due, keys.events, keys.history),
            *(keys.archived(iteration), keys.runs_pending, keys.intake),
            *(keys.runs, keys.runs_finished, keys.audit_open),
        ]
        reply = self._scripts.run("finish", names, args)
        return int(reply[1]) if reply[0] == "ok" else None

    def take_due(self) -> dict[str, str]:
        """What has passed its deadline: `phase`, `unit:<number>`, each with a proof of taking."""
        return pairs(self._scripts.run("take_due", *self.due_call()))

    def due_call(self) -> tuple[list[str], list[int]]:
        """Keys and arguments of the script `take_due`."""
        return [self._keys.due, self._keys.loop], [self._lease, MOST_DUE]

    def retry_phase(self, proof: str) -> Retry | None:
        """Decide what becomes of a phase that passed its deadline; None when it has moved since."""
        timing = self._timing
        names = [self._keys.iteration, self._keys.due, self._keys.events]
        args = [self._dispatch, timing.attempts, _ms(timing.patience), proof]
        reply = self._scripts.run("retry_phase", names, args)
        if reply[0] == "none":
            return None
        if reply[0] == "finish":
            return Retry(int(reply[1]), int(reply[2]), "complete", None, finish=True)
        return Retry(int(reply[1]), int(reply[2]), reply[3], reply[4] or None)

    def retry_unit(self, unit: int, proof: str) -> StuckUnit | None:
        """Find out why a unit passed its deadline; None when it is done or has moved since."""
        names = [self._keys.iteration, self._keys.due]
        reply = self._scripts.run("retry_unit", names, [unit, self._dispatch, proof])
        if reply[0] == "none":
            return None
        state, iteration, attempt, payload, worker, waited = reply
        lost = state == "lost"
        return StuckUnit(
            int(iteration), unit, int(attempt), payload, worker, lost, int(waited) / 1000
        )

    def current(self) -> Record | None:
        """The iteration in flight."""
        with translated():
            fields = self._client.hgetall(self._keys.iteration)
        return Record(fields) if fields else None

    def situation(self) -> Situation | None:
        """The latest situation: of the iteration in flight, or of the one before it."""
        keys = self._keys
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hget(keys.iteration, "situation")
            pipe.hget(keys.loop, "iteration")
            pipe.hget(keys.loop, "active")
            current, counter, active = pipe.execute()
            if current is None and counter is not None:
                last = int(counter) - (1 if active else 0)
                current = self._client.hget(keys.archived(last), "situation")
        return Situation.from_json(current) if current else None

    def last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        """When each observer last ran, in seconds since the epoch, and how it has been doing."""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self._keys.ran)
            pipe.hgetall(self._keys.health)
            ran, health = pipe.execute()
        return {name: float(ms) / 1000 for name, ms in ran.items()}, _read_health(health)

    def health(self, observers: Sequence[str]) -> dict[str, ObserverHealth]:
        """How those *observers* have been doing (L15)."""
        if not observers:
            return {}
        with translated():
            texts = self._client.hmget(self._keys.health, list(observers))
        found = zip(observers, texts, strict=True)
        return _read_health({name: text for name, text in found if text})

    def status(self) -> LoopStatus:
        """What the agent is doing now."""
        keys = self._keys
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(keys.loop)
            pipe.hmget(keys.iteration, ["iteration", "phase", "startedAt", "entered"])
            pipe.zcard(keys.runs_pending)
            pipe.zcard(keys.approvals_pending)
            loop, (iteration, phase, started, worker), runs, approvals = pipe.execute()
        return LoopStatus(
            agent_id=self._agent_id,
            phase=phase or "idle",
            iteration=int(iteration or loop.get("iteration", 0)),
            start_time=from_ms(float(started)) if started else None,
            paused=loop.get("paused"),
            frozen=loop.get("frozen") or loop.get("frozenEverywhere"),
            pending_runs=runs,
            pending_approvals=approvals,
            worker=worker.split("/")[0] if worker else None,
        )

    def history(self, limit: int = 50, before: int | None = None) -> list[LoopResult]:
        """A few past iterations as a whole, newest first; *before* is the number to go on from."""
        keys = self._keys
        with translated():
            last = before if before is not None else int(self._counter()) + 1
            numbers = range(last - 1, max(0, last - 1 - limit), -1)
            pipe = self._client.pipeline(transaction=False)
            for number in numbers:
                pipe.hgetall(keys.archived(number))
            records = [Record(fields) for fields in pipe.execute() if fields]
        return [record.result(self._agent_id, record.started_at) for record in records]

    def outlines(self, limit: int = 50, before: int | None = None) -> Outlines:
        """Past iterations in a few words, newest first; *before* is the number to go on from.

        Only a `Portion` is read, so there may be fewer than *limit* and still more to come.
        """
        with translated():
            last = before if before is not None else int(self._counter()) + 1
        # One more tells whether there are more; the newest may be in flight, and is not shown then.
        numbers = range(last - 1, max(0, last - limit - 3), -1)
        portion = Portion(self._scripts)
        read = portion.read(self._keys.iterations, list(map(str, numbers)), FIELDS)
        found: list[IterationSummary] = []
        for number, fields in zip(numbers, read, strict=False):
            outline = self._outline(number, fields)
            if outline is not None:
                found.append(outline)
        shown = found[:limit]
        more = len(found) > limit or portion.full
        return Outlines(shown, shown[-1].iteration if more and shown else None)

    def past(self, iteration: int) -> LoopResult | None:
        """One past iteration."""
        with translated():
            fields = self._client.hgetall(self._keys.archived(iteration))
        record = Record(fields)
        return record.result(self._agent_id, record.started_at) if fields else None

    def pause(self, reason: str, actor: Actor | None = None) -> None:
        """Ignore ticks and refuse triggers from now on (L5); the iteration in flight ends."""
        names = [self._keys.loop, self._keys.events, self._keys.audit_open]
        self._scripts.run("pause", names, [reason, *actor_fields(actor)])

    def resume(self, actor: Actor | None = None) -> int:
        """Go on; the number of the iteration that waiting work starts, or 0."""
        keys = self._keys
        names = [
            *(keys.loop, keys.iteration, keys.due, keys.events, keys.runs_pending, keys.intake),
            keys.audit_open,
        ]
        return int(self._scripts.run("resume", names, [self._dispatch, *actor_fields(actor)]))

    def intake(
        self,
        observations: list[Observation],
        start: bool,
        actor: Actor | None = None,
        request: str | None = None,
        most: int = 10_000,
    ) -> int:
        """Hand *observations* to the loop; the iteration that began, 0, or -1 when it is full.

        The same *request* is taken once.
        """
        keys = self._keys
        names = [
            *(keys.intake, keys.loop, keys.iteration, keys.due, keys.events),
            *(keys.audit_open, keys.asked(request or "")),
        ]
        payload = [observation.to_json() for observation in observations]
        who = actor_fields(actor)
        remember = REMEMBERED if request else 0
        args = [self._dispatch, int(start), most, remember, len(who), *who, *payload]
        return int(self._scripts.run("intake", names, args))

    def _outline(self, number: int, fields: Mapping[str, str]) -> IterationSummary | None:
        if not fields:
            return None
        # A record of an earlier release tells it only as a whole.
        result = None if "outline" in fields else self.past(number)
        return outline_of(result) if result else read_outline(fields)

    def _counter(self) -> str:
        value: str | None = self._client.hget(self._keys.loop, "iteration")
        return value or "0"


def take_all_due(scripts: Scripts, each: Sequence[Iterations]) -> list[dict[str, str] | StoreError]:
    """What has passed its deadline, of several agents, in one round trip.

    Of one agent it is `MOST_DUE` at most: when it is as much, there may be more. An error stands
    for an agent whose work could not be taken.
    """
    replies = scripts.run_each("take_due", [one.due_call() for one in each])
    return [reply if isinstance(reply, StoreError) else pairs(reply) for reply in replies]


def _entered(
    reply: list[Any],
    record: Mapping[str, str],
    iteration: int,
    epoch: int,
    phase: Phase,
    worker: str,
) -> Entry | None:
    """An entry whose record was read in a step of its own; None when it was lost before that.

    While the record names it, nobody but its worker has written what phases produce.
    """
    ours = {"iteration": str(iteration), "epoch": str(epoch), "phase": phase, "entered": worker}
    if reply[0] != "ok" or not ours.items() <= record.items():
        return None
    return Entry(iteration, epoch, phase, worker, from_ms(reply[1]), record)


def _fence(entry: Entry) -> list[Any]:
    return [entry.iteration, entry.epoch, entry.phase, entry.worker]


def _read_health(texts: Mapping[str, str]) -> dict[str, ObserverHealth]:
    return {name: ObserverHealth.from_json(text) for name, text in texts.items()}


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
