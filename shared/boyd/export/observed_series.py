"""Numbers that observations had over time, in spans that grow so that memory stays bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from boyd.models import Observation
from boyd.models.situation import NumberSeries, SeriesPoint

#: The most series that are followed, the most that are shown, and the most spans of each.
FOLLOWED, SHOWN, SPANS = 64, 6, 400
#: Larger numbers are no measurements, and their squares might overflow.
LARGEST = 1e100


class _Span:
    """The values of a span of time."""

    __slots__ = ("count", "high", "low", "total")

    def __init__(self, value: float) -> None:
        self.low = self.high = self.total = value
        self.count = 1

    @property
    def mean(self) -> float:
        return self.total / self.count

    def add(self, other: _Span) -> None:
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.total += other.total
        self.count += other.count


class _Follower:
    """One series; spans double in length when there are too many."""

    def __init__(self, length: float) -> None:
        self.length = length
        self.spans: dict[int, _Span] = {}

    def add(self, time: float, value: float) -> None:
        self._put(int(time // self.length), _Span(value))
        while len(self.spans) > SPANS:
            self.length *= 2
            spans, self.spans = self.spans, {}
            for number, span in spans.items():
                self._put(number // 2, span)

    def _put(self, number: int, span: _Span) -> None:
        present = self.spans.get(number)
        if present is None:
            self.spans[number] = span
        else:
            present.add(span)


class ObservedSeries:
    """The numbers of observations, by source and field."""

    def __init__(self, shortest: float = 1.0) -> None:
        """Follow them in spans of at least *shortest* seconds."""
        self._shortest = shortest
        self._followers: dict[str, _Follower] = {}

    def add(self, time: float, observations: Iterable[Observation]) -> None:
        """Add the numbers of an iteration."""
        for observation in observations:
            for path, value in _numbers(observation.data):
                name = f"{observation.source} {path}"
                if name not in self._followers and len(self._followers) >= FOLLOWED:
                    continue
                follower = self._followers.setdefault(name, _Follower(self._shortest))
                follower.add(time, value)

    def most_telling(self, labels: Sequence[tuple[float, float]]) -> list[NumberSeries]:
        """The series that differ most between the *labels*, from start to end, and other times."""
        varying = {
            name: follower
            for name, follower in self._followers.items()
            if len({span.mean for span in follower.spans.values()}) > 1
        }
        ordered = sorted(varying, key=lambda name: (-_contrast(varying[name], labels), name))
        return [_series(name, varying[name]) for name in ordered[:SHOWN]]


def _numbers(data: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of an observation with their paths, to the second level."""
    for name, value in data.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST:
            yield f"{above}{name}", float(value)
        elif isinstance(value, Mapping) and not above:
            yield from _numbers(value, f"{name}.")


def _contrast(follower: _Follower, labels: Sequence[tuple[float, float]]) -> float:
    """The difference of the means within and outside of labels, in standard deviations."""
    within: list[float] = []
    outside: list[float] = []
    for number, span in follower.spans.items():
        start, end = number * follower.length, (number + 1) * follower.length
        is_labelled = any(first <= end and start <= last for first, last in labels)
        (within if is_labelled else outside).append(span.mean)
    everything = within + outside
    mean = sum(everything) / len(everything)
    spread = math.sqrt(sum((value - mean) ** 2 for value in everything) / len(everything))
    if not within or not outside or not spread:
        return 0.0
    return abs(sum(within) / len(within) - sum(outside) / len(outside)) / spread


def _series(name: str, follower: _Follower) -> NumberSeries:
    points = [
        SeriesPoint(
            at=datetime.fromtimestamp(number * follower.length, UTC),
            low=span.low,
            mean=span.mean,
            high=span.high,
        )
        for number, span in sorted(follower.spans.items())
    ]
    return NumberSeries(name=name, points=points)
