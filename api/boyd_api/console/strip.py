"""The strip of the latest iterations: one mark each, with gaps of time cut out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from boyd.models.outcomes import OutcomeKind, outcome, outcome_kind
from boyd.models.responses import IterationSummary
from boyd_api.console.rendering import ms, span, when

#: The most characters of an outcome in the title of a mark.
_TITLE = 200
#: Seconds, and times the usual distance, without an iteration that are cut out and named.
_GAP, _TIMES = 60.0, 5.0


@dataclass(frozen=True)
class Tile:
    """An iteration on the strip.

    Attributes:
        gap: the time without iterations before it, if that is unusual.
    """

    iteration: int
    kind: OutcomeKind
    title: str
    gap: str


#: Each outcome in words, and the shape that shows it.
WORDS: dict[OutcomeKind, str] = {
    "idle": "nothing to do",
    "acted": "acted",
    "waits": "waits for approval",
    "prevented": "prevented",
    "failed": "failed",
}
SHAPES: dict[OutcomeKind, str] = {
    "idle": "idle",
    "acted": "ok",
    "waits": "waits",
    "prevented": "off",
    "failed": "failed",
}


def strip(newest_first: Sequence[IterationSummary]) -> list[Tile]:
    """The marks, oldest first."""
    past = newest_first[::-1]
    gaps = [_between(earlier, later) for earlier, later in pairwise(past)]
    unusual = max(_GAP, _TIMES * median(gaps)) if gaps else 0.0
    before = [0.0, *(gap if gap > unusual else 0.0 for gap in gaps)]
    return list(map(_mark, past, before))


def _between(earlier: IterationSummary, later: IterationSummary) -> float:
    return (later.started_at - earlier.ended_at).total_seconds()


def _mark(one: IterationSummary, gap: float) -> Tile:
    kind, what = outcome_kind(one), outcome(one)
    parts = [
        f"Iteration {one.iteration}: {WORDS[kind]}",
        "" if kind == "idle" else what[:_TITLE],
        when(one.ended_at),
        f"took {ms(one.duration)}",
    ]
    return Tile(one.iteration, kind, " · ".join(filter(None, parts)), span(gap) if gap else "")
