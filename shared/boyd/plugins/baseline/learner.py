"""Learning a series: its level, spread and season, value by value.

Only additions, multiplications, divisions and comparisons: the results are the same bits on every
machine. Spreads are means of absolute deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

HOUR = 3600.0
#: The seconds of learning before anything is reported, and the memory of levels and spreads.
WARM_UP, MEMORY = 86_400.0, 604_800.0
#: The longest time that one value stands for, and the gap after which the recent level is unknown.
LONGEST_STEP, GAP = HOUR, 2 * HOUR
#: The weight of a value in the recent level, and in the smoothed deviation.
RECENT, SMOOTH = 0.5, 0.05
#: A value teaches the level at most so many spreads, and the spreads so many in the warm-up.
CLIP, WARM_CLIP = 4.0, 20.0
#: The least spread, as a share of the level.
LEAST_SPREAD = 0.01
#: The deviation that is reported, in spreads, when the warm-up ends, and the least.
FIRST_LIMIT, LEAST_LIMIT = 12.0, 8.0
#: How much a limit grows at the end of an anomaly, at least and at most, and shrinks in a week.
GROWTH, MOST_GROWTH, SHRINKAGE = 1.5, 4.0, 0.25
#: The least weight of an hour in its season, and how far its spread may be from that of all hours.
SEASON_WEIGHT, HOUR_SPREAD = 0.25, 2.0
#: The deviation from a series without any spread, in spreads.
FROM_CONSTANT = 1e6


@dataclass(slots=True)
class SeasonHour:
    """An hour of the day or the week: how often it came, its mean and its spread."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0

    def learn(self, mean: float, spread: float) -> None:
        """Add one such hour; old ones count less."""
        self.count = min(self.count + 1, 4)
        weight = max(SEASON_WEIGHT, 1 / self.count)
        self.mean += weight * (mean - self.mean)
        self.spread += weight * (spread - self.spread)


@dataclass(slots=True)
class PresentHour:
    """The hour of the last value.

    Attributes:
        number: of the hour since 1970.
        count: of the values in it.
        mean: of the values, without the offset of the level.
        error: the mean of their deviations from the estimate.
        ratio: the spread at this hour, as a share of that of all hours.
    """

    number: int = 0
    count: int = 0
    mean: float = 0.0
    error: float = 0.0
    ratio: float = 1.0

    def add(self, value: float, error: float) -> None:
        """Add a value and the size of its deviation."""
        self.count += 1
        self.mean += (value - self.mean) / self.count
        self.error += (error - self.error) / self.count


@dataclass(slots=True)
class UsualLevel:
    """The usual level at the present hour: the best of three estimates so far.

    Attributes:
        mean: over all hours.
        day: of this hour of the day.
        week: of this hour of the week.
        mean_error: the mean size of the deviations from the mean.
        day_error: those from the hour of the day.
        week_error: those from the hour of the week.
        offset: the sum of all lasting shifts, which the estimates lack.
    """

    mean: float = 0.0
    day: float = 0.0
    week: float = 0.0
    mean_error: float = 0.0
    day_error: float = 0.0
    week_error: float = 0.0
    offset: float = 0.0

    @property
    def error(self) -> float:
        """The mean size of the deviations from the best estimate."""
        return min(self.mean_error, self.day_error, self.week_error)

    @property
    def estimate(self) -> float:
        """The usual level."""
        error = self.error
        if self.mean_error <= error:
            return self.mean + self.offset
        return (self.day if self.day_error <= error else self.week) + self.offset

    def enter(self, day: SeasonHour, week: SeasonHour) -> None:
        """Begin an hour."""
        self.day = day.mean if day.count else self.mean
        self.week = week.mean if week.count else self.day

    def learn(self, value: float, weight: float, clip: float, spread: float) -> None:
        """Learn a value, of which at most *clip* spreads count."""
        change = value - self.offset - self.mean
        size = abs(change)
        step = _clip(size, clip * max(self.mean_error, spread))
        day, week = abs(value - self.offset - self.day), abs(value - self.offset - self.week)
        self.mean += weight * (step if change > 0 else -step)
        self.mean_error += weight * (_clip(size, clip * self.mean_error) - self.mean_error)
        self.day_error += weight * (_clip(day, clip * self.day_error) - self.day_error)
        self.week_error += weight * (_clip(week, clip * self.week_error) - self.week_error)


@dataclass(slots=True)
class Deviation:
    """A value in comparison with those before.

    Attributes:
        value: itself.
        recent: the level of the last values before it.
        jump: from that to the value, in usual jumps.
        usual: the usual level at this hour.
        drift: the smoothed deviation from that, in usual ones at this hour.
        distance: of the last values from the usual level, in usual deviations of a value.
    """

    value: float
    recent: float
    jump: float
    usual: float
    drift: float
    distance: float


@dataclass(slots=True)
class Learner:
    """A series in a fixed number of figures.

    Attributes:
        at: the time of the last value.
        age: the seconds of learning, at most `MEMORY`.
        recent: the level of the last values.
        drift: the smoothed deviation from the usual level.
        jump_spread: the usual jump from the recent level.
        drift_spread: the usual drift.
        jump_limit: the least jump that is reported, in usual ones.
        drift_limit: the least drift that is reported, in usual ones.
        level: the usual one.
        hour: of the last value.
    """

    at: float = 0.0
    age: float = 0.0
    recent: float = 0.0
    drift: float = 0.0
    jump_spread: float = 0.0
    drift_spread: float = 0.0
    jump_limit: float = FIRST_LIMIT
    drift_limit: float = FIRST_LIMIT
    level: UsualLevel = field(default_factory=UsualLevel)
    hour: PresentHour = field(default_factory=PresentHour)

    @property
    def is_warm(self) -> bool:
        """True once it has learned for long enough to judge."""
        return self.age >= WARM_UP

    def start(self, at: float, value: float) -> None:
        """Begin with a first value."""
        self.at, self.hour.number, self.recent = at, int(at // HOUR), value
        self.level.mean = self.level.day = self.level.week = value

    def enter(self, number: int, day: SeasonHour, week: SeasonHour, value: float) -> None:
        """Begin an hour with its first value."""
        before, error = self.level.estimate, self.level.error
        self.level.enter(day, week)
        ratio = day.spread / error if day.count >= 2 and error else 1.0
        ratio = min(HOUR_SPREAD, max(1 / HOUR_SPREAD, ratio))
        self.hour = PresentHour(number, ratio=ratio)
        # A value that jumps at this hour of every day does not jump.
        shifted = self.recent + self.level.estimate - before
        if abs(value - shifted) < abs(value - self.recent):
            self.recent = shifted

    def learn(self, at: float, value: float, *, frozen: bool) -> Deviation:
        """Compare a value with those before, and learn it.

        Spreads are *frozen* while an anomaly lasts.
        """
        if at - self.at > GAP:
            self.recent, self.drift = value, 0.0
        seconds = min(at - self.at, LONGEST_STEP)
        self.at, self.age = at, min(self.age + seconds, MEMORY)
        weight, recent, usual = seconds / self.age, self.recent, self.level.estimate
        jump, error, least = value - recent, value - usual, LEAST_SPREAD * abs(usual)
        self.drift += SMOOTH * (error - self.drift)
        jump_spread = max(self.jump_spread, least)
        drift_spread = max(self.drift_spread * self.hour.ratio, least / 2)
        if not frozen:
            most = self.jump_limit if self.is_warm else WARM_CLIP
            self.jump_spread += weight * (_clip(abs(jump), most * jump_spread) - self.jump_spread)
            most = self.drift_limit if self.is_warm else WARM_CLIP
            size = _clip(abs(self.drift), most * drift_spread)
            self.drift_spread += weight * (size - self.drift_spread)
        clip = CLIP if self.is_warm else WARM_CLIP
        usual_error = self.level.error
        size = _clip(abs(error), clip * max(usual_error, jump_spread))
        plain = usual + (size if error > 0 else -size) - self.level.offset
        self.hour.add(plain, size)
        self.level.learn(value, weight, clip, jump_spread)
        self.recent += RECENT * jump
        return Deviation(
            value,
            recent,
            jump=_ratio(jump, jump_spread),
            usual=usual,
            drift=_ratio(self.drift, drift_spread),
            distance=_ratio(abs(self.recent - usual), max(usual_error, least)),
        )

    def relax(self, seconds: float) -> None:
        """Let limits that grew shrink again."""
        share = 1 - SHRINKAGE * min(seconds, LONGEST_STEP) / MEMORY
        self.jump_limit = max(LEAST_LIMIT, self.jump_limit * share)
        self.drift_limit = max(LEAST_LIMIT, self.drift_limit * share)

    def settle(self, jump: float, drift: float) -> None:
        """Raise the limits after an anomaly with this largest jump and drift, which is over."""
        self.drift = 0.0
        self.jump_limit *= _growth(jump / self.jump_limit)
        self.drift_limit *= _growth(drift / self.drift_limit)

    def adopt(self) -> None:
        """Take the recent level as the usual one."""
        self.level.offset += self.recent - self.level.estimate


def _clip(size: float, most: float) -> float:
    """A size, at most *most*; a series without any spread has no limit."""
    return min(size, most) if most else size


def _ratio(size: float, spread: float) -> float:
    if spread:
        return size / spread
    return FROM_CONSTANT if size > 0 else -FROM_CONSTANT if size < 0 else 0.0


def _growth(size: float) -> float:
    return max(GROWTH, min(MOST_GROWTH, size)) if size > 1 else 1.0


#: How figures are written: levels need more digits than spreads, as a value moves them by less.
_LEVEL, _SPREAD = "%.9g", "%.7g"
_FORMATS = {
    "at": "%.1f",
    "age": _LEVEL,
    "recent": _LEVEL,
    "drift": _LEVEL,
    "jump_spread": _SPREAD,
    **dict.fromkeys(("drift_spread", "jump_limit", "drift_limit"), _SPREAD),
    **dict.fromkeys(("level.mean", "level.day", "level.week"), _LEVEL),
    **dict.fromkeys(("level.mean_error", "level.day_error", "level.week_error"), _SPREAD),
    "level.offset": _LEVEL,
    "hour.number": "%d",
    "hour.count": "%d",
    "hour.mean": _LEVEL,
    **dict.fromkeys(("hour.error", "hour.ratio"), _SPREAD),
}
_FORMAT = " ".join(_FORMATS.values())
_figures = attrgetter(*_FORMATS)


def write_learner(learner: Learner) -> str:
    """The figures of a learner as text; reading and writing it again changes nothing."""
    return _FORMAT % _figures(learner)


def read_learner(texts: Sequence[str]) -> Learner:
    """The learner with these figures."""
    figures = list(map(float, texts))
    number, count, *rest = figures[15:]
    learner = Learner(
        level=UsualLevel(*figures[8:15]), hour=PresentHour(int(number), int(count), *rest)
    )
    learner.at, learner.age, learner.recent, learner.drift = figures[:4]
    learner.jump_spread, learner.drift_spread = figures[4:6]
    learner.jump_limit, learner.drift_limit = figures[6:8]
    return learner
