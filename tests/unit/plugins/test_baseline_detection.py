"""Detection of labelled incidents in simulated series, compared with a threshold."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pytest

from boyd.plugins.baseline.learned_series import LearnedSeries
from boyd.plugins.baseline.learner import SeasonHour
from boyd.plugins.baseline.measurements import Measurement
from boyd.plugins.baseline.unusual_series import UnusualSeries, open_anomaly

STEP, HOUR, WEEK = 300.0, 12, 2016
#: Monday, and the weeks of which a threshold sees the first 15 %.
MONDAY, WEEKS = 1_767_571_200.0, 5
PAST = WEEKS * WEEK * 15 // 100
#: Alarms before the end of the second week are of a detector that still learns.
START = 2 * WEEK

Alarms = list[int]
Interval = tuple[int, int]


class Series(NamedTuple):
    values: list[float]
    incidents: list[Interval]


class Score(NamedTuple):
    recall: float
    precision: float
    false_a_week: float

    @property
    def f1(self) -> float:
        return 2 * self.recall * self.precision / ((self.recall + self.precision) or 1)


def usual(kind: str, step: int, random_: random.Random) -> float:
    """A value without incident."""
    hour, day = step / HOUR % 24, step // (24 * HOUR) % 7
    wave = math.sin(2 * math.pi * (hour - 9) / 24)
    match kind:
        case "flat":
            return random_.gauss(50, 2)
        case "daily":
            return 50 + 25 * wave + random_.gauss(0, 2)
        case "weekly":
            return (60 + 25 * wave if day < 5 else 30 + 5 * wave) + random_.gauss(0, 2)
        case "office":
            return (60 if 8 <= hour < 18 and day < 5 else 12) + random_.gauss(0, 2)
        case "busy by day":
            return (40 + 30 * wave) * (1 + random_.gauss(0, 0.08))
        case _:
            return random_.expovariate(1 / 20)


KINDS = ("flat", "daily", "weekly", "office", "busy by day", "heavy tail")


def spike(value: float, part: float, size: float, _: random.Random) -> float:
    return value + size * (part < 0.15)


def shift(value: float, part: float, size: float, _: random.Random) -> float:
    return value + size * 0.6


def drift(value: float, part: float, size: float, _: random.Random) -> float:
    return value + size * part


def unrest(value: float, part: float, size: float, random_: random.Random) -> float:
    return value + random_.gauss(0, size * 0.7)


def dropout(value: float, part: float, size: float, _: random.Random) -> float:
    return 0.0


Incident = Callable[[float, float, float, random.Random], float]
INCIDENTS: tuple[Incident, ...] = (spike, shift, drift, unrest, dropout)


def series(kind: str, seed: int, size: float = 25.0) -> Series:
    """Five weeks of a kind, with a few incidents of two to six hours in the last three."""
    random_ = random.Random(f"{kind} {seed}")
    values = [usual(kind, step, random_) for step in range(WEEKS * WEEK)]
    incidents = []
    for number in range(5):
        first = START + int((number + random_.uniform(0.1, 0.8)) * (WEEKS * WEEK - START) / 5)
        length = random_.randint(2, 6) * HOUR
        incident = INCIDENTS[number]
        for step in range(first, first + length):
            part = (step - first) / length
            values[step] = max(0.0, incident(values[step], part, size, random_))
        incidents.append((first, first + length))
    return Series(values, incidents)


class Hours:
    """The seasons of one series, in memory."""

    def __init__(self) -> None:
        self.hours: dict[int, SeasonHour] = {}

    def look_up(self, series: str, hour: int) -> tuple[SeasonHour, SeasonHour]:
        day, week = (self.hours.setdefault(key, SeasonHour()) for key in _keys(hour))
        return day, week

    def learn(self, series: str, hour: int, mean: float, spread: float) -> None:
        for season in self.look_up(series, hour):
            season.learn(mean, spread)


def _keys(hour: int) -> tuple[int, int]:
    return hour % 24, 1000 + hour % 168


def baseline(values: Sequence[float]) -> Alarms:
    """The steps at which an anomaly of `baseline` begins."""
    learned, seasons, alarms = LearnedSeries("x"), Hours(), []
    anomaly: UnusualSeries | None = None
    for step, value in enumerate(values):
        at = MONDAY + step * STEP
        deviation = learned.take(at, value, seasons, frozen=anomaly is not None)
        learner = learned.learner
        if deviation is None:
            continue
        if anomaly is None:
            learner.relax(STEP)
            anomaly = open_anomaly(Measurement("x", "x", at, value), deviation, learner, at - STEP)
            alarms += [step] * (anomaly is not None)
        elif ending := anomaly.follow(deviation, at, learner):
            learner.settle(anomaly.jump, anomaly.drift)
            if ending == "adopted":
                learner.adopt()
            anomaly = None
    return alarms


def threshold(margin: float, patience: int) -> Callable[[Sequence[float]], Alarms]:
    """A threshold above and below the past, with hysteresis.

    It is *margin* of their distance outside the quantiles 0.1 and 99.9 %. So many values in a row
    begin and end an alarm.
    """

    def alarms(values: Sequence[float]) -> Alarms:
        past = sorted(values[:PAST])
        low, high = past[PAST // 1000], past[-1 - PAST // 1000]
        room = margin * (high - low)
        return list(_hysteresis([not low - room <= v <= high + room for v in values], patience))

    return alarms


def _hysteresis(exceeds: Sequence[bool], patience: int) -> Iterator[int]:
    active, row = False, 0
    for step, outside in enumerate(exceeds):
        row = row + 1 if outside != active else 0
        if row == patience:
            active, row = outside, 0
            if active:
                yield step


#: Thresholds from sensitive to patient; the best one is chosen in hindsight.
THRESHOLDS = [threshold(margin, patience) for margin in (0, 0.1, 0.25, 0.5) for patience in (1, 3)]


def score(detector: Callable[[Sequence[float]], Alarms], cases: Sequence[Series]) -> Score:
    """The score of the beginnings of alarms from the third week on."""
    hits = incidents = wrong = 0
    for case in cases:
        alarms = [step for step in detector(case.values) if step >= START]
        steps = [set(range(first, last + HOUR)) for first, last in case.incidents]
        hits += sum(any(alarm in step for alarm in alarms) for step in steps)
        incidents += len(steps)
        wrong += sum(alarm not in set(chain(*steps)) for alarm in alarms)
    weeks = len(cases) * (WEEKS - 2)
    return Score(hits / incidents, hits / ((hits + wrong) or 1), wrong / weeks)


@pytest.fixture(scope="module")
def cases() -> list[Series]:
    return [series(kind, seed) for kind in KINDS for seed in (1, 2, 3)]


@pytest.mark.long
def test_it_finds_more_incidents_than_the_best_of_many_thresholds(cases: list[Series]) -> None:
    own = score(baseline, cases)
    best = max((score(detector, cases) for detector in THRESHOLDS), key=lambda score: score.f1)

    assert own.f1 > best.f1 + 0.08
    assert own.recall > best.recall + 0.1
    assert own.false_a_week < 0.3


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_there_are_few_false_alarms_a_week(kind: str) -> None:
    generator = random.Random(f"quiet {kind}")
    alarms = baseline([usual(kind, step, generator) for step in range(WEEKS * WEEK)])
    assert len(alarms) / WEEKS <= 1.0
