"""An incident as a timeline in Markdown, for a ticket or a review."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from boyd.models.incident import Incident, TargetEvent
from boyd.text.formatting import counted, seconds, visible

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~&-])")


def report(incident: Incident) -> str:
    """The incident in Markdown; texts of others are escaped. Times are in UTC."""
    return "\n".join(_lines(incident)) + "\n"


def _lines(incident: Incident) -> Iterator[str]:
    lasted = seconds(int((incident.until - incident.since).total_seconds()))
    yield f"# {_text(incident.target)}: {_text(incident.title)}\n"
    yield f"- **Began**: {_when(incident.since)}"
    yield f"- **{'Goes on, so far' if incident.open else 'Lasted'}**: {lasted}"
    yield f"- **Severity**: {incident.severity or 'unknown'}"
    yield f"- **Outcome**: {_text(incident.outcome)}"
    agents = dict.fromkeys(event.agent_id for event in incident.events)
    yield f"- **Agents**: {', '.join(map(_text, agents))}"
    links = {link.url: link for event in incident.events for link in event.links}
    for link in links.values():
        yield f"- **{_text(link.title).capitalize()}**: <{link.url}>"
    yield "\n## Timeline (UTC)\n"
    yield "| Time | What | State | Details |\n| --- | --- | --- | --- |"
    for event in incident.events:
        yield f"| {' | '.join(_cells(event))} |"
    if incident.more:
        yield f"\n{counted(incident.more, 'further event')} left out."


def _cells(event: TargetEvent) -> list[str]:
    by = f"by {event.by}" if event.by else ""
    until = f"until {_when(event.until)}" if event.kind == "anomaly" and not event.is_open else ""
    details = ", ".join(filter(None, [until, by, event.detail, event.ref]))
    title = f"{event.kind.capitalize()}: {_text(event.title)}"
    return [_when(event.moment), title, _text(event.state), _text(details)]


def _when(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _text(text: str) -> str:
    """A text on one line, without any meaning in Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))
