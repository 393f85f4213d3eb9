"""The times of an iteration as a Gantt chart: phases, runs of observers, and lost attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from boyd.models import LoopResult, ObserverRun, PhaseRun
from boyd_api.console.rendering import ms

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
    known = [run for run in result.observer_runs if run.offset is not None]
    shown = _shown(known)
    scale = _Scale([*_spans(result.phase_runs), *_spans(known)])
    bars = list(_bars(result, shown, scale))
    return Chart(bars, scale.cuts, ms(result.duration), len(known) - len(shown))


def _spans(runs: Iterable[PhaseRun | ObserverRun]) -> Iterable[tuple[float, float]]:
    return [(run.offset or 0.0, (run.offset or 0.0) + run.duration) for run in runs]


def _shown(runs: Sequence[ObserverRun]) -> list[ObserverRun]:
    """The longest runs, in the order in which they began."""
    longest = sorted(runs, key=lambda run: -run.duration)[:_ROWS]
    return sorted(longest, key=lambda run: (run.offset or 0.0, run.id))


def _bars(result: LoopResult, shown: Sequence[ObserverRun], scale: _Scale) -> Iterable[Bar]:
    failed = {(problem.id, problem.host) for problem in result.observer_errors}
    for run in sorted(result.phase_runs, key=lambda one: (one.offset, one.lost)):
        yield _phase_bar(run, scale)
        if run.phase == "observe" and run.batch is None and not run.lost:
            for one in shown:
                yield _observer_bar(one, (one.id, one.host) in failed, scale)


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
        busy = _merged([(0.0, 0.0), *spans])
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


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans in order, those that overlap as one."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
