"""What a list tells of a past iteration; kept beside its record, which may be large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boyd.models import ActionResult, LoopResult, from_ms
from boyd.models.answers import IterationSummary

#: The fields of a record that an outline is read from.
FIELDS = ("outline", "endedAt")
#: The most characters of an action's error that an outline tells.
REASON = 200


@dataclass(frozen=True)
class Outlines:
    """Past iterations, newest first; `before` is the number to go on from, if there are more."""

    iterations: list[IterationSummary]
    before: int | None = None


def outline_of(result: LoopResult) -> IterationSummary:
    """The outline of a whole result."""
    return IterationSummary(
        iteration=result.iteration,
        trigger=result.trigger,
        success=result.success,
        error=result.error,
        situation=result.situation.summary if result.situation else None,
        decision=result.decision.action if result.decision else None,
        observations=len(result.observations),
        action_results=len(result.action_results),
        results=list(map(_in_short, result.action_results)),
        runs=result.runs,
        started_at=result.started_at,
        ended_at=result.ended_at,
        duration=result.duration,
    )


def _in_short(result: ActionResult) -> ActionResult:
    """What the action came to, without what it has put out, which may be large."""
    waits = {"approvalId": result.waits_for} if result.waits_for else None
    why = result.error[:REASON] if result.error else None
    return result.patched({"output": None, "side_effects": None, "metrics": waits, "error": why})


def read_outline(fields: Mapping[str, str]) -> IterationSummary | None:
    """The outline from those fields of a record; None when an earlier release wrote it."""
    if "outline" not in fields:
        return None
    outline = IterationSummary.from_json(fields["outline"])
    # The record says when it ended by the clock of the Redis server.
    ended = from_ms(float(fields["endedAt"]))
    duration = (ended - outline.started_at).total_seconds() * 1000
    return outline.patched({"ended_at": ended, "duration": duration})
