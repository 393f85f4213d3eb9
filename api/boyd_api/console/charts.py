"""Charts as SVG: the phases of an iteration in time, the OODA ring, and the strip of iterations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, radians, sin
from statistics import median
from typing import Literal

from boyd.models import LoopResult, ObserverRun, Phase, PhaseRun
from boyd.models.responses import IterationSummary, OutcomeKind, outcome, outcome_kind
from boyd.text.formatting import counted
from boyd_api.console.rendering import ms, span, when

#: The width of the chart, and the least width of a bar.
WIDTH = 1000.0
_LEAST = 4.0
#: A time in which nothing ran is cut to this width, if it is longer than that and than so many ms.
_CUT = 30.0
_SHORT = 250.0
#: Rows for runs of observers; the shortest others are only counted.
_ROWS = 40


@dataclass(frozen=True)
class Bar:
    """A row of the chart.

    Attributes:
        phase: whose colour it has.
        label: what ran.
        place: where, and which attempt.
        state: `ok`, `failed` or `lost`: it did not count.
        x: where its bar begins.
        width: of its bar.
        after: the time from the beginning of the iteration.
        took: its duration.
        inner: it is a part of the row above.
    """

    phase: str
    label: str
    place: str
    state: str
    x: float
    width: float
    after: str
    took: str
    inner: bool = False


@dataclass(frozen=True)
class Cut:
    """A time in which nothing ran, cut out of the chart."""

    x: float
    width: float
    length: str


@dataclass(frozen=True)
class Chart:
    """A chart; `others` counts the runs of observers that have no row."""

    bars: Sequence[Bar]
    cuts: Sequence[Cut]
    total: str
    others: int


def chart(result: LoopResult) -> Chart:
    """The chart of an iteration; without bars if its record has no times."""
    runs = [run for run in result.observer_runs if run.offset is not None]
    longest = _longest(runs)
    scale = _Scale([*_spans(result.phase_runs), *_spans(runs)])
    bars = list(_bars(result, longest, scale))
    return Chart(bars, scale.cuts, ms(result.duration), len(runs) - len(longest))


def _spans(runs: Iterable[PhaseRun | ObserverRun]) -> Iterable[tuple[float, float]]:
    return [(run.offset or 0.0, (run.offset or 0.0) + run.duration) for run in runs]


def _longest(runs: Sequence[ObserverRun]) -> list[ObserverRun]:
    """Pick the longest runs, and sort them by their start."""
    longest = sorted(runs, key=lambda run: -run.duration)[:_ROWS]
    return sorted(longest, key=lambda run: (run.offset or 0.0, run.id))


def _bars(result: LoopResult, observer_runs: Sequence[ObserverRun], scale: _Scale) -> Iterable[Bar]:
    failed = {(problem.id, problem.host) for problem in result.observer_errors}
    for phase_run in sorted(result.phase_runs, key=lambda run: (run.offset, run.lost)):
        yield _phase_bar(phase_run, scale)
        if phase_run.phase == "observe" and phase_run.batch is None and not phase_run.lost:
            for run in observer_runs:
                yield _observer_bar(run, (run.id, run.host) in failed, scale)


def _phase_bar(run: PhaseRun, scale: _Scale) -> Bar:
    batch = f", batch {run.batch}" if run.batch is not None else ""
    return Bar(
        run.phase,
        f"{run.phase}{batch}",
        _place(run.host, run.worker, run.attempt),
        "lost" if run.lost else "ok",
        *scale.bar(run.offset, run.duration),
        ms(run.offset),
        ms(run.duration),
        inner=run.batch is not None,
    )


def _observer_bar(run: ObserverRun, failed: bool, scale: _Scale) -> Bar:
    place = _place(run.host, run.worker, run.attempt or 1)
    batch = f"batch {run.batch}, {place}" if run.batch is not None else place
    state = "failed" if failed else "ok"
    offset = run.offset or 0.0
    where = scale.bar(offset, run.duration)
    return Bar("observe", run.id, batch, state, *where, ms(offset), ms(run.duration), inner=True)


def _place(host: str | None, worker: str | None, attempt: int) -> str:
    where = worker or host or ""
    again = f"attempt {attempt}" if attempt > 1 else ""
    return ", ".join(filter(None, [where, again]))


class _Scale:
    """Maps milliseconds to places, with long times in which nothing ran cut short."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        busy = _merge([(0.0, 0.0), *spans])
        idle = [(a[1], b[0]) for a, b in pairwise(busy)]
        end = busy[-1][1]
        longest = max(_SHORT, (end - sum(b - a for a, b in idle)) / 2)
        gaps = [(a, b) for a, b in idle if b - a > longest]
        self._left = end - sum(b - a for a, b in gaps)
        self._gaps = gaps
        self._unit = (WIDTH - _CUT * len(gaps)) / self._left if self._left else 0.0
        self.cuts = [Cut(self.at(a), _CUT, ms(b - a)) for a, b in gaps]

    def at(self, moment: float) -> float:
        """The place of a moment."""
        place = moment * self._unit
        for begin, end in self._gaps:
            if moment >= end:
                place += _CUT - (end - begin) * self._unit
            elif moment > begin:
                place += (moment - begin) * (_CUT / (end - begin) - self._unit)
        return round(place, 1)

    def bar(self, offset: float, duration: float) -> tuple[float, float]:
        """The beginning and width of a bar."""
        x = min(self.at(offset), WIDTH - _LEAST)
        return x, round(max(_LEAST, min(self.at(offset + duration), WIDTH) - x), 1)


def _merge(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sort the spans, and merge those that overlap."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


#: The phases on the ring, clockwise from the top; `start` and `complete` lie between them.
STEPS: tuple[Phase, ...] = ("observe", "orient", "decide", "act")
_ORDER: Mapping[Phase, int] = {"start": -1, **{n: i for i, n in enumerate(STEPS)}, "complete": 4}

#: Half the width of the picture, and the outer and inner radius of the ring.
CENTRE = 160
_OUTER, _INNER = 150, 106
#: Degrees of each arrow, and of its point.
_LENGTH, _POINT = 84, 8
#: From the middle of the ring to the line on which its letters stand.
_BASELINE = 5.5

StepState = Literal["rest", "done", "now", "next"]


@dataclass(frozen=True)
class RingStep:
    """A phase on the ring.

    Attributes:
        state: `rest` between iterations; in an iteration it is `done`, `now` or `next`.
        path: the outline of its arrow.
        line: the line on which its name is written.
        took: its duration, once it has ended.
        note: what came of it.
    """

    phase: Phase
    state: StepState
    path: str
    line: str
    took: str
    note: str


def ring(phase: Phase, result: LoopResult | None) -> list[RingStep]:
    """The steps for an agent in *phase*; *result* is the iteration in flight, or else the last."""
    return [
        RingStep(
            step,
            _state(phase, index),
            _arrow(index),
            _line(index),
            ms(result.phases[step]) if result and step in result.phases else "",
            _note(step, result) if result else "",
        )
        for index, step in enumerate(STEPS)
    ]


def _state(phase: Phase, index: int) -> StepState:
    if phase == "idle":
        return "rest"
    at = _ORDER[phase]
    return "now" if index == at else "done" if index < at else "next"


def _note(step: Phase, result: LoopResult) -> str:
    if step == "observe":
        return (
            _observation_note(result) if result.observations or "observe" in result.phases else ""
        )
    if step == "orient":
        situation = result.situation
        return (
            f"{counted(len(situation.assessments), 'assessment')}, {situation.priority} priority"
            if situation
            else ""
        )
    if step == "decide":
        chosen = result.trace.chosen if result.trace else None
        if result.decision is None:
            return ""
        action = result.decision.action
        return f"{action}, by {chosen}" if chosen else f"{action}: {result.decision.rationale}"
    return outcome(result) if result.action_results or not result.success else ""


def _observation_note(result: LoopResult) -> str:
    failed = len({problem.id for problem in result.observer_errors})
    parts = [
        counted(len(result.observations), "observation"),
        f"{counted(failed, 'observer')} failed" if failed else "",
        f"{counted(len(result.not_due), 'observer')} not due" if result.not_due else "",
    ]
    return ", ".join(filter(None, parts))


def _arrow(index: int) -> str:
    """An arc with a point at its end, and a notch of the same form at its start."""
    begin = 90 * index - 90 + (90 - _LENGTH) / 2 - _POINT / 2
    end = begin + _LENGTH
    middle = (_OUTER + _INNER) / 2
    return " ".join(
        [
            f"M{_at(_OUTER, begin)} A{_OUTER} {_OUTER} 0 0 1 {_at(_OUTER, end)}",
            f"L{_at(middle, end + _POINT)} L{_at(_INNER, end)}",
            f"A{_INNER} {_INNER} 0 0 0 {_at(_INNER, begin)} L{_at(middle, begin + _POINT)} Z",
        ]
    )


def _line(index: int) -> str:
    """An arc from left to right, so that no name stands on its head."""
    begin = 90 * index - 90
    middle = (_OUTER + _INNER) / 2
    if index in (0, 3):
        radius = middle - _BASELINE
        return f"M{_at(radius, begin)} A{radius} {radius} 0 0 1 {_at(radius, begin + 90)}"
    radius = middle + _BASELINE
    return f"M{_at(radius, begin + 90)} A{radius} {radius} 0 0 0 {_at(radius, begin)}"


def _at(radius: float, degrees: float) -> str:
    """A point at that distance from the centre, clockwise from three o'clock."""
    x, y = cos(radians(degrees)), sin(radians(degrees))
    return f"{CENTRE + radius * x:.2f} {CENTRE + radius * y:.2f}"


#: The most characters of an outcome in the title of a tile.
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
    "waits": "sent for approval",
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
    """The tiles, oldest first."""
    past = newest_first[::-1]
    gaps = [_between(earlier, later) for earlier, later in pairwise(past)]
    unusual = max(_GAP, _TIMES * median(gaps)) if gaps else 0.0
    before = [0.0, *(gap if gap > unusual else 0.0 for gap in gaps)]
    return list(map(_tile, past, before))


def _between(earlier: IterationSummary, later: IterationSummary) -> float:
    return (later.started_at - earlier.ended_at).total_seconds()


def _tile(summary: IterationSummary, gap: float) -> Tile:
    kind, text = outcome_kind(summary), outcome(summary)
    parts = [
        f"Iteration {summary.iteration}: {WORDS[kind]}",
        "" if kind == "idle" else text[:_TITLE],
        when(summary.ended_at),
        f"took {ms(summary.duration)}",
    ]
    return Tile(summary.iteration, kind, " · ".join(filter(None, parts)), span(gap) if gap else "")
