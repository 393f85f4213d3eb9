"""The observe phase: runs observers and collects their observations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from boyd.errors import PayloadTooLarge
from boyd.models import Observation, explain
from boyd.phases import time_limit
from boyd.phases.phase_context import PhaseContext, describe
from boyd.phases.planning import Batch, ObserverTask
from boyd.plugin.own_copy import unchecked

_observations: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])

#: Runs an isolated observer in its own process: id, shard, iteration, time limit in seconds.
Isolate = Callable[[str, Any, int | None, float], list[Any]]


@dataclass(frozen=True)
class Seen:
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
) -> list[Seen]:
    """Run a batch's observers in parallel, at most *width*, each under its time limit.

    Each may return up to *max_bytes* of JSON; without *isolate* isolated observers run here too.
    """
    began = time.perf_counter()
    calls = [_observing(ctx, task, isolate, max_bytes) for task in batch.tasks]
    outcomes = time_limit.call_all(calls, width)
    return [_seen(task, one, began) for task, one in zip(batch.tasks, outcomes, strict=True)]


def _seen(task: ObserverTask, outcome: time_limit.CallOutcome, began: float) -> Seen:
    offset = max(0.0, (outcome.began - began) * 1000)
    if outcome.error is not None:
        return Seen(task, None, describe(outcome.error), outcome.duration, offset=offset)
    text, count = outcome.value
    return Seen(task, text, None, outcome.duration, count, offset)


def _observing(
    ctx: PhaseContext, task: ObserverTask, isolate: Isolate | None, max_bytes: int
) -> time_limit.TimedCall:
    observer = ctx.host.observers.get(task.observer)
    shard = json.loads(task.shard)

    def run() -> tuple[str, int]:
        if observer is None:
            raise LookupError(f"this worker's agent has no observer {task.observer!r}")
        if observer.isolated and isolate:
            found = isolate(observer.id, shard, ctx.iteration, observer.timeout)
        else:
            context = ctx.context(observer.plugin_id)
            found = observer.call("observe", ctx=context, shard=shard)
        observations = validated(found)
        return _limited(observations, max_bytes), len(observations)

    # The runner kills an isolated process; its waiting thread gets some seconds more.
    grace = 5.0 if observer is not None and observer.isolated and isolate else 0.0
    return time_limit.TimedCall(run, (observer.timeout if observer else 1.0) + grace)


def validated(found: Any) -> list[Observation]:
    """Validate the observations that an observer or hook returned.

    Raises:
        ValueError: names the invalid field.
    """
    if isinstance(found, Observation):
        raise ValueError("returned one Observation; return a list of them: [Observation(...)]")
    if found is None or isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise ValueError(f"must return a list of Observation, not {type(found).__name__}")
    items = list(found)
    try:
        # Validate an Observation again: it may have been modified.
        return [Observation.model_validate(unchecked(item)) for item in items]
    except ValidationError as error:
        raise ValueError(f"returned an invalid observation: {explain(error)}") from None


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
    """All observations of the iteration, and those among them that did not come from observers.

    The order: observers by index, *extra*, additions by hooks.
    """
    observations = [item for index in sorted(seen) for item in load(seen[index])]
    added = list(extra)
    before = [*observations, *added]
    for hook in ctx.host.hooks("on_observe"):
        more = ctx.hook(hook, observations=before)
        if more is not None:
            try:
                added += validated(more)
            except ValueError as error:
                ctx.failed(hook, error)
    return observations + added, added
