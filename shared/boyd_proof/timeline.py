"""Recorded time: iterations, gaps between them, and what each agent saw in them.

A month has some hundred thousand iterations, so each costs a few bytes: its time, and the number of
its set of symptoms.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median

from boyd.models import Anomaly

WEEK = 7 * 86_400.0
#: Medians of the time between iterations after which there is a gap, and the fewest seconds.
_GAP_MEDIANS, _GAP_LEAST = 3.0, 60.0
#: The number of an iteration of which it cannot be told whether there is an anomaly.
_UNKNOWN = -1

#: The resource and the type of an anomaly; the resource is empty if the anomaly names none.
Sighting = tuple[str, str]


def sightings_of(anomalies: Iterable[Anomaly]) -> frozenset[Sighting]:
    """The resources and types of *anomalies*."""
    return frozenset(
        (resource, anomaly.type)
        for anomaly in anomalies
        for resource in anomaly.affected_resources or [""]
    )


class Timeline:
    """The times of iterations in seconds, oldest first, with the gaps between them."""

    def __init__(self, times: Iterable[float], gap_after: float | None = None) -> None:
        """*gap_after* is the number of seconds without an iteration from which there is a gap."""
        self.times = array("d", times)
        self._gap_after = gap_after

    @cached_property
    def gap_after(self) -> float:
        """The seconds without an iteration from which there is a gap."""
        if self._gap_after is not None:
            return self._gap_after
        distances = [later - earlier for earlier, later in pairwise(self.times)]
        return max(_GAP_LEAST, _GAP_MEDIANS * median(distances)) if distances else _GAP_LEAST

    @property
    def start(self) -> float:
        """The time of the first iteration."""
        return self.times[0]

    @property
    def end(self) -> float:
        """That of the last one."""
        return self.times[-1]

    def gaps(self) -> Iterator[tuple[float, float]]:
        """The times without iterations."""
        for earlier, later in pairwise(self.times):
            if later - earlier > self.gap_after:
                yield earlier, later

    def duration(
        self,
        is_counted: Callable[[int], bool] = lambda _index: True,
        start: float = float("-inf"),
        end: float = float("inf"),
    ) -> float:
        """The seconds from *start* to *end* between an iteration that counts and the next one.

        Gaps are left out.
        """
        first, last = bisect_left(self.times, start), bisect_right(self.times, end)
        total = 0.0
        for index in range(first, min(last, len(self.times) - 1)):
            distance = self.times[index + 1] - self.times[index]
            if distance <= self.gap_after and is_counted(index):
                total += min(self.times[index + 1], end) - self.times[index]
        return total

    def within(self, start: float, end: float) -> range:
        """The numbers of the iterations from *start* to *end*."""
        return range(bisect_left(self.times, start), bisect_right(self.times, end))

    def looks(self, start: float, end: float) -> range:
        """The numbers of the iterations from *start* to *end*; of those beside it if none is."""
        within = self.within(start, end)
        beside = range(max(within.start - 1, 0), min(within.stop + 1, len(self.times)))
        return within or beside

    def is_observed(self, time: float) -> bool:
        """Report whether a time lies within the record, and in none of its gaps."""
        index = bisect_right(self.times, time)
        if index == 0:
            return False
        if index == len(self.times):
            return time == self.end
        return self.times[index] - self.times[index - 1] <= self.gap_after


@dataclass(frozen=True)
class AlarmSpan:
    """Consecutive iterations with an anomaly, by the times of the first and the last of them."""

    start: float
    end: float
    target: str = ""
    type: str = ""


@dataclass(frozen=True)
class Distinction:
    """The distinction of alarms, by resource and type as far as labels make it."""

    by_target: bool = False
    by_type: bool = False

    def keys(self, sightings: Iterable[Sighting]) -> frozenset[Sighting]:
        """The different alarms that these sightings are."""
        return frozenset(
            (target if self.by_target else "", type_ if self.by_type else "")
            for target, type_ in sightings
        )


@dataclass
class Track:
    """The symptoms that an agent saw in each iteration."""

    _numbers: array[int] = field(default_factory=lambda: array("i"))
    _sets: dict[frozenset[Sighting], int] = field(default_factory=dict)

    def add(self, sightings: frozenset[Sighting] | None) -> None:
        """Add an iteration, without *sightings* if it cannot be told."""
        if sightings is None:
            self._numbers.append(_UNKNOWN)
        else:
            self._numbers.append(self._sets.setdefault(sightings, len(self._sets)))

    def is_known(self, index: int) -> bool:
        """Report whether it can be told if there was an anomaly in an iteration."""
        return self._numbers[index] != _UNKNOWN

    def count_unknown(self) -> int:
        """The number of iterations that cannot be told."""
        return self._numbers.count(_UNKNOWN)

    def is_alarm(self, index: int) -> bool:
        """Report whether there was an anomaly in an iteration."""
        number = self._numbers[index]
        return number != _UNKNOWN and number != self._sets.get(frozenset(), _UNKNOWN)

    def alarms(self, timeline: Timeline, distinction: Distinction) -> list[AlarmSpan]:
        """The alarms in order of their beginning.

        Iterations that are missing or cannot be told neither begin nor end an alarm.
        """
        keys = [distinction.keys(sightings) for sightings in self._sets]
        going_on: dict[Sighting, tuple[float, float]] = {}
        alarms: list[AlarmSpan] = []
        for time, number in zip(timeline.times, self._numbers, strict=True):
            if number == _UNKNOWN:
                continue
            present = keys[number]
            over = [key for key in going_on if key not in present]
            alarms += [AlarmSpan(*going_on.pop(key), *key) for key in over]
            for key in present:
                start = going_on[key][0] if key in going_on else time
                going_on[key] = (start, time)
        alarms += [AlarmSpan(*span, *key) for key, span in going_on.items()]
        return sorted(alarms, key=lambda alarm: (alarm.start, alarm.target, alarm.type))
