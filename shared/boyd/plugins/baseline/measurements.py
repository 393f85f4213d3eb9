"""The numbers in observations, and the series that each belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from boyd.models import JsonObject, Observation

#: Larger numbers are no measurements, and their sums might overflow.
LARGEST = 1e100
#: The most characters of a name in that of a series.
_LONGEST = 60


class Measurement(NamedTuple):
    """A number that was observed: of which thing, in which field, and when."""

    thing: str
    field: str
    at: float
    value: float

    @property
    def series(self) -> str:
        """The name of its series."""
        return f"{self.thing} {self.field}"


class MeasurementFilter(NamedTuple):
    """Patterns of the fields that are series, and of those that name the thing they are about."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    identity: tuple[str, ...]

    def measurements(
        self, observations: Iterable[Observation], until: float
    ) -> Iterator[Measurement]:
        """The measurements in metrics and states; one from the future counts as one of *until*."""
        for observation in observations:
            if observation.type not in ("metric", "state"):
                continue
            thing, at = self._thing(observation), observation.timestamp.timestamp()
            for field, value in observation.data.items():
                number = _measurement(value)
                if number is not None and self._covers(thing, field):
                    yield Measurement(thing, field, round(min(at, until), 1), number)

    def _covers(self, thing: str, field: str) -> bool:
        series = f"{thing} {field}"
        return _matches(series, self.include) and not _matches(series, self.exclude)

    def _thing(self, observation: Observation) -> str:
        names = dict.fromkeys(self._names(observation.data))
        parts = observation.source.split("/")
        names = {name[:_LONGEST]: None for name in names if name not in parts}
        return f"{observation.source}[{', '.join(names)}]" if names else observation.source

    def _names(self, data: JsonObject) -> Iterator[str]:
        for field, value in data.items():
            if isinstance(value, str) and _matches(field, self.identity):
                yield value
            elif field == "labels" and isinstance(value, dict):
                yield from (text for name, text in sorted(value.items()) if isinstance(text, str))


@lru_cache(maxsize=10_000)
def series_id(series: str) -> str:
    """A short key for a series."""
    return hashlib.sha256(series.encode("utf-8", "surrogatepass")).hexdigest()[:10]


@lru_cache(maxsize=10_000)
def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _measurement(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None
