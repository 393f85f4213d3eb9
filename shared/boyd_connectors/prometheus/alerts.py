"""Alertmanager's alerts and silences, and queries with thresholds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from boyd.models import JsonObject, Model, Severity
from boyd.plugin import Context
from boyd.plugins.http_service import HttpService, ServiceError, StateError
from boyd_connectors.connector_parts import Sample, names_in_alarm

_MATCHER = re.compile(r'([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*(,?)\s*', re.ASCII)
MAX_MATCHERS = 20
_MAKER = "boyd"
#: Characters of a label or an annotation that are kept.
MAX_TEXT = 500


@dataclass(frozen=True)
class Matcher:
    """One condition on a label."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        # Alertmanager reads no other escapes than these.
        value = self.value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return f'{self.name}{self.operator}"{value}"'

    def to_wire(self) -> JsonObject:
        """The matcher as Alertmanager has it."""
        flags = {"isRegex": "~" in self.operator, "isEqual": not self.operator.startswith("!")}
        return {"name": self.name, "value": self.value, **flags}


def parse_matchers(text: str) -> list[Matcher]:
    """Matchers as in `alertname="Down",instance=~"web.*"`, sorted, each once.

    Raises:
        ValueError: the text is something else, or no matcher demands a label to have a value.
    """
    matchers, position = [], 0
    while position < len(text):
        match = _MATCHER.match(text, position)
        if match is None or not (match[4] or match.end() == len(text)):
            raise ValueError(f'expected name="value" at {text[position : position + 30]!r}')
        try:
            value = json.loads(match[3], strict=False)
            value.encode()
        except ValueError:
            raise ValueError(f"{match[1]}: {match[3]} has an unknown escape") from None
        matchers.append(Matcher(match[1], match[2], value))
        position = match.end()
    if len(matchers) > MAX_MATCHERS:
        raise ValueError(f"has more than {MAX_MATCHERS} matchers")
    if not any(matcher.operator == "=" and matcher.value for matcher in matchers):
        raise ValueError('needs a matcher such as alertname="Down", or it may silence everything')
    return sorted(set(matchers), key=str)


def _canonical(text: str) -> str:
    return ",".join(map(str, parse_matchers(text)))


class SilenceParams(Model):
    """The alerts to silence, for how many seconds, and why."""

    matchers: Annotated[str, AfterValidator(_canonical)] = Field(
        min_length=1,
        max_length=4000,
        description='as in Alertmanager: alertname="Down",instance=~"web.*"',
    )
    duration: int = Field(default=3600, ge=60, le=604_800, description="in seconds")
    comment: str = Field(default="", max_length=500)


class ExpireSilenceParams(Model):
    """A silence by its id."""

    silence_id: str = Field(pattern=r"^[0-9A-Za-z-]{1,64}$")


def matchers_of(silence: Mapping[str, Any]) -> str:
    """The matchers of a silence as text."""
    return ",".join(sorted(str(_matcher(matcher)) for matcher in silence["matchers"]))


def _matcher(wire: Mapping[str, Any]) -> Matcher:
    equal, regex = wire.get("isEqual", True), wire["isRegex"]
    operator = ("=~" if equal else "!~") if regex else ("=" if equal else "!=")
    return Matcher(wire["name"], operator, wire["value"])


class Alertmanager:
    """An Alertmanager."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def alerts(self, ctx: Context, *matchers: Matcher) -> list[dict[str, Any]]:
        """The alerts that fire and are neither silenced nor inhibited."""
        alerts: list[dict[str, Any]] = self._service.get(
            ctx,
            "/api/v2/alerts",
            filter=[str(matcher) for matcher in matchers],
            active="true",
            silenced="false",
            inhibited="false",
        )
        return alerts

    def silence(self, ctx: Context, id: str) -> dict[str, Any]:
        """A silence, also an expired one.

        Raises:
            StateError: there is none.
        """
        try:
            silence: dict[str, Any] = self._service.get(ctx, f"/api/v2/silence/{id}")
        except ServiceError as error:
            if error.status == 404:
                raise StateError(f"Alertmanager has no silence {id}") from None
            raise
        return silence

    def find_by_execution(self, ctx: Context, execution_id: str) -> dict[str, Any] | None:
        """The silence that an execution has created, if any."""
        silences = self._service.get(ctx, "/api/v2/silences")
        mark = _mark(execution_id)
        return next((silence for silence in silences if silence["comment"].endswith(mark)), None)

    def create(self, ctx: Context, silence: Mapping[str, Any]) -> str:
        """Create a silence; its id."""
        answer = self._service.send(ctx, "POST", "/api/v2/silences", body=dict(silence))
        return str(answer["silenceID"])

    def expire(self, ctx: Context, id: str) -> None:
        """Expire a silence."""
        self._service.send(ctx, "DELETE", f"/api/v2/silence/{id}")


def new_silence(
    matchers: list[Matcher], start: datetime, seconds: float, comment: str, execution_id: str
) -> JsonObject:
    """A silence from now on, marked as that of an execution."""
    return {
        "matchers": [matcher.to_wire() for matcher in matchers],
        "startsAt": start.isoformat(),
        "endsAt": (start + timedelta(seconds=seconds)).isoformat(),
        "createdBy": _MAKER,
        "comment": f"{comment} {_mark(execution_id)}".strip(),
    }


def _mark(execution_id: str) -> str:
    return f"[boyd {execution_id}]"


def is_as_made(silence: Mapping[str, Any], until: str) -> bool:
    """True if nobody has changed a silence that was made to end at *until*."""
    ends = datetime.fromisoformat(silence["endsAt"]), datetime.fromisoformat(until)
    return silence["createdBy"] == _MAKER and abs(ends[0] - ends[1]) < timedelta(seconds=1)


def is_over(silence: Mapping[str, Any]) -> bool:
    """True if a silence has expired."""
    return bool(silence["status"]["state"] == "expired")


#: Severities by the usual values of the label `severity`.
_SEVERITIES: Mapping[str, Severity] = {
    "critical": "critical",
    "page": "critical",
    "error": "error",
    "info": "info",
}


def severity_of(labels: Mapping[str, str]) -> Severity:
    """The severity of an alert, by its label; a warning if that says nothing else."""
    return _SEVERITIES.get(labels.get("severity", "").lower(), "warning")


def alert_data(labels: Mapping[str, str], annotations: Mapping[str, str]) -> JsonObject:
    """An alert for an observation; `matchers` would silence it."""
    shortened: JsonObject = {name: value[:MAX_TEXT] for name, value in sorted(labels.items())}
    summary = annotations.get("summary") or annotations.get("description") or ""
    exact = [Matcher(name, "=", value) for name, value in sorted(labels.items())]
    return {
        "alertname": shortened.get("alertname", ""),
        "labels": shortened,
        "summary": summary[:MAX_TEXT],
        "matchers": ",".join(map(str, exact[:MAX_MATCHERS])),
    }


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
        labels: the labels that tell series apart, of which the worst counts; by default all.
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
    def _check_order(self) -> Self:
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

    def worst_first(self, series: Iterable[Series]) -> list[Series]:
        """The series in the order of their values."""
        return sorted(series, key=lambda item: item.value, reverse=self.above is not None)

    def trouble(self, series: Series) -> JsonObject:
        """A series that is beyond the threshold, for an observation."""
        return {
            "query": self.name,
            "labels": dict(series.labels),
            "value": number(series.value),
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

    def to_wire(self) -> JsonObject:
        """The series for an observation."""
        return {"labels": dict(self.labels), "value": number(self.value)}


def series_in(data: JsonObject) -> list[Series]:
    """The series of an observation."""
    items: Any = data["series"]
    return [Series(item["labels"], float(item["value"])) for item in items]


def selector(labels: Mapping[str, str]) -> str:
    """Labels as people write them: `instance="a",job="b"`."""
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))


def series_of(query: WatchedQuery, result: Any) -> list[Series]:
    """The series in the result of an instant query; those without a number are left out.

    Raises:
        ValueError: it is neither a vector nor a scalar, or one of histograms.
    """
    kind, items = result["resultType"], result["result"]
    if kind == "scalar":
        items = [{"metric": {}, "value": items}]
    elif kind != "vector":
        raise ValueError(f"query {query.name}: gives a {kind}; expected a vector or a scalar")
    values: dict[str, tuple[Mapping[str, str], list[float]]] = {}
    for item in items:
        if "value" not in item:
            raise ValueError(f"query {query.name}: gives histograms; use one of their functions")
        value, labels = float(item["value"][1]), item["metric"]
        if query.labels is not None:
            labels = {name: labels.get(name, "") for name in query.labels}
        if not math.isnan(value):
            values.setdefault(selector(labels), (labels, []))[1].append(value)
    return [Series(labels, query.worst(several)) for labels, several in values.values()]


def beyond(ctx: Context, query: WatchedQuery, series: list[Series]) -> list[Series]:
    """The series that are in trouble, the worst first."""
    ranked = query.worst_first(series)[:MAX_SERIES]
    samples = {item.id: query.sample(item.value) for item in ranked}
    bad = names_in_alarm(ctx, f"query:{query.name}", samples, query.samples)
    return [item for item in ranked if item.id in bad]


def number(value: float) -> float | str:
    """A value as JSON: six digits that count, or the name of what is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)
