"""Observations, the situations they make, and facts about the world."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from textwrap import shorten
from typing import Literal, TypeAlias

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

#: The most characters of a class of situation in words.
MAX_LABEL = 200
#: The most characters of the description of an open anomaly.
MAX_DESCRIPTION = 300
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


class Observation(Model):
    """One signal from one source at one time."""

    source: str = Field(min_length=1)
    type: ObservationType
    data: JsonObject
    severity: Severity | None = None
    metadata: JsonObject | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)


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
    the type and severity, since the time in `since`.
    """

    plugin_id: str
    symptom: str
    resource: str
    type: str
    severity: Level
    description: str
    since: Timestamp | None = None


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

    def class_for(self, plugin_id: str) -> str:
        """The class of the situation for actions of a plugin: a digest of the anomalies.

        These are the ones that its own orienters found, if it has any, or else all. Situations that
        differ only in figures, texts or confidence are of the same class.
        """
        text = json.dumps(sorted(map(_class, self._classing(plugin_id))))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def label_for(self, plugin_id: str) -> str:
        """The class of the situation for actions of a plugin, in words."""
        labels = sorted({_label(anomaly) for anomaly in self._classing(plugin_id)})
        label = "; ".join(labels) or "no anomaly"
        return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"

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
        worst = {(it.plugin_id, it.symptom): it for it in reversed(anomalies)}
        return [it for it in anomalies if worst[it.plugin_id, it.symptom] is it]

    def _classing(self, plugin_id: str) -> list[Anomaly]:
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


def _label(anomaly: Anomaly) -> str:
    where = ", ".join(sorted(anomaly.affected_resources or []))
    return f"{anomaly.type}{where and f' on {where}'} ({anomaly.severity})"


def _class(anomaly: Anomaly) -> list[str]:
    return [anomaly.type, anomaly.severity, *sorted(anomaly.affected_resources or [])]


#: The situation before the first iteration has produced one.
NO_SITUATION = Situation(summary="No situation yet")
