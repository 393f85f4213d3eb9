"""The plot of a proof as SVG: series, labels and alarms over time, and the curve of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from boyd_proof.proof_report import AgentProof, NumberSeries, ProofReport, Sweep

#: The size of a chart in units of its own; the page stretches it.
WIDTH, HEIGHT = 1000.0, 100.0
#: The least width of a bar: an alarm of ten minutes in a month would not be visible.
_LEAST = 2.5
#: The number of times below the plot.
_TICKS = 5
#: Lengths of spans without values after which a line is broken.
_BROKEN = 2.5


@dataclass(frozen=True)
class PlotBar:
    """A bar: a label, an alarm or a gap; `kind` chooses its look, and `title` says what it is."""

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
        labelled: the mean of the spans that lie within labels, if there are any.
        elsewhere: the mean of the others.
    """

    name: str
    low: float
    high: float
    line: str
    band: str
    labelled: float | None
    elsewhere: float | None


@dataclass(frozen=True)
class Lane:
    """The alarms of an agent."""

    name: str
    bars: Sequence[PlotBar]
    summary: str


@dataclass(frozen=True)
class ProofPlot:
    """Everything over the same time."""

    ticks: Sequence[datetime]
    gaps: Sequence[PlotBar]
    labels: Sequence[PlotBar]
    lanes: Sequence[Lane]
    series: Sequence[PlottedSeries]


@dataclass(frozen=True)
class Curve:
    """A score over the values of a sweep."""

    name: str
    line: str


@dataclass(frozen=True)
class _Axis:
    """The time from left to right."""

    since: datetime
    until: datetime

    def x(self, at: datetime) -> float:
        seconds = (self.until - self.since).total_seconds() or 1.0
        share = (at - self.since).total_seconds() / seconds
        return round(WIDTH * min(1.0, max(0.0, share)), 2)

    def bar(self, start: datetime, end: datetime, kind: str, title: str = "") -> PlotBar:
        x, right = self.x(start), self.x(end)
        width = max(_LEAST, right - x)
        return PlotBar(round(min(x, WIDTH - width), 2), round(width, 2), kind, title)


def plot(report: ProofReport) -> ProofPlot:
    """The plot of a report."""
    axis = _Axis(report.since, report.until)
    step = (report.until - report.since) / (_TICKS - 1)
    counting = [scored.label for scored in report.labels if scored.state != "outside"]
    spans = [(label.start, label.end or report.until) for label in counting]
    return ProofPlot(
        ticks=[report.since + number * step for number in range(_TICKS)],
        gaps=[axis.bar(gap.start, gap.end, "gap") for gap in report.gaps],
        labels=[axis.bar(start, end, "label") for start, end in spans],
        lanes=[_lane(axis, agent) for agent in report.agents],
        series=[_plot_series(axis, series, spans) for series in report.series],
    )


def _lane(axis: _Axis, agent: AgentProof) -> Lane:
    bars = [axis.bar(alarm.start, alarm.end, alarm.verdict) for alarm in agent.alarms]
    scores = agent.scores
    false = scores.alarms - scores.true_alarms
    summary = f"{scores.true_alarms} true and {false} false alarms"
    return Lane(agent.name, bars, summary)


def _plot_series(
    axis: _Axis, series: NumberSeries, spans: Sequence[tuple[datetime, datetime]]
) -> PlottedSeries:
    points = series.points
    low, high = min(point.low for point in points), max(point.high for point in points)
    length = min(
        (later.at - earlier.at for earlier, later in pairwise(points)), default=timedelta()
    )

    def y(value: float) -> float:
        return round(HEIGHT - 4 - (HEIGHT - 8) * (value - low) / ((high - low) or 1.0), 2)

    line, upper, lower = [], [], []
    before: datetime | None = None
    for point in points:
        x = axis.x(point.at + length / 2)
        is_broken = before is None or point.at - before > _BROKEN * length
        line.append(f"{'M' if is_broken else 'L'}{x} {y(point.mean)}")
        upper.append(f"L{x} {y(point.high)}")
        lower.append(f"L{x} {y(point.low)}")
        before = point.at
    labelled = [p.mean for p in points if _is_within(p.at, p.at + length, spans)]
    elsewhere = [p.mean for p in points if not _is_within(p.at, p.at + length, spans)]
    return PlottedSeries(
        series.name,
        low,
        high,
        " ".join(line),
        f"M{upper[0][1:]} {' '.join([*upper[1:], *reversed(lower)])}Z",
        _mean(labelled),
        _mean(elsewhere),
    )


def _is_within(start: datetime, end: datetime, spans: Sequence[tuple[datetime, datetime]]) -> bool:
    return any(first <= end and start <= last for first, last in spans)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def curves(sweep: Sweep) -> list[Curve]:
    """Precision, recall and F1 over the values; where one is undefined, its line is broken."""
    values = [point.value for point in sweep.points]
    names = ("precision", "recall", "f1")
    return [
        Curve(
            "F1" if name == "f1" else name,
            _curve(
                [
                    (x_of(value, values), getattr(point.whole, name))
                    for value, point in zip(values, sweep.points, strict=True)
                ]
            ),
        )
        for name in names
    ]


def x_of(value: float, values: Sequence[float]) -> float:
    """The place of a value between the first and the last one."""
    share = (value - values[0]) / ((values[-1] - values[0]) or 1.0)
    return round(WIDTH * min(1.0, max(0.0, share)), 2)


def _curve(points: Sequence[tuple[float, float | None]]) -> str:
    parts, is_broken = [], True
    for x, score in points:
        if score is not None:
            y = round(HEIGHT - 4 - (HEIGHT - 8) * score, 2)
            parts.append(f"{'M' if is_broken else 'L'}{x} {y}")
        is_broken = score is None
    return " ".join(parts)
