"""Observations, the situations they make, and facts about the world."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten
from typing import Any, Literal, TypeAlias

from pydantic import Field

from boyd.models.base import (
    LEVELS,
    Confidence,
    JsonObject,
    Level,
    Model,
    Severity,
    Timestamp,
    utc_now,
)
from boyd.models.notification import Acknowledgement

#: The most characters of a class of situation in words.
MAX_LABEL = 200
#: The most characters of the description of an open anomaly.
MAX_DESCRIPTION = 300
#: The end of a pod's name: the hash of its replica set, and five letters of its own.
_POD = re.compile(r"(?<=-)(?=[a-z0-9]*[0-9])[a-z0-9]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_WORD = re.compile(r"[^-_.:/@, ]+")
#: The most characters of a kind, and of the value of a param; of a longer value a digest is kept.
_MAX_KIND, _MAX_VALUE = 100, 100
#: Separates the words of an anomaly's type.
_LAST_WORD = re.compile(r"[-_.:/ ]+[^-_.:/ ]*$")
#: Where a fact is in a graph: subject, predicate, object.
Place: TypeAlias = tuple[str, str, str]


class Triple(Model):
    """A fact with its confidence and source.

    Predicates that begin with `agent:` concern the agent's own work; they are not knowledge.
    """

    subject: str = Field(min_length=1, max_length=1000)
    predicate: str = Field(min_length=1, max_length=1000)
    object: str = Field(min_length=1, max_length=1000)
    confidence: Confidence = 1.0
    source: str | None = Field(default=None, max_length=1000)

    @property
    def place(self) -> Place:
        """The fact's identity: subject, predicate, object."""
        return (self.subject, self.predicate, self.object)

    @property
    def is_metadata(self) -> bool:
        """True if it concerns the agent's own work."""
        return self.predicate.startswith("agent:")


ObservationType = Literal["metric", "log", "alert", "event", "state"]


#: The beginning of the source of an observation that was sent in the name of a plugin.
FORGED = "intake:"


class Observation(Model):
    """One signal from one source at one time."""

    source: str = Field(min_length=1)
    type: ObservationType
    data: JsonObject
    severity: Severity | None = None
    metadata: JsonObject | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)

    @property
    def is_sent(self) -> bool:
        """True if it was sent to an intake, and not observed by a plugin."""
        return (self.metadata or {}).get("intake") is not None

    @property
    def is_forged(self) -> bool:
        """True if it was sent in the name of a plugin of the agent; its source says so."""
        return self.source.startswith(FORGED)


class SeriesPoint(Model):
    """The values of a series in a span of time that begins `at` this time."""

    at: Timestamp
    low: float
    mean: float
    high: float


class NumberSeries(Model):
    """A number that observations have, in spans of equal length."""

    name: str
    points: list[SeriesPoint]


class Anomaly(Model):
    """An abnormal condition."""

    type: str
    description: str
    severity: Level
    affected_resources: list[str] | None = None

    @property
    def family(self) -> str:
        """The type without its last word, which is a degree: `endpoint` of `endpoint-down`.

        A type of one word is its own family.
        """
        return _LAST_WORD.sub("", self.type) or self.type


class OpenAnomaly(Model):
    """An anomaly on one resource that has not ended.

    `symptom` is its family and resource in one line, such as `endpoint on web`; it lasts, whatever
    the type and severity, since the time in `since`. `id` is a short name for addresses and
    commands; `acknowledgement` is the latest one.
    """

    id: str | None = None
    plugin_id: str
    symptom: str
    resource: str
    type: str
    severity: Level
    description: str
    since: Timestamp | None = None
    acknowledgement: Acknowledgement | None = None

    def keeper(self, now: datetime) -> Acknowledgement | None:
        """The acknowledgement that is in force, if there is one."""
        latest = self.acknowledgement
        return latest if latest is not None and latest.is_in_force(now) else None


class Correlation(Model):
    """Observations that belong together, named by their sources."""

    observations: list[str]
    description: str
    confidence: Confidence


class SituationAssessment(Model):
    """One orienter's assessment of the observations.

    `data` is typed evidence for strategies, which should not parse `findings`. Without `confidence`
    it does not count in that of the situation.
    """

    source: str
    findings: list[str]
    confidence: Confidence | None = None
    contributing_factor: str | None = None
    impact_assessment: str | None = None
    data: JsonObject | None = None
    anomalies: list[Anomaly] | None = None
    correlations: list[Correlation] | None = None


def mean_confidence(assessments: Iterable[SituationAssessment]) -> float:
    """The mean over the assessments that have a confidence; 0 when none has."""
    confidences = [
        assessment.confidence for assessment in assessments if assessment.confidence is not None
    ]
    return sum(confidences) / len(confidences) if confidences else 0.0


class Situation(Model):
    """All assessments merged."""

    summary: str = "No significant observations"
    assessments: list[SituationAssessment] = Field(default_factory=list)
    anomalies: list[Anomaly] = Field(default_factory=list)
    correlations: list[Correlation] = Field(default_factory=list)
    priority: Level = "low"
    confidence: Confidence = 0.0

    @property
    def open_anomalies(self) -> list[OpenAnomaly]:
        """The worst anomaly of each plugin, family and resource, worst first."""
        pairs = [
            (assessment.source.partition(":")[0], anomaly)
            for assessment in self.assessments
            for anomaly in assessment.anomalies or ()
        ]
        assessed = [anomaly for _, anomaly in pairs]
        pairs += [("", anomaly) for anomaly in self.anomalies if anomaly not in assessed]
        anomalies = [
            _open(plugin_id, anomaly, resource)
            for plugin_id, anomaly in pairs
            for resource in anomaly.affected_resources or [""]
        ]
        anomalies.sort(key=lambda it: (-LEVELS.index(it.severity), it.plugin_id, it.symptom))
        worst: dict[tuple[str, str], OpenAnomaly] = {}
        for anomaly in anomalies:
            worst.setdefault((anomaly.plugin_id, anomaly.symptom), anomaly)
        return [*worst.values()]

    def anomalies_for(self, plugin_id: str) -> list[Anomaly]:
        """The anomalies that the orienters of a plugin found, if it has any, or else all."""
        own = [
            assessment
            for assessment in self.assessments
            if assessment.source.startswith(f"{plugin_id}:")
        ]
        return (
            [a for assessment in own for a in assessment.anomalies or []] if own else self.anomalies
        )

    def evidence(self, source: str) -> JsonObject:
        """The typed data that the orienter *source* (`plugin:name`) gave, or an empty object."""
        for assessment in self.assessments:
            if assessment.source == source and assessment.data is not None:
                return assessment.data
        return {}


def _open(plugin_id: str, anomaly: Anomaly, resource: str) -> OpenAnomaly:
    words = f"{anomaly.family} on {resource}" if resource else anomaly.family
    return OpenAnomaly(
        plugin_id=plugin_id,
        symptom=shorten(words, MAX_LABEL),
        resource=resource,
        type=anomaly.type,
        severity=anomaly.severity,
        description=shorten(anomaly.description, MAX_DESCRIPTION, placeholder="…"),
    )


def kind_of(target: str) -> str:
    """The kind of a target: its name, with `*` in place of numbers and hashes.

    `web-3` and `web-17` are `web-*`, and so are the pods of a deployment `web`.
    """
    return shorten(_WORD.sub(_blur, _POD.sub("*", target)), _MAX_KIND)


def _blur(word: re.Match[str]) -> str:
    """A word without a number, the letters before one, or nothing of a word that mixes both."""
    if not any(letter.isdigit() for letter in word[0]):
        return word[0]
    letters = word[0].rstrip("0123456789")
    return f"{letters}*" if letters.isalpha() else "*"


@dataclass(frozen=True)
class CallScope:
    """The targets of a call, and its other params: numbers, and everything else as JSON text.

    Attributes:
        parameter: the name of the param that names the target; empty: the targets are the
            resources of the anomalies.
    """

    parameter: str
    targets: tuple[str, ...]
    params: Mapping[str, float | str]

    @classmethod
    def of(
        cls, parameter: str | None, params: Mapping[str, Any], resources: Iterable[str]
    ) -> CallScope:
        """The scope of a call with *params*; without a target param it is about *resources*."""
        target = str(params.get(parameter, "")) if parameter else ""
        targets = (target,) if target else tuple(sorted(resources))
        others = {name: _flat(value) for name, value in params.items() if name != parameter}
        return cls(parameter or "", targets, others)

    @property
    def kind(self) -> str:
        """The kinds of its targets."""
        return shorten(", ".join(sorted({kind_of(target) for target in self.targets})), _MAX_KIND)

    @property
    def plan(self) -> JsonObject:
        """The scope as a script notes what an effective execution covers."""
        return {
            "parameter": self.parameter or "target",
            "targets": list(self.targets),
            "params": dict(self.params),
        }


#: Whole numbers in JSON may be larger than any float.
_LARGEST = sys.float_info.max


def _flat(value: Any) -> float | str:
    """A number, or else the value as JSON text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return value
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= _MAX_VALUE else _digest(text, 16)


@dataclass(frozen=True)
class SituationClass:
    """A class of situations: the types of the anomalies, and the kind of the targets.

    Where there is no anomaly, the params that are no numbers belong to it, too.
    """

    types: tuple[str, ...]
    kind: str
    params: tuple[str, ...] = ()

    @classmethod
    def of(cls, situation: Situation, plugin_id: str, scope: CallScope) -> SituationClass:
        """The class in which an action of a plugin is counted."""
        types = tuple(sorted({a.type for a in situation.anomalies_for(plugin_id)}))
        texts = [f"{name}={text}" for name, text in scope.params.items() if isinstance(text, str)]
        return cls(types, scope.kind, () if types else tuple(sorted(texts)))

    @property
    def key(self) -> str:
        """The class in Redis and on the wire; classes of the same anomalies begin alike."""
        kinds = [self.kind, *self.params]
        return f"{_digest(json.dumps(self.types))}-{_digest(json.dumps(kinds))}"

    @property
    def label(self) -> str:
        """The class in words."""
        trouble = "; ".join(self.types) or "no anomaly"
        where = f" on {self.kind}" if self.kind else ""
        label = f"{trouble}{where}" + "".join(f", {text}" for text in self.params)
        return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"


def is_related(key: str, other: str) -> bool:
    """Report whether two classes, by their keys, have the same types of anomalies."""
    return key.partition("-")[0] == other.partition("-")[0]


def _digest(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


#: The situation before the first iteration has produced one.
NO_SITUATION = Situation(summary="No situation yet")
