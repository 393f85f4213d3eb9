"""The observe phase: which observers run, what they observe, and how healthy they are then."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from boyd.errors import PayloadTooLarge
from boyd.models import (
    JsonObject,
    Model,
    NotDue,
    Observation,
    ObserverHealth,
    Problem,
    Run,
    Severity,
    explain,
)
from boyd.models.loop import Ticks
from boyd.models.situation import FORGED
from boyd.phases import time_limit
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Observer
from boyd.plugin.plugin_boundary import read_all, unchecked
from boyd.text import redaction

log = logging.getLogger("boyd.phases")

_SEVERITY: dict[str, Severity] = {
    "low": "info",
    "medium": "warning",
    "high": "error",
    "critical": "critical",
}

#: An observer with a longer time limit, in seconds, gets a batch of its own.
SLOW = 30.0

#: Runs an isolated observer in its own process: id, shard, iteration, time limit in seconds.
Isolate = Callable[[str, Any, int | None, float], list[Any]]

_observations: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])


class FleetView(Protocol):
    """The live workers."""

    def serving(self, queue: str) -> int:
        """The number of live workers that consume *queue*."""

    def hosts(self) -> list[str]:
        """The hosts of live workers, sorted."""

    def host_queue(self, host: str) -> str:
        """The queue that the workers on *host* consume."""


class ObserverTask(Model):
    """One observer, or one shard of one; *shard* is JSON text."""

    index: int
    observer: str
    shard: str = "null"


class Batch(Model):
    """Tasks that one message assigns to a worker."""

    queue: str
    tasks: list[ObserverTask] = Field(min_length=1)


@dataclass(frozen=True)
class ObservePlan:
    """The batches to send, by index the observer of each task, and what could not be planned.

    The failures' indexes follow those of the tasks.
    """

    batches: list[Batch]
    observers: list[str]
    failures: dict[int, Problem]


def due(
    ctx: PhaseContext,
    last_runs: Mapping[str, float],
    health: Mapping[str, ObserverHealth],
    now: datetime,
    tick: bool = False,
) -> list[Observer]:
    """The observers that this iteration runs; `ctx.not_due` receives the others.

    *last_runs* has seconds since the epoch, and *now* is the Redis server's time. *tick* is true if
    beat started the iteration.
    """
    mode = ctx.agent.settings.mode
    observers = list(ctx.host.observers.values())
    if mode != "manual":
        observers = [o for o in observers if not _report_backoff(ctx, o, health.get(o.id), now)]
    if mode != "continuous":
        return observers
    rhythm = _Rhythm(ctx.agent.settings.ticks, now.timestamp(), tick)
    ctx.not_due = [
        NotDue(id=o.id, due_at=datetime.fromtimestamp(at, UTC))
        for o in observers
        if (at := rhythm.due_later(o, last_runs.get(o.id))) is not None
    ]
    later = {item.id for item in ctx.not_due}
    return [o for o in observers if o.id not in later]


def _report_backoff(
    ctx: PhaseContext, observer: Observer, health: ObserverHealth | None, now: datetime
) -> bool:
    """Report an observer that backs off; False for any other."""
    until = health.backoff_until if health else None
    # A longer pause was set before the clock of Redis stepped back.
    if until is None or not timedelta() < until - now <= timedelta(seconds=BACKOFF_LIMIT):
        return False
    ctx.report(observer.id, f"skipped until {until:%H:%M:%S} UTC because it keeps failing")
    return True


@dataclass(frozen=True)
class _Rhythm:
    """Maps observer intervals to ticks; times in seconds.

    An observer runs at varying offsets within a slot. Counting ticks instead makes an interval
    equal to `loop_interval` mean every tick.
    """

    ticks: Ticks
    now: float
    tick: bool

    def due_later(self, observer: Observer, last: float | None) -> float | None:
        """Compute when *observer* is due after its run at *last*; None if it is due now."""
        # A run that lies ahead is from before the clock of Redis stepped back.
        if last is None or last > self.now or not observer.interval:
            return None
        # A trigger may precede its tick slightly.
        length = self.ticks.length / 1000
        wait = observer.interval - (0 if self.tick else length / 10)
        ticks = max(1, math.ceil(round(observer.interval / length, 6)))
        passed = self._slot(self.now) - self._slot(last)
        if self.now - last >= wait or (self.tick and max(1, passed) >= ticks):
            return None
        following = max(self._slot(self.now) + 1, self._slot(last) + ticks)
        return min(last + wait, self.ticks.begin(following) / 1000)

    def _slot(self, at: float) -> int:
        return self.ticks.slot(at * 1000)


def plan(
    ctx: PhaseContext,
    observers: Sequence[Observer],
    fleet: FleetView,
    default_queue: str,
    bundle_size: int,
) -> ObservePlan:
    """Split the work of *observers* into batches."""
    return _Planning(ctx, fleet, default_queue, bundle_size).plan(observers)


class _Planning:
    def __init__(
        self, ctx: PhaseContext, fleet: FleetView, default_queue: str, bundle_size: int
    ) -> None:
        self._ctx = ctx
        self._fleet = fleet
        self._default_queue = default_queue
        self._bundle_size = bundle_size
        self._failed: list[tuple[str, str]] = []

    def plan(self, observers: Sequence[Observer]) -> ObservePlan:
        shards = self._partition(observers)
        places = [
            (observer, queue, shard)
            for observer in observers
            for queue, shard in self._places(observer, shards.get(observer.id, []))
            if self._fail_unless_served(observer, queue)
        ]
        tasks = [
            (observer, queue, ObserverTask(index=index, observer=observer.id, shard=_json(shard)))
            for index, (observer, queue, shard) in enumerate(places)
        ]
        names = [observer.id for observer, _, _ in places] + [name for name, _ in self._failed]
        failures = {
            len(tasks) + number: Problem(id=name, phase="observe", error=error)
            for number, (name, error) in enumerate(self._failed)
        }
        return ObservePlan(self._batches(tasks), names, failures)

    def _places(self, observer: Observer, shards: list[Any]) -> list[tuple[str, Any]]:
        """The queues that an observer runs on, with the shard for each."""
        if observer.scope != "every_host":
            return [(observer.queue or self._default_queue, shard) for shard in shards]
        hosts = self._fleet.hosts()
        if not hosts:
            self._fail(observer, "no live worker consumes the queue of its host")
        return [(self._fleet.host_queue(host), None) for host in hosts]

    def _partition(self, observers: Sequence[Observer]) -> dict[str, list[Any]]:
        split = [o for o in observers if o.has("partition")]
        calls = [time_limit.TimedCall(_partitioner(self._ctx, o), o.timeout) for o in split]
        shards: dict[str, list[Any]] = {observer.id: [None] for observer in observers}
        for observer, outcome in zip(split, time_limit.call_all(calls), strict=True):
            shards[observer.id] = outcome.value or []
            if outcome.error is not None:
                self._fail(observer, describe(outcome.error))
        return shards

    def _fail_unless_served(self, observer: Observer, queue: str) -> bool:
        if self._fleet.serving(queue):
            return True
        reason = f"no live worker consumes queue {queue!r}; start one with -Q {queue}"
        self._fail(observer, reason)
        return False

    def _fail(self, observer: Observer, reason: str) -> None:
        log.warning("%s cannot run: %s", observer.id, reason, extra={"agent": self._ctx.agent.id})
        if (observer.id, reason) not in self._failed:
            self._failed.append((observer.id, reason))

    def _batches(self, tasks: Sequence[tuple[Observer, str, ObserverTask]]) -> list[Batch]:
        alone: list[Batch] = []
        by_queue: dict[str, list[ObserverTask]] = {}
        for observer, queue, task in tasks:
            if observer.isolated or observer.timeout > SLOW:
                alone.append(Batch(queue=queue, tasks=[task]))
            else:
                by_queue.setdefault(queue, []).append(task)
        return alone + [
            Batch(queue=queue, tasks=members[number::count])
            for queue, members in by_queue.items()
            for count in [self._bundles(queue, len(members))]
            for number in range(count)
        ]

    def _bundles(self, queue: str, members: int) -> int:
        """The number of batches: one per live worker, or more if they would be too large."""
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


@dataclass(frozen=True)
class ObserverResult:
    """The outcome of one task: *count* observations as JSON, or an error.

    `duration` is in ms, `offset` the ms since the batch began.
    """

    task: ObserverTask
    observations: str | None
    error: str | None
    duration: float
    count: int = 0
    offset: float = 0.0


def observe(
    ctx: PhaseContext, batch: Batch, isolate: Isolate | None, max_bytes: int, width: int
) -> list[ObserverResult]:
    """Run a batch's observers in parallel, at most *width*, each under its time limit.

    Each may return up to *max_bytes* of JSON; without *isolate* isolated observers run here too.
    """
    began = time.perf_counter()
    calls = [_observing(ctx, task, isolate, max_bytes) for task in batch.tasks]
    outcomes = time_limit.call_all(calls, width)
    return [
        _result(task, outcome, began) for task, outcome in zip(batch.tasks, outcomes, strict=True)
    ]


def _result(task: ObserverTask, outcome: time_limit.CallOutcome, began: float) -> ObserverResult:
    offset = max(0.0, (outcome.began - began) * 1000)
    if outcome.error is not None:
        return ObserverResult(task, None, describe(outcome.error), outcome.duration, offset=offset)
    text, count = outcome.value
    return ObserverResult(task, text, None, outcome.duration, count, offset)


def _observing(
    ctx: PhaseContext, task: ObserverTask, isolate: Isolate | None, max_bytes: int
) -> time_limit.TimedCall:
    observer = ctx.host.observers.get(task.observer)
    shard = json.loads(task.shard)

    def run() -> tuple[str, int]:
        if observer is None:
            raise LookupError(f"this worker's agent has no observer {task.observer!r}")
        context = ctx.context(observer.plugin_id)
        if observer.isolated and isolate:
            answer = isolate(observer.id, shard, ctx.iteration, observer.timeout)
        else:
            answer = observer.call("observe", ctx=context, shard=shard)
        observations = judge(observer, validate_observations(answer, context.now), ctx)
        return _dump_limited(observations, max_bytes), len(observations)

    # The runner kills an isolated process; its waiting thread gets some seconds more.
    grace = 5.0 if observer is not None and observer.isolated and isolate else 0.0
    return time_limit.TimedCall(run, (observer.timeout if observer else 1.0) + grace)


def judge(
    observer: Observer, observations: list[Observation], ctx: PhaseContext
) -> list[Observation]:
    """The observations as the judge of their observer returns them, if it has one.

    Raises:
        ValueError: it returned something else.
    """
    if not observer.has("judge"):
        return observations
    context = ctx.context(observer.plugin_id, observer.id)
    answer = observer.call("judge", observations=observations, ctx=context)
    return validate_observations(answer, context.now)


def validate_observations(answer: Any, now: Callable[[], datetime]) -> list[Observation]:
    """Validate the observations that an observer or hook returned.

    Those without a time have that of *now*, not of this host, whose clock may be wrong.

    Raises:
        ValueError: names the invalid field, or there are too many.
    """
    if isinstance(answer, Observation):
        raise ValueError("returned one Observation; return a list of them: [Observation(...)]")
    if (
        answer is None
        or isinstance(answer, str | bytes | Mapping)
        or not isinstance(answer, Iterable)
    ):
        raise ValueError(f"must return a list of Observation, not {type(answer).__name__}")
    items = read_all(answer)
    try:
        # Validate an Observation again: it may have been modified.
        return [Observation.model_validate(_fields_of(item, now)) for item in items]
    except ValidationError as error:
        raise ValueError(f"returned an invalid observation: {explain(error)}") from None


def _fields_of(item: Any, now: Callable[[], datetime]) -> Any:
    fields = unchecked(item)
    names = item.model_fields_set if isinstance(item, BaseModel) else fields
    has_time = not isinstance(fields, dict) or "timestamp" in names
    return fields if has_time else {**fields, "timestamp": now()}


def _dump_limited(observations: list[Observation], max_bytes: int) -> str:
    text = dump(observations)
    if len(text) > max_bytes:
        raise PayloadTooLarge(f"returned {len(text)} bytes; the limit is {max_bytes}")
    return text


def dump(observations: list[Observation]) -> str:
    """Observations as JSON text."""
    text = _observations.dump_json(observations, by_alias=True, exclude_none=True).decode()
    return redaction.mask_json(text) if redaction.referenced else text


def load(text: str) -> list[Observation]:
    """Observations from JSON text."""
    return _observations.validate_json(text, extra="ignore")


def assemble(
    ctx: PhaseContext, texts: Mapping[int, str], extra: Iterable[Observation]
) -> tuple[list[Observation], list[Observation]]:
    """Collect all observations of the iteration, and those that did not come from observers.

    They are those of observers, in *texts* as JSON by index, then *extra*, then additions by hooks.
    """
    observations = [item for index in sorted(texts) for item in load(texts[index])]
    added = list(extra)
    before = [*observations, *added]
    for hook in ctx.host.hooks("on_observe"):
        more = ctx.hook(hook, observations=before)
        if more is not None:
            try:
                added += validate_observations(more, ctx.context(hook.plugin_id).now)
            except ValueError as error:
                ctx.report_hook(hook, error)
    return observations + added, added


def mark_forged(ctx: PhaseContext, sent: Iterable[Observation]) -> list[Observation]:
    """Put `intake:` in front of the sources that belong to a plugin of the agent.

    Such a source begins with the id of a plugin that observes: who sends an observation chooses
    its source, and must not speak for a plugin.
    """
    hooks = {hook.plugin_id for hook in ctx.host.hooks("on_observe")}
    plugins = {id.partition(":")[0] for id in ctx.host.observers} | hooks
    return [
        item.patched({"source": FORGED + item.source}) if _first_word(item) in plugins else item
        for item in sent
    ]


def _first_word(observation: Observation) -> str:
    """The beginning of the source, as `http-monitor` of `http-monitor/health-check`."""
    return re.split(r"[^\w.-]", observation.source, maxsplit=1)[0]


def observation_of_run(run: Run) -> Observation:
    """The observation of a run; its context cannot replace the five fields that identify it."""
    own = {
        "runId": run.id,
        "title": run.title,
        "description": run.description,
        "priority": run.priority,
        "source": run.source,
    }
    return Observation(
        source=f"run:{run.source}",
        type="alert",
        severity=_SEVERITY[run.priority],
        timestamp=run.created_at,
        data={**run.context, **own},
        metadata=_about(run),
    )


def _about(run: Run) -> JsonObject:
    about: JsonObject = {"isRun": True, "runId": run.id}
    return {**about, "callbackUrl": run.callback_url} if run.callback_url else about


#: Consecutive failures after which an observer backs off.
BACKOFF_AFTER = 3
#: The longest back-off, in seconds.
BACKOFF_LIMIT = 300.0


def health_after(
    before: Mapping[str, ObserverHealth],
    ran: Iterable[str],
    failed: Mapping[str, Problem],
    now: datetime,
    loop_interval: float,
) -> dict[str, ObserverHealth]:
    """The health of the observers that *ran*, after this iteration."""
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
