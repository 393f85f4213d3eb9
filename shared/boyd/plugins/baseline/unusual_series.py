"""An anomaly of one series, from its first unusual value to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boyd.models import LEVELS, Anomaly, Level
from boyd.plugins.baseline.learner import Deviation, Learner
from boyd.plugins.baseline.measurements import Measurement
from boyd.text.formatting import seconds

#: An anomaly ends after so many values in a row whose jumps are below half of the limit, and whose
#: drift is, too, or that are back at the usual level: within so many usual deviations.
CALM, CALM_SHARE, CALM_DISTANCE = 6, 0.5, 2.0
#: The seconds after which a lasting deviation is the new level.
ADOPTION = 43_200.0
#: The sizes, in limits, from which an anomaly is more severe, and so is one that lasts so long.
SIZES = (2.0, 5.0)
LASTING = 3600.0
#: From here on a multiple says no more than that it is large.
_MOST_TIMES = 1000.0

Ending = Literal["calm", "adopted"]


@dataclass(slots=True)
class UnusualSeries:
    """A series whose values are unusual.

    Attributes:
        thing: what the series is about.
        field: of its observations.
        since: the time of the first unusual value.
        at: the time of the last value.
        pause: the seconds between the last two values.
        value: the last one.
        usual: what is usual at this hour, or was before a jump.
        high: whether the first value was above that.
        jumped: whether it was a jump, and not a deviation from what is usual at this hour.
        jump: the largest jump, in usual ones.
        drift: the largest drift, in usual ones.
        size: the larger of the two as a multiple of its limit.
        calm: the number of values in a row that were far below the limits.
    """

    thing: str
    field: str
    since: float
    at: float
    pause: float
    value: float
    usual: float
    high: bool
    jumped: bool
    jump: float = 0.0
    drift: float = 0.0
    size: float = 0.0
    calm: int = 0

    @property
    def series(self) -> str:
        """The name of the series."""
        return f"{self.thing} {self.field}"

    @property
    def times(self) -> float:
        """The largest deviation, in usual ones."""
        return round(max(self.jump, self.drift), 1)

    @property
    def severity(self) -> Level:
        """The severity by size, and by duration."""
        rank = sum(self.size >= size for size in SIZES)
        return LEVELS[min(2, rank + (self.at - self.since >= LASTING))]

    @property
    def text(self) -> str:
        """The anomaly for people."""
        size = f"{self.times:g} times" if self.times < _MOST_TIMES else "more than 1000 times"
        lasts = seconds(self.at - self.since) if self.at > self.since else ""
        value, usual = format_figure(self.value), format_figure(self.usual)
        if self.jumped:
            later = f"{lasts} later it" if lasts else "it"
            way = f"jumped from about {usual}, {size} its usual change"
            return f"{self.series} {way}; {later} is {value}"
        way = f"{size} their usual spread {'above' if self.high else 'below'}"
        since = f"usual at this hour, for {lasts}" if lasts else "usual at this hour"
        return f"{self.series} is {value}: its last values are {way} {usual}, which is {since}"

    @property
    def anomaly(self) -> Anomaly:
        """The anomaly of a situation."""
        return Anomaly(
            type=f"unusual-{self.field}-{'high' if self.high else 'low'}",
            description=self.text,
            severity=self.severity,
            affected_resources=[self.thing],
        )

    def follow(self, deviation: Deviation, at: float, learner: Learner) -> Ending | None:
        """Take in the next value; how the anomaly ends with it, if it does."""
        jump, drift = abs(deviation.jump), abs(deviation.drift)
        self.pause, self.at, self.value = at - self.at, at, deviation.value
        if not self.jumped:
            self.usual = deviation.usual
        self.jump, self.drift = max(self.jump, jump), max(self.drift, drift)
        self.size = max(self.jump / learner.jump_limit, self.drift / learner.drift_limit)
        is_back = drift < CALM_SHARE * learner.drift_limit or deviation.distance <= CALM_DISTANCE
        is_calm = is_back and jump < CALM_SHARE * learner.jump_limit
        self.calm = self.calm + 1 if is_calm else 0
        if self.calm >= CALM:
            return "calm"
        return "adopted" if at - self.since >= ADOPTION and self.calm == 0 else None


def open_anomaly(
    measurement: Measurement, deviation: Deviation, learner: Learner, before: float
) -> UnusualSeries | None:
    """The anomaly that begins with a value, if that is far enough from what is usual.

    The value *before* it came at that time.
    """
    jumps = abs(deviation.jump) > learner.jump_limit
    if not jumps and abs(deviation.drift) <= learner.drift_limit:
        return None
    anomaly = UnusualSeries(
        thing=measurement.thing,
        field=measurement.field,
        since=measurement.at,
        at=before,
        pause=0.0,
        value=measurement.value,
        usual=deviation.recent if jumps else deviation.usual,
        high=(deviation.jump if jumps else deviation.drift) > 0,
        jumped=jumps,
    )
    anomaly.follow(deviation, measurement.at, learner)
    return anomaly


def format_figure(value: float) -> str:
    """A value for people, in three digits or as a whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
