"""Queries with thresholds: what their results are compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.models import JsonObject, Severity
from boyd.plugin import Context
from boyd_connectors.hysteresis import Sample, raised

#: The most series of a query that are compared, the worst ones.
MAX_SERIES = 1000

Threshold = Annotated[float, Field(allow_inf_nan=False)]


class WatchedQuery(BaseModel):
    """A query whose series are compared with a threshold; either `above` or `below` is given.

    Attributes:
        name: the name in observations.
        expr: the query in PromQL.
        above: the value above which a series is in trouble.
        below: the value below which a series is in trouble.
        severity: that of the observations.
        clear: the threshold back at which a series is well again; by default the first one.
        samples: how many checks in a row a series must be beyond the threshold.
        labels: the labels that tell series apart, of which the worst counts; None: all.
        needs_data: whether it is trouble that the query yields nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    expr: str = Field(min_length=1, max_length=5000)
    above: Threshold | None = None
    below: Threshold | None = None
    clear: Threshold | None = None
    samples: int = Field(default=2, ge=1, le=100)
    severity: Severity = "warning"
    labels: list[str] | None = None
    needs_data: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("needs either `above` or `below`")
        if self.clear is not None and self._is_beyond(self.clear, self.threshold):
            raise ValueError("clear must be on the good side of the threshold")
        return self

    @property
    def threshold(self) -> float:
        """The value beyond which a series is in trouble."""
        return self.above if self.above is not None else self.below or 0.0

    def sample(self, value: float) -> Sample:
        """Compare a value with the thresholds: 2 is beyond both, 1 beyond that to clear."""
        clear = self.threshold if self.clear is None else self.clear
        level = self._is_beyond(value, self.threshold) + self._is_beyond(value, clear)
        return Sample(level, limit=2.0, clear=1.0)

    def _is_beyond(self, value: float, threshold: float) -> bool:
        return value > threshold if self.above is not None else value < threshold

    def worst(self, values: Iterable[float]) -> float:
        """The value that is furthest on the bad side."""
        return max(values) if self.above is not None else min(values)

    def trouble(self, one: Series) -> JsonObject:
        """A series that is beyond the threshold, for an observation."""
        return {
            "query": self.name,
            "labels": dict(one.labels),
            "value": number(one.value),
            "above" if self.above is not None else "below": self.threshold,
        }


@dataclass(frozen=True)
class Series:
    """A series of a result: the labels that tell it apart, and its value."""

    labels: Mapping[str, str]
    value: float

    @property
    def id(self) -> str:
        """The labels as a text."""
        return selector(self.labels)


def selector(labels: Mapping[str, str]) -> str:
    """Labels as people write them: `instance="a",job="b"`."""
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))


def series_of(query: WatchedQuery, result: Any) -> list[Series]:
    """The series in the result of an instant query; those without a number are left out.

    Raises:
        ValueError: it is neither a vector nor a scalar, or one of histograms.
    """
    kind, found = result["resultType"], result["result"]
    if kind == "scalar":
        found = [{"metric": {}, "value": found}]
    elif kind != "vector":
        raise ValueError(f"query {query.name}: gives a {kind}; expected a vector or a scalar")
    values: dict[str, tuple[Mapping[str, str], list[float]]] = {}
    for one in found:
        if "value" not in one:
            raise ValueError(f"query {query.name}: gives histograms; use one of their functions")
        value, labels = float(one["value"][1]), one["metric"]
        if query.labels is not None:
            labels = {name: labels.get(name, "") for name in query.labels}
        if not math.isnan(value):
            values.setdefault(selector(labels), (labels, []))[1].append(value)
    return [Series(labels, query.worst(several)) for labels, several in values.values()]


def beyond(ctx: Context, query: WatchedQuery, series: list[Series]) -> list[Series]:
    """The series that are in trouble, the worst first."""
    ranked = sorted(series, key=lambda one: one.value, reverse=query.above is not None)[:MAX_SERIES]
    samples = {one.id: query.sample(one.value) for one in ranked}
    bad = raised(ctx, f"query:{query.name}", samples, query.samples)
    return [one for one in ranked if one.id in bad]


def number(value: float) -> float | str:
    """A value as JSON: six digits that count, or the name of what is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)
