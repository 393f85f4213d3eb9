"""Observe: which observers are due, how their work is split, and what they saw (L9-L15)."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from pydantic import Field, TypeAdapter, ValidationError

from boyd.errors import PayloadTooLarge
from boyd.loop import bounded
from boyd.loop.context import PhaseContext, describe
from boyd.models import Model, Observation, ObserverHealth, Problem, explain
from boyd.plugin import Observer

log = logging.getLogger("boyd.loop")

#: Failures in a row after which an observer backs off (L15).
BACKOFF_AFTER = 3
#: The longest back-off, in seconds.
BACKOFF_LIMIT = 300.0
#: An observer that may take longer than this travels alone, in seconds.
SLOW = 30.0

_observations: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])

#: Runs an isolated observer in a process of its own: id, shard, ctx iteration, seconds.
Isolate = Callable[[str, Any, int | None, float], list[Any]]


class Fleet(Protocol):
    """The workers that are alive, as planning needs to know them."""

    def serving(self, queue: str) -> int:
        """How many live workers consume *queue*."""

    def hosts(self) -> list[str]:
        """The hosts that live workers run on, sorted."""

    def host_queue(self, host: str) -> str:
        """The queue that the workers on *host* consume."""


class Task(Model):
    """One observer, or one shard of one; *shard* is JSON text."""

    index: int
    observer: str
    shard: str = "null"


class Unit(Model):
    """Tasks that travel together in one message."""

    queue: str
    tasks: list[Task] = Field(min_length=1)


@dataclass(frozen=True)
class Seen:
    """What one task came to: observations as JSON text, or an error; duration in milliseconds."""

    task: Task
    observations: str | None
    error: str | None
    duration: float


@dataclass(frozen=True)
class Plan:
    """The units to send, by index the observer of each task, and what could not be planned.

    The failures' indexes follow those of the tasks.
    """

    units: list[Unit]
    observers: list[str]
    failures: dict[int, Problem]


def due(
    ctx: PhaseContext,
    last_runs: Mapping[str, float],
    health: Mapping[str, ObserverHealth],
    now: datetime,
) -> list[Observer]:
    """The observers that this iteration runs (L10, L15).

    Args:
        ctx: the phase.
        last_runs: when each observer last ran, in seconds since the epoch.
        health: how each observer has been doing.
        now: the time, from the Redis server.
    """
    mode = ctx.agent.settings.mode
    # Ticks are milliseconds early or late: an interval equal to the loop's is every tick.
    tolerance = ctx.agent.settings.loop_interval / 10
    observers = list(ctx.host.observers.values())
    if mode != "manual":
        observers = [o for o in observers if not _backs_off(ctx, o, health.get(o.id), now)]
    if mode == "continuous":
        observers = [o for o in observers if _elapsed(o, last_runs, now, tolerance)]
    return observers


def _backs_off(
    ctx: PhaseContext, observer: Observer, health: ObserverHealth | None, now: datetime
) -> bool:
    until = health.backoff_until if health else None
    if until is None or until <= now:
        return False
    ctx.report(observer.id, f"left out until {until:%H:%M:%S} UTC, because it keeps failing")
    return True


def _elapsed(
    observer: Observer, last_runs: Mapping[str, float], now: datetime, tolerance: float
) -> bool:
    last = last_runs.get(observer.id)
    if last is None or not observer.interval:
        return True
    return now.timestamp() - last >= observer.interval - tolerance


def plan(
    ctx: PhaseContext,
    observers: Sequence[Observer],
    fleet: Fleet,
    default_queue: str,
    bundle_size: int,
) -> Plan:
    """Split the work of *observers* into units (L12)."""
    return _Planning(ctx, fleet, default_queue, bundle_size).plan(observers)


class _Planning:
    def __init__(
        self, ctx: PhaseContext, fleet: Fleet, default_queue: str, bundle_size: int
    ) -> None:
        self._ctx = ctx
        self._fleet = fleet
        self._default_queue = default_queue
        self._bundle_size = bundle_size
        self._failed: list[tuple[str, str]] = []

    def plan(self, observers: Sequence[Observer]) -> Plan:
        shards = self._partition(observers)
        places = [
            (observer, queue, shard)
            for observer in observers
            for queue, shard in self._places(observer, shards.get(observer.id, []))
            if self._served(observer, queue)
        ]
        tasks = [
            (observer, queue, Task(index=index, observer=observer.id, shard=_json(shard)))
            for index, (observer, queue, shard) in enumerate(places)
        ]
        names = [observer.id for observer, _, _ in places] + [name for name, _ in self._failed]
        failures = {
            len(tasks) + number: Problem(id=name, phase="observe", error=error)
            for number, (name, error) in enumerate(self._failed)
        }
        return Plan(self._units(tasks), names, failures)

    def _places(self, observer: Observer, shards: list[Any]) -> list[tuple[str, Any]]:
        """Where an observer runs, with the shard of each place."""
        if observer.scope != "every_host":
            return [(observer.queue or self._default_queue, shard) for shard in shards]
        hosts = self._fleet.hosts()
        if not hosts:
            self._fail(observer, "no live worker consumes the queue of its host")
        return [(self._fleet.host_queue(host), None) for host in hosts]

    def _partition(self, observers: Sequence[Observer]) -> dict[str, list[Any]]:
        split = [o for o in observers if o.has("partition")]
        calls = [bounded.Call(_partitioner(self._ctx, o), o.timeout) for o in split]
        shards: dict[str, list[Any]] = {observer.id: [None] for observer in observers}
        for observer, outcome in zip(split, bounded.call_all(calls), strict=True):
            shards[observer.id] = outcome.value or []
            if outcome.error is not None:
                self._fail(observer, describe(outcome.error))
        return shards

    def _served(self, observer: Observer, queue: str) -> bool:
        if self._fleet.serving(queue):
            return True
        why = f"no live worker consumes queue {queue!r}; start one with -Q {queue}"
        self._fail(observer, why)
        return False

    def _fail(self, observer: Observer, why: str) -> None:
        log.warning("%s cannot run: %s", observer.id, why, extra={"agent": self._ctx.agent.id})
        if (observer.id, why) not in self._failed:
            self._failed.append((observer.id, why))

    def _units(self, tasks: Sequence[tuple[Observer, str, Task]]) -> list[Unit]:
        alone: list[Unit] = []
        by_queue: dict[str, list[Task]] = {}
        for observer, queue, task in tasks:
            if observer.isolated or observer.timeout > SLOW:
                alone.append(Unit(queue=queue, tasks=[task]))
            else:
                by_queue.setdefault(queue, []).append(task)
        return alone + [
            Unit(queue=queue, tasks=members[number::count])
            for queue, members in by_queue.items()
            for count in [self._bundles(queue, len(members))]
            for number in range(count)
        ]

    def _bundles(self, queue: str, members: int) -> int:
        """One for each live worker, so that all share the work, or as many as it takes."""
        needed = math.ceil(members / self._bundle_size)
        return min(members, max(needed, self._fleet.serving(queue)))


def _partitioner(ctx: PhaseContext, observer: Observer) -> Callable[[], list[Any]]:
    def split() -> list[Any]:
        shards = observer.call("partition", ctx=ctx.context(observer.plugin_id))
        if not isinstance(shards, list):
            raise TypeError(f"partition must return a list, not {type(shards).__name__}")
        for shard in shards:
            _json(shard)
        return shards

    return split


def _json(shard: Any) -> str:
    try:
        return json.dumps(shard, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a shard must be JSON: {error}") from None


def observe(
    ctx: PhaseContext, unit: Unit, isolate: Isolate | None, max_bytes: int, width: int
) -> list[Seen]:
    """Run a unit's observers side by side, each under its time limit (L11).

    Args:
        ctx: the phase.
        unit: what to run.
        isolate: runs isolated observers in a process of their own; None: run them here.
        max_bytes: the most JSON that one task may return.
        width: how many run at the same time.
    """
    calls = [_observing(ctx, task, isolate, max_bytes) for task in unit.tasks]
    outcomes = bounded.call_all(calls, width)
    return [
        Seen(
            task,
            outcome.value,
            describe(outcome.error) if outcome.error is not None else None,
            outcome.duration,
        )
        for task, outcome in zip(unit.tasks, outcomes, strict=True)
    ]


def _observing(
    ctx: PhaseContext, task: Task, isolate: Isolate | None, max_bytes: int
) -> bounded.Call:
    observer = ctx.host.observers.get(task.observer)
    shard = json.loads(task.shard)

    def run() -> str:
        if observer is None:
            raise LookupError(f"this worker's agent has no observer {task.observer!r}")
        if observer.isolated and isolate:
            found = isolate(observer.id, shard, ctx.iteration, observer.timeout)
        else:
            context = ctx.context(observer.plugin_id)
            found = observer.call("observe", ctx=context, shard=shard)
        return _limited(validated(found), max_bytes)

    # An isolated process is killed by its runner; the thread that waits for it gets a grace.
    grace = 5.0 if observer is not None and observer.isolated and isolate else 0.0
    return bounded.Call(run, (observer.timeout if observer else 1.0) + grace)


def validated(found: Any) -> list[Observation]:
    """What an observer or a hook returned, as observations.

    Raises:
        ValueError: it is not a list of observations; the message names the field at fault.
    """
    if found is None or isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise ValueError(f"must return a list of Observation, not {type(found).__name__}")
    items = list(found)
    try:
        # Also what is an Observation already: it may have been changed since it was made.
        return [Observation.model_validate(_fields(item)) for item in items]
    except ValidationError as error:
        raise ValueError(f"returned an invalid observation: {explain(error)}") from None


def _fields(item: Any) -> Any:
    return dict(item.__dict__) if isinstance(item, Observation) else item


def _limited(observations: list[Observation], max_bytes: int) -> str:
    text = dump(observations)
    if len(text) > max_bytes:
        raise PayloadTooLarge(f"returned {len(text)} bytes; the limit is {max_bytes}")
    return text


def dump(observations: list[Observation]) -> str:
    """Observations as JSON text."""
    return _observations.dump_json(observations, by_alias=True, exclude_none=True).decode()


def load(text: str) -> list[Observation]:
    """Observations from JSON text."""
    return _observations.validate_json(text, extra="ignore")


def assemble(
    ctx: PhaseContext, seen: Mapping[int, str], extra: Iterable[Observation]
) -> tuple[list[Observation], list[Observation]]:
    """All observations of the iteration, and those among them that no observer made.

    In order: what the tasks saw by index, *extra*, what hooks add to those (L14).
    """
    observations = [item for index in sorted(seen) for item in load(seen[index])]
    added = list(extra)
    before = [*observations, *added]
    for hook in ctx.host.hooks("on_observe"):
        more = ctx.hook(hook, observations=list(before))
        if more is not None:
            try:
                added += validated(more)
            except ValueError as error:
                ctx.failed(hook, error)
    return observations + added, added


def health_after(
    before: Mapping[str, ObserverHealth],
    ran: Iterable[str],
    failed: Mapping[str, Problem],
    now: datetime,
    loop_interval: float,
) -> dict[str, ObserverHealth]:
    """The health of the observers that *ran* in this iteration (L15)."""
    return {
        observer: (
            _worse(before.get(observer, ObserverHealth()), failed[observer], now, loop_interval)
            if observer in failed
            else ObserverHealth(last_success_at=now)
        )
        for observer in ran
    }


def _worse(
    before: ObserverHealth, problem: Problem, now: datetime, loop_interval: float
) -> ObserverHealth:
    failures = before.failures + 1
    pause = min(BACKOFF_LIMIT, loop_interval * 2 ** min(failures - BACKOFF_AFTER, 16))
    return ObserverHealth(
        failures=failures,
        last_success_at=before.last_success_at,
        last_error=problem.error,
        last_error_at=now,
        backoff_until=now + timedelta(seconds=pause) if failures >= BACKOFF_AFTER else None,
    )
