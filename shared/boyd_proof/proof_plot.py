"""The plot of a proof as SVG: series, labels and alarms over time, and the curve of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.models.situation import NumberSeries
from boyd_api.console.time_plot import (
    HEIGHT,
    WIDTH,
    PlotBar,
    PlottedSeries,
    TimeAxis,
    span_length,
)
from boyd_proof.proof_report import AgentProof, ProofReport, Sweep

#: The number of times below the plot.
_TICKS = 5


@dataclass(frozen=True)
class LabelledSeries(PlottedSeries):
    """A line with its means.

    Attributes:
        labelled: the mean of the spans that lie within labels, if there are any.
        elsewhere: the mean of the others.
    """

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
    series: Sequence[LabelledSeries]


@dataclass(frozen=True)
class Curve:
    """A score over the values of a sweep."""

    name: str
    line: str


def plot(report: ProofReport) -> ProofPlot:
    """The plot of a report."""
    axis = TimeAxis(report.since, report.until)
    counting = [scored.label for scored in report.labels if scored.state != "outside"]
    spans = [(label.start, label.end or report.until) for label in counting]
    return ProofPlot(
        ticks=axis.ticks(_TICKS),
        gaps=[axis.bar(gap.start, gap.end, "gap") for gap in report.gaps],
        labels=[axis.bar(start, end, "label") for start, end in spans],
        lanes=[_lane(axis, agent) for agent in report.agents],
        series=[_plot_series(axis, series, spans) for series in report.series],
    )


def _lane(axis: TimeAxis, agent: AgentProof) -> Lane:
    bars = [axis.bar(alarm.start, alarm.end, alarm.verdict) for alarm in agent.alarms]
    scores = agent.scores
    false = scores.alarms - scores.true_alarms
    summary = f"{scores.true_alarms} true and {false} false alarms"
    return Lane(agent.name, bars, summary)


def _plot_series(
    axis: TimeAxis, series: NumberSeries, spans: Sequence[tuple[datetime, datetime]]
) -> LabelledSeries:
    length = span_length(series)
    labelled: list[float] = []
    elsewhere: list[float] = []
    for point in series.points:
        is_labelled = _is_within(point.at, point.at + length, spans)
        (labelled if is_labelled else elsewhere).append(point.mean)
    return LabelledSeries(
        **vars(axis.plot(series)), labelled=_mean(labelled), elsewhere=_mean(elsewhere)
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
