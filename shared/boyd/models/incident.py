"""The history of a target: events, and the incidents that they make."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from boyd.models.base import LEVELS, Level, Model, Timestamp
from boyd.models.situation import NumberSeries

EventKind = Literal["anomaly", "alert", "approval", "action", "verdict"]
#: States in which something goes on.
ONGOING = ("open", "pending", "running", "being verified")


class EventLink(Model):
    """A link that came with an alert, such as that to its runbook; always http or https."""

    title: str
    url: str


class TargetEvent(Model):
    """Something that happened to a target, from `at` until `until`.

    Attributes:
        state: what became of it, in a word, or that it goes on.
        title: what it was: the description of an anomaly, or the action.
        detail: the evidence of a verdict, or another line about it.
        by: who asked for an action, or answered an approval; absent: the agent itself, or nobody.
        ref: an iteration, approval or execution, by its name within the agent.
    """

    at: Timestamp
    until: Timestamp
    agent_id: str
    kind: EventKind
    state: str
    title: str
    detail: str = ""
    severity: Level | None = None
    by: str | None = None
    ref: str = ""
    links: list[EventLink] = Field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """True while it goes on."""
        return self.state in ONGOING

    @property
    def moment(self) -> datetime:
        """The time for a list: that of a verdict is its end."""
        return self.until if self.kind == "verdict" and not self.is_open else self.at


class Incident(Model):
    """Events on one target that belong together, from the first anomaly to the last verdict.

    Attributes:
        id: the time of its beginning in UTC; with the target, it names the incident.
        open: whether an anomaly is open, an approval waits, or an action runs or is verified.
        severity: that of its worst anomaly.
        title: the description of that one.
        outcome: what was done and whether it helped, in one line.
        more: further events that were left out.
    """

    id: str
    target: str
    since: Timestamp
    until: Timestamp
    open: bool
    severity: Level | None = None
    title: str
    outcome: str
    events: list[TargetEvent]
    more: int = 0

    def of_kind(self, kind: EventKind) -> list[TargetEvent]:
        """Its events of a kind, oldest first."""
        return [event for event in self.events if event.kind == kind]


class TargetHistory(Model):
    """The history of a target in a period.

    Attributes:
        agents: those that know the target, of those that were searched.
        incidents: newest first.
        events: everything that belongs to no incident, newest first.
        series: numbers that were observed, those first that differ most during incidents.
        read: iterations with the target that were read in full; of too many, an even choice.
        iterations: all iterations with the target.
        notes: what is missing, and why, in one line each.
    """

    target: str
    since: Timestamp
    until: Timestamp
    agents: list[str] = Field(default_factory=list)
    incidents: list[Incident] = Field(default_factory=list)
    events: list[TargetEvent] = Field(default_factory=list)
    series: list[NumberSeries] = Field(default_factory=list)
    read: int = 0
    iterations: int = 0
    notes: list[str] = Field(default_factory=list)

    def incident_at(self, at: datetime) -> Incident | None:
        """The incident that goes on at that time, which may be its id, to the millisecond."""
        ms = timedelta(milliseconds=1)
        return next((it for it in self.incidents if it.since - ms < at <= it.until), None)


def worst(events: Sequence[TargetEvent]) -> TargetEvent | None:
    """The event with the highest severity, the earliest of several."""
    rated = [event for event in events if event.severity is not None]
    return max(rated, key=lambda event: LEVELS.index(event.severity or "low"), default=None)
