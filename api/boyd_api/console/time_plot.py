"""Plots over time as SVG: one axis for bars in lanes, and lines with the band around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from boyd.models.situation import NumberSeries

#: The size of a chart in units of its own; the page stretches it.
WIDTH, HEIGHT = 1000.0, 100.0
#: The least width of a bar: an alarm of ten minutes in a month would not be visible.
_LEAST = 2.5
#: Lengths of spans without values after which a line is broken.
_BROKEN = 2.5


@dataclass(frozen=True)
class PlotBar:
    """A bar; `kind` chooses its look, and `title` says what it is."""

    x: float
    width: float
    kind: str
    title: str = ""


@dataclass(frozen=True)
class PlottedSeries:
    """A line with the band between lowest and highest values.

    Attributes:
        name: of the series.
        low: the lowest value of all.
        high: the highest one.
        line: a path through the means.
        band: a path around the values.
    """

    name: str
    low: float
    high: float
    line: str
    band: str


@dataclass(frozen=True)
class TimeAxis:
    """The time from left to right."""

    since: datetime
    until: datetime

    def x(self, at: datetime) -> float:
        """The place of a time."""
        seconds = (self.until - self.since).total_seconds() or 1.0
        share = (at - self.since).total_seconds() / seconds
        return round(WIDTH * min(1.0, max(0.0, share)), 2)

    def bar(self, start: datetime, end: datetime, kind: str, title: str = "") -> PlotBar:
        """A bar over that time, wide enough to be seen."""
        x, right = self.x(start), self.x(end)
        width = max(_LEAST, right - x)
        return PlotBar(round(min(x, WIDTH - width), 2), round(width, 2), kind, title)

    def ticks(self, number: int) -> list[datetime]:
        """So many times at equal distances, from the first to the last."""
        step = (self.until - self.since) / (number - 1)
        return [self.since + index * step for index in range(number)]

    def plot(self, series: NumberSeries) -> PlottedSeries:
        """The line and the band of a series."""
        points = series.points
        low, high = min(point.low for point in points), max(point.high for point in points)
        length = span_length(series)

        def y(value: float) -> float:
            return round(HEIGHT - 4 - (HEIGHT - 8) * (value - low) / ((high - low) or 1.0), 2)

        line, upper, lower = [], [], []
        before: datetime | None = None
        for point in points:
            x = self.x(point.at + length / 2)
            is_broken = before is None or point.at - before > _BROKEN * length
            line.append(f"{'M' if is_broken else 'L'}{x} {y(point.mean)}")
            upper.append(f"L{x} {y(point.high)}")
            lower.append(f"L{x} {y(point.low)}")
            before = point.at
        band = f"M{upper[0][1:]} {' '.join([*upper[1:], *reversed(lower)])}Z"
        return PlottedSeries(series.name, low, high, " ".join(line), band)


def span_length(series: NumberSeries) -> timedelta:
    """The length of its spans, as far as their distances tell."""
    distances: Sequence[timedelta] = [
        later.at - earlier.at for earlier, later in pairwise(series.points)
    ]
    return min(distances, default=timedelta())
