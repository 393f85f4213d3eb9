"""Groups what happened to a target into incidents.

An incident begins with an anomaly or an alert. It goes on while one is open, an approval waits, an
action runs or is verified, or less than `QUIET` has passed since the last of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from boyd import naming
from boyd.models import LEVELS, OpenAnomaly
from boyd.models.incident import Incident, TargetEvent, worst
from boyd.text.formatting import counted

#: The time without anything after which an incident is over, and an anomaly is a new one.
QUIET = timedelta(minutes=5)
#: The most events of one incident, and of those outside of incidents.
MOST = 500

#: The kinds of events that an incident begins with.
_BEGINNINGS = ("anomaly", "alert")
#: The most actions that are named in the outcome of an incident.
_MOST_ACTIONS = 3
#: The states of an action, in words that come before its name: a narrow list keeps them.
_STATES = {
    "worse": "made it worse",
    "worse, undone": "made it worse and was undone",
    "worse, not restored": "made it worse, and undoing it restored nothing",
    "cannot tell": "cannot tell whether it helped",
    "succeeded": "effect not checked",
    "unknown": "outcome unknown, lost while it ran",
}
#: What the verdict on its rollback makes of an action that made it worse.
_UNDOINGS = {"effective": ", undone", "no effect": ", not restored"}


@dataclass(frozen=True)
class Look:
    """An iteration, as far as it tells that anomalies are over.

    Attributes:
        assessed: it did not fail before it had assessed what it observed.
        blind: the plugins that could not look.
    """

    ended: datetime
    assessed: bool
    blind: frozenset[str]

    def covers(self, plugin_id: str) -> bool:
        """Report whether a plugin would have seen its anomalies."""
        return self.assessed and plugin_id not in self.blind


@dataclass(frozen=True)
class AnomalySighting(Look):
    """An iteration that has the target.

    Attributes:
        name: of the iteration.
        run: the same for iterations in a row that all have the target; rises by one for each other.
    """

    agent_id: str
    name: str
    run: int
    began: datetime
    anomalies: Sequence[OpenAnomaly]


#: A sighting of one symptom, with its place among all sightings that were read.
_Seen = tuple[int, AnomalySighting, OpenAnomaly]


def anomaly_events(
    sightings: Sequence[AnomalySighting], others: Sequence[Look] = ()
) -> list[TargetEvent]:
    """Merge the *sightings* of one agent, oldest first, into anomalies.

    *others* are its iterations without the target, which may show that one is over.
    """
    by_symptom: dict[tuple[str, str], list[_Seen]] = {}
    for index, sighting in enumerate(sightings):
        for anomaly in sighting.anomalies:
            key = (anomaly.plugin_id, anomaly.symptom)
            by_symptom.setdefault(key, []).append((index, sighting, anomaly))
    return [
        event
        for (plugin_id, _), row in by_symptom.items()
        for event in _Symptom(plugin_id, sightings, others).events(row)
    ]


@dataclass(frozen=True)
class _Symptom:
    """A symptom that a plugin has seen, and all iterations in which it may have looked for it."""

    plugin_id: str
    sightings: Sequence[AnomalySighting]
    others: Sequence[Look]

    def events(self, row: Sequence[_Seen]) -> Iterator[TargetEvent]:
        """The anomalies with the symptom."""
        parts = [[row[0]]]
        for earlier, later in pairwise(row):
            if self._is_unbroken(earlier, later) or later[1].began - earlier[1].ended < QUIET:
                parts[-1].append(later)
            else:
                parts.append([later])
        return map(self._event, parts)

    def _is_unbroken(self, earlier: _Seen, later: _Seen) -> bool:
        """Report whether no look between the two showed that it was over, as far as is known."""
        begin, end = earlier[1].ended, later[1].began
        others = [it for it in self.others if begin <= it.ended <= end]
        between = (*self.sightings[earlier[0] + 1 : later[0]], *others)
        # Of long times not all others were read; numbers tell of them, unless they begin again.
        return not any(map(self._covers, between)) and later[1].run - earlier[1].run <= len(others)

    def _covers(self, look: Look) -> bool:
        return look.covers(self.plugin_id)

    def _is_over(self, last: AnomalySighting) -> bool:
        looks = (*self.sightings, *self.others)
        return any(look.ended > last.ended and self._covers(look) for look in looks)

    def _event(self, part: Sequence[_Seen]) -> TargetEvent:
        first, last = part[0][1], part[-1][1]
        # The latest of the worst ones: its description may count failures, or name a value.
        anomaly = max((it for _, _, it in reversed(part)), key=lambda it: LEVELS.index(it.severity))
        gaps = sum(not self._is_unbroken(earlier, later) for earlier, later in pairwise(part))
        return TargetEvent(
            at=first.began,
            until=last.ended,
            agent_id=first.agent_id,
            kind="anomaly",
            state="over" if self._is_over(last) else "open",
            title=anomaly.description or anomaly.type,
            detail=anomaly.symptom + (f", came back {counted(gaps, 'time')}" if gaps else ""),
            severity=anomaly.severity,
            ref=first.name,
        )


def group(target: str, events: Iterable[TargetEvent]) -> tuple[list[Incident], list[TargetEvent]]:
    """Group *events* on a target into incidents; return them and the rest, both newest first."""
    groups: list[list[TargetEvent]] = []
    others: list[TargetEvent] = []
    end, goes_on = datetime.min.replace(tzinfo=UTC), False
    for event in sorted(events, key=lambda event: (event.at, event.kind not in _BEGINNINGS)):
        if goes_on or (groups and event.at - end < QUIET):
            groups[-1].append(event)
            end, goes_on = max(end, event.until), goes_on or event.is_open
        elif event.kind in _BEGINNINGS:
            groups.append([event])
            end, goes_on = event.until, event.is_open
        else:
            others.append(event)
    return [_incident(target, group) for group in reversed(groups)], others[::-1]


def _incident(target: str, events: Sequence[TargetEvent]) -> Incident:
    since = events[0].at
    first = worst([event for event in events if event.kind == "anomaly"]) or events[0]
    return Incident(
        id=since.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        target=target,
        since=since,
        until=max(event.until for event in events),
        open=any(event.is_open for event in events),
        severity=first.severity,
        title=first.title,
        outcome=_outcome(events),
        events=sorted(events, key=lambda event: event.moment)[:MOST],
        more=max(0, len(events) - MOST),
    )


def _outcome(events: Sequence[TargetEvent]) -> str:
    """The actions with their effects, and the approval that waits, in one line."""
    verdicts = {event.ref: event.state for event in events if event.kind == "verdict"}
    actions = [
        event for event in events if event.kind == "action" and not naming.is_rollback(event.ref)
    ]
    done = [_effect(action, verdicts) for action in actions]
    left = len(done) - _MOST_ACTIONS
    parts = [f"{counted(left, 'earlier action')}" if left > 0 else "", *done[-_MOST_ACTIONS:]]
    waiting = [event.title for event in events if event.kind == "approval" and event.is_open]
    parts += [f"waits for approval: {title}" for title in waiting[-1:]]
    return "; ".join(filter(None, parts)) or "no action ran"


def _effect(action: TargetEvent, verdicts: Mapping[str, str]) -> str:
    by = f" by {action.by}" if action.by else ""
    state = verdicts.get(action.ref, action.state)
    if state == "worse":
        # A rollback that a person had to approve is an execution with a verdict of its own.
        state += _UNDOINGS.get(verdicts.get(naming.rollback(action.ref), ""), "")
    return f"{_STATES.get(state, state)}: {action.title}{by}"
