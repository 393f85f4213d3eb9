"""A series: the learner of its values, or of its rate if they only rise."""

from __future__ import annotations

from typing import Literal, Protocol

from boyd.plugins.baseline.learner import (
    HOUR,
    Deviation,
    Learner,
    SeasonHour,
    read_learner,
    write_learner,
)

SeriesKind = Literal["new", "gauge", "counter"]
_KINDS: tuple[SeriesKind, ...] = ("new", "gauge", "counter")


def season_names(series: str) -> tuple[str, str]:
    """The names of a series in the seasons: of its values, and of its rate if it is a counter."""
    return series, series + "+"


class Seasons(Protocol):
    """The seasons of all series, for every hour of the day and of the week."""

    def look_up(self, series: str, hour: int) -> tuple[SeasonHour, SeasonHour]:
        """The hour of the day and that of the week, of an hour since 1970."""

    def learn(self, series: str, hour: int, mean: float, spread: float) -> None:
        """Add one hour to both."""


class LearnedSeries:
    """A series: what it has learned, and whether its values only rise.

    Attributes:
        id: its name in the seasons.
        learner: of its values, or of its rate.
        kind: a new one may be a counter; a counter is learned by its rate.
        raw: the last value, as it was observed.
        rises: the number of values above the one before, less the number of others.
    """

    def __init__(self, id: str, text: str = "") -> None:
        """A new series, or the one that was written as *text*."""
        self.id = id
        self.learner, self.raw, self.rises = Learner(), 0.0, 0
        self.kind: SeriesKind = "new"
        if text:
            *figures, kind, raw, rises = text.split()
            self.learner, self.kind = read_learner(figures), _KINDS[int(kind)]
            self.raw, self.rises = float(raw), int(rises)

    def write(self) -> str:
        """The series as text."""
        figures = write_learner(self.learner)
        return f"{figures} {_KINDS.index(self.kind)} {self.raw!r} {self.rises}"

    def take(self, at: float, raw: float, seasons: Seasons, *, frozen: bool) -> Deviation | None:
        """Learn a value; its deviation, unless it is too early to tell or not the newest.

        Spreads are *frozen* while an anomaly lasts.
        """
        if at <= self.learner.at:
            return None
        value = self._value(at, raw)
        learner, self.raw = self.learner, raw
        if value is None:
            learner.at = at
            return None
        if not learner.hour.number:
            learner.start(at, value)
            return None
        if (hour := int(at // HOUR)) != learner.hour.number:
            self._enter(hour, seasons, value)
        was_warm = learner.is_warm
        deviation = learner.learn(at, value, frozen=frozen)
        if was_warm:
            return deviation
        if learner.is_warm:
            self._settle(at)
        return None

    def _value(self, at: float, raw: float) -> float | None:
        """The value to learn: the rate of a counter, none when that begins again."""
        change = raw - self.raw
        if self.kind == "counter":
            return change / (at - self.learner.at) if change >= 0 else None
        if self.kind == "new" and self.learner.at:
            self.kind = "gauge" if change < 0 else "new"
            self.rises += 1 if change > 0 else -1
        return raw

    def _enter(self, hour: int, seasons: Seasons, value: float) -> None:
        """End the hour of the last value, and look up the new one."""
        learner = self.learner
        name = season_names(self.id)[self.kind == "counter"]
        if (last := learner.hour).count:
            seasons.learn(name, last.number, last.mean, last.error)
        learner.enter(hour, *seasons.look_up(name, hour), value)

    def _settle(self, at: float) -> None:
        """At the end of the warm-up, learn a series that only rose anew, as a counter."""
        if self.kind == "new" and self.rises > 0:
            self.kind, self.learner = "counter", Learner(at=at)
        elif self.kind == "new":
            self.kind = "gauge"
