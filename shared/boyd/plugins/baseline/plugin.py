"""The plugin `baseline`: an orienter that learns what is usual for every number observed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from boyd.models import Observation, SituationAssessment
from boyd.plugin import Context, Plugin, orienter
from boyd.plugins.baseline.learner import HOUR
from boyd.plugins.baseline.measurements import Measurement, MeasurementFilter, series_id
from boyd.plugins.baseline.series_memory import SeriesMemory
from boyd.plugins.baseline.unusual_series import UnusualSeries, format_figure, open_anomaly
from boyd.text.formatting import counted

#: Fields with settings, which are no measurements.
SETTINGS = ["* *[tT]hreshold*", "* expected*", "* *[lL]imit*", "* *[tT]imeout*"]
#: Fields that name the thing that the others are about.
IDENTITY = ["id", "*Id", "name", "host", "mount", "instance", "device", "pod", "queue", "unit"]
#: An anomaly whose observer is slow stands for so many of its pauses, and these seconds.
PAUSES, PATIENCE = 3.0, 60.0


class Baseline(Plugin):
    """Learns level, spread and season of every number observed; reports what is unusual."""

    id = "baseline"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            include: patterns of the series to learn: source and field, separated by a blank.
            exclude: patterns of those to leave out.
            identity: patterns of text fields that name the thing that is measured.
            max_series: the most series to learn, those that come first.
        """

        include: list[str] = Field(default=["*"])
        exclude: list[str] = Field(default=SETTINGS)
        identity: list[str] = Field(default=IDENTITY)
        max_series: int = Field(default=100, ge=1, le=5000)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        patterns = (self.options.include, self.options.exclude, self.options.identity)
        self._filter = MeasurementFilter(*map(tuple, patterns))

    @orienter()
    def judge(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Compare every number with what is usual for it, and learn from it."""
        now = ctx.now().timestamp()
        memory = SeriesMemory(ctx.state)
        measurements, omitted = self._measurements(observations, memory, now)
        memory.seasons.load(_hours(measurements, memory))
        learning, adopted = 0, []
        for id, values in measurements.items():
            for measurement in values:
                adopted += _learn(measurement, id, memory)
            learning += not memory.series(id).learner.is_warm
        _forget_silent(memory, measurements, now)
        memory.save(now)
        return self._assessment(memory, len(measurements), learning, omitted, adopted)

    def _measurements(
        self, observations: list[Observation], memory: SeriesMemory, now: float
    ) -> tuple[dict[str, list[Measurement]], int]:
        """The measurements of each series, oldest first, and the number of series left out."""
        trusted = [item for item in observations if not item.is_forged]
        measurements: dict[str, list[Measurement]] = defaultdict(list)
        omitted: set[str] = set()
        free = self.options.max_series - len(memory)
        for measurement in sorted(self._filter.measurements(trusted, now), key=lambda s: s.at):
            id = series_id(measurement.series)
            if id not in measurements and id not in memory:
                if free <= 0:
                    omitted.add(id)
                    continue
                free -= 1
            measurements[id].append(measurement)
        return measurements, len(omitted)

    def _assessment(
        self, memory: SeriesMemory, count: int, learning: int, omitted: int, adopted: Sequence[str]
    ) -> SituationAssessment:
        anomalies = sorted(memory.unusual.values(), key=lambda anomaly: anomaly.series)
        findings = [*(anomaly.text for anomaly in anomalies), *adopted]
        if not findings:
            findings.append(_summary(count, learning))
        if omitted:
            more = counted(omitted, "series is", "series are")
            findings.append(f"{more} not learned: max_series is {self.options.max_series}")
        return SituationAssessment(
            source=f"{self.id}:judge",
            findings=findings,
            confidence=0.9 if count > learning or anomalies else None,
            data={
                "series": count,
                "learning": learning,
                "omitted": omitted,
                "unusual": [_evidence(anomaly) for anomaly in anomalies],
            },
            anomalies=[anomaly.anomaly for anomaly in anomalies] or None,
        )


def _hours(measurements: Mapping[str, Sequence[Measurement]], memory: SeriesMemory) -> set[int]:
    """The hours that a series leaves or enters."""
    hours: set[int] = set()
    for id, values in measurements.items():
        last = memory.series(id).learner.hour.number
        for measurement in values:
            hour = int(measurement.at // HOUR)
            if last and hour > last:
                hours |= {last, hour}
            last = max(last, hour)
    return hours


def _learn(measurement: Measurement, id: str, memory: SeriesMemory) -> list[str]:
    """Take in one value; what is usual from now on, for people."""
    series, anomaly = memory.series(id), memory.unusual.get(id)
    before, frozen = series.learner.at, anomaly is not None
    deviation = series.take(measurement.at, measurement.value, memory.seasons, frozen=frozen)
    if deviation is None:
        return []
    learner = series.learner
    if anomaly is None:
        learner.relax(measurement.at - before)
        if opened := open_anomaly(measurement, deviation, learner, before):
            memory.unusual[id] = opened
        return []
    ending = anomaly.follow(deviation, measurement.at, learner)
    if ending is None:
        return []
    del memory.unusual[id]
    learner.settle(anomaly.jump, anomaly.drift)
    if ending == "calm":
        return []
    learner.adopt()
    return [f"{anomaly.series}: about {format_figure(learner.recent)} is usual from now on"]


def _forget_silent(memory: SeriesMemory, measurements: Mapping[str, object], now: float) -> None:
    """End anomalies of series that have no values any more."""
    for id, anomaly in list(memory.unusual.items()):
        if id not in measurements and now - anomaly.at > PAUSES * anomaly.pause + PATIENCE:
            del memory.unusual[id]


def _summary(count: int, learning: int) -> str:
    if not count:
        return "No number was observed"
    if learning == count:
        return f"{counted(count, 'series', 'series')} still being learned"
    usual = f"{counted(count - learning, 'series is', 'series are')} as usual"
    return f"{usual}, {learning} still being learned" if learning else usual


def _evidence(anomaly: UnusualSeries) -> dict[str, Any]:
    return {
        "thing": anomaly.thing,
        "field": anomaly.field,
        "value": anomaly.value,
        "usual": anomaly.usual,
        "high": anomaly.high,
        "times": anomaly.times,
        "severity": anomaly.severity,
        "seconds": round(anomaly.at - anomaly.since),
    }
