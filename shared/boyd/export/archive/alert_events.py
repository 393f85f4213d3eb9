"""Alerts about a target, with the links that came with them: runbook, dashboard, ticket."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from boyd.export.archive.entries import alert_targets
from boyd.export.archive.incident_grouping import QUIET, AnomalySighting
from boyd.export.archive.period_iterations import PastIteration
from boyd.models import Level, Observation, Severity
from boyd.models.incident import EventLink, TargetEvent, worst

#: The most links of an alert, values that are searched for them, and characters of one.
_LINKS, _SEARCHED, _LONGEST = 8, 500, 2000
#: Names of links in words, by their fields; others are called like their field.
_TITLES = {"generator": "source", "external": "sender", "html": "page", "": "link"}
_END = re.compile(r"[-_ .]?ur[il]s?$", re.IGNORECASE)
_LEVELS: Mapping[Severity | None, Level] = {
    "info": "low",
    "warning": "medium",
    "error": "high",
    "critical": "critical",
}


def alert_events(
    target: str, sightings: Sequence[AnomalySighting], iterations: Sequence[PastIteration]
) -> list[TargetEvent]:
    """The alerts about *target* in these iterations; repeated ones are merged into one event."""
    events: dict[str, list[TargetEvent]] = {}
    for sighting, iteration in zip(sightings, iterations, strict=True):
        for alert in _alerts_on(target, iteration):
            earlier = events.setdefault(_identity(alert), [])
            event = _event(alert, sighting)
            if earlier and event.at - earlier[-1].until < QUIET:
                earlier[-1] = _merge(earlier[-1], event)
            else:
                earlier.append(event)
    return [event for row in events.values() for event in row]


def _merge(earlier: TargetEvent, later: TargetEvent) -> TargetEvent:
    """An alert that was sent again: its latest state, with its worst severity."""
    gravest = worst([earlier, later])
    changes = {
        "until": later.until,
        "state": later.state,
        "severity": gravest.severity if gravest else None,
        "links": earlier.links or later.links,
    }
    return earlier.model_copy(update=changes)


def _alerts_on(target: str, iteration: PastIteration) -> list[Observation]:
    """The alerts that name *target*.

    Alerts may name it differently, by an address for instance: if *target* alone has anomalies,
    these are all alerts of the iteration.
    """
    alerts = [item for item in iteration.observations if item.type == "alert"]
    anomalies = iteration.situation.anomalies if iteration.situation else []
    resources = {name for anomaly in anomalies for name in anomaly.affected_resources or []}
    if resources == {target}:
        return alerts
    return [alert for alert in alerts if target in alert_targets(alert)]


def _identity(alert: Observation) -> str:
    fingerprint = (alert.metadata or {}).get("fingerprint")
    return f"{alert.source} {fingerprint or ''}"


def _event(alert: Observation, sighting: AnomalySighting) -> TargetEvent:
    data = alert.data
    resolved = data.get("status") == "resolved"
    return TargetEvent(
        at=sighting.began,
        until=sighting.ended,
        agent_id=sighting.agent_id,
        kind="alert",
        state="resolved" if resolved else "fired",
        title=_title(alert),
        detail=alert.source,
        severity=None if resolved else _LEVELS.get(alert.severity),
        ref=sighting.name,
        links=links_in(data),
    )


def _title(alert: Observation) -> str:
    places = [alert.data.get("annotations"), alert.data, alert.data.get("labels")]
    for place in places:
        for name in ("summary", "title", "alertname", "description"):
            text = place.get(name) if isinstance(place, dict) else None
            if isinstance(text, str) and text.strip():
                return text.strip()[:300]
    return alert.source


def links_in(data: Mapping[str, object]) -> list[EventLink]:
    """The links of an alert, each once: its values that are addresses of http or https."""
    links: dict[str, EventLink] = {}
    for (name, value), _ in zip(_values(data), range(_SEARCHED), strict=False):
        if len(links) < _LINKS and is_link(value):
            links.setdefault(value, EventLink(title=_link_title(name), url=value))
    return list(links.values())


def _values(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _values(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, name)


def is_link(text: str) -> bool:
    """Report whether *text* is an address that a browser may be sent to."""
    if len(text) > _LONGEST or not text.isprintable() or set(' "<>\\') & set(text):
        return False
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        return False


def _link_title(name: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _END.sub("", name)).replace("_", " ").strip()
    return _TITLES.get(words.lower(), words[:40] or "link")
