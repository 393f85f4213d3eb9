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
from boyd.plugin.plugin_values import unchecked

_observations: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])

#: Runs an isolated observer in its own process: id, shard, iteration, time limit in seconds.
Isolate = Callable[[str, Any, int | None, float], list[Any]]


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
        if observer.isolated and isolate:
            answer = isolate(observer.id, shard, ctx.iteration, observer.timeout)
        else:
            context = ctx.context(observer.plugin_id)
            answer = observer.call("observe", ctx=context, shard=shard)
        observations = validate_observations(answer)
        return _dump_limited(observations, max_bytes), len(observations)

    # The runner kills an isolated process; its waiting thread gets some seconds more.
    grace = 5.0 if observer is not None and observer.isolated and isolate else 0.0
    return time_limit.TimedCall(run, (observer.timeout if observer else 1.0) + grace)


def validate_observations(answer: Any) -> list[Observation]:
    """Validate the observations that an observer or hook returned.

    Raises:
        ValueError: names the invalid field.
    """
    if isinstance(answer, Observation):
        raise ValueError("returned one Observation; return a list of them: [Observation(...)]")
    if (
        answer is None
        or isinstance(answer, str | bytes | Mapping)
        or not isinstance(answer, Iterable)
    ):
        raise ValueError(f"must return a list of Observation, not {type(answer).__name__}")
    items = list(answer)
    try:
        # Validate an Observation again: it may have been modified.
        return [Observation.model_validate(unchecked(item)) for item in items]
    except ValidationError as error:
        raise ValueError(f"returned an invalid observation: {explain(error)}") from None


def _dump_limited(observations: list[Observation], max_bytes: int) -> str:
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
                added += validate_observations(more)
            except ValueError as error:
                ctx.report_hook(hook, error)
    return observations + added, added
