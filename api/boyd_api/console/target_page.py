"""The history of a target, and an incident: a plot with lanes, and the same as a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

from flask import Response, redirect, request

from boyd.models.incident import EventKind, Incident, TargetEvent, TargetHistory
from boyd.text.formatting import counted
from boyd_api.console.agent_page import VitalSign, read_vital_signs
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import (
    BASE,
    Filter,
    PageRequest,
    read_filter,
    read_form,
    read_part,
)
from boyd_api.console.rendering import render_page
from boyd_api.console.time_plot import HEIGHT, WIDTH, PlotBar, PlottedSeries, TimeAxis
from boyd_api.http.problems import HttpProblem
from boyd_api.routes import incident_routes
from boyd_api.routes.incident_routes import DAY, IncidentsQuery, TargetAnswer

pages = Pages()

#: Times below the plot.
_TICKS = 5
#: The share of an incident's length that is shown around it, and the least.
_MARGIN, _LEAST_MARGIN = 0.15, timedelta(minutes=2)
#: The time that is shown before and after one of which no incident is on record.
_AROUND = timedelta(minutes=30)

LANES: Mapping[EventKind, str] = {
    "anomaly": "Anomalies",
    "alert": "Alerts",
    "approval": "Approvals",
    "action": "Actions",
    "verdict": "Verdicts",
}
#: The look of a bar by the state of its event.
_GOOD = ("effective", "approved", "resolved")
_BAD = ("worse", "worse, undone", "worse, not restored", "failed", "denied")
#: The shape of each state; that a call succeeded says nothing about its effect.
SHAPES: Mapping[str, str] = {
    **dict.fromkeys(("effective", "approved", "resolved", "over"), "ok"),
    "succeeded": "idle",
    **dict.fromkeys(("failed", "denied"), "failed"),
    **dict.fromkeys(("worse", "worse, undone", "worse, not restored"), "undo"),
    **dict.fromkeys(("open", "fired"), "warning"),
    **dict.fromkeys(("running", "being verified"), "runs"),
    **dict.fromkeys(("cannot tell", "unknown"), "unknown"),
    "pending": "waits",
}


@dataclass(frozen=True)
class EventLane:
    """The events of a kind over time, and their summary in words."""

    name: str
    bars: Sequence[PlotBar]
    summary: str


@dataclass(frozen=True)
class TargetPlot:
    """Everything over the same time."""

    ticks: Sequence[datetime]
    incidents: Sequence[PlotBar]
    series: Sequence[PlottedSeries]
    lanes: Sequence[EventLane]

    @property
    def clock(self) -> str:
        """The format of its ticks."""
        return "%b %d %H:%M" if self.ticks[-1] - self.ticks[0] > DAY else "%H:%M"


@pages.get("/target")
def target(page: PageRequest) -> PageResult:
    """Show what happened to a target in a period, the incidents first."""
    if not request.args.get("target", "").strip():
        return render_page(page, "target.html", filter=None, history=None, problem="", **_SHARED)
    filter = read_filter(page, IncidentsQuery)
    query = filter.query
    part = read_part(lambda: query and incident_routes.list_incidents(page.ctx, query))
    return render_page(
        page,
        "target.html",
        filter=filter,
        problem=filter.problem or part.why,
        history=part.value,
        plot=plot(part.value, part.value.incidents) if part.value else None,
        neighbours=_neighbours(filter, part.value) if part.value else {},
        signs=_vital_signs(page, part.value.incidents) if part.value else [],
        **_SHARED,
    )


@pages.get("/incident")
def incident(page: PageRequest) -> PageResult:
    """Show an incident: what was wrong, what was done, whether it helped."""
    query, id = _read_query()
    try:
        past_incident = incident_routes.show_incident(page.ctx, id, query)
    except HttpProblem:
        # A message may have announced it, and only the approval is still kept.
        if address := _address_of_rest(page, query, id):
            return redirect(address, 303)
        raise
    since, until = past_incident.since, past_incident.until
    margin = max(_LEAST_MARGIN, (until - since) * _MARGIN)
    around = read_part(
        lambda: incident_routes.read_around(page.ctx, query, since - margin, until + margin)
    )
    links = {link.url: link for event in past_incident.events for link in event.links}
    return render_page(
        page,
        "incident.html",
        incident=past_incident,
        signs=_vital_signs(page, [past_incident]),
        sources=links.values(),
        notes=around.value.notes if around.value else [around.why],
        plot=plot(around.value, [past_incident]) if around.value else None,
        **_SHARED,
    )


@pages.get("/incident/report")
def incident_report(page: PageRequest) -> PageResult:
    """The timeline of an incident in Markdown, as a file."""
    query, id = _read_query()
    response: Response = incident_routes.report_incident(page.ctx, id, query)
    name = quote(f"incident-{query.target}-{id}.md", safe="")
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    return response


def _address_of_rest(page: PageRequest, query: TargetAnswer, id: str) -> str:
    """The address of what is known of a target around a time; empty if nothing is."""
    try:
        at = datetime.fromisoformat(id).astimezone(UTC)
        since, until = at - _AROUND, at + _AROUND
    except (ValueError, OverflowError):
        return ""
    history = read_part(lambda: incident_routes.read_around(page.ctx, query, since, until)).value
    if history is None or not history.agents:
        return ""
    return target_address(query.target, since=since.isoformat(), until=until.isoformat())


def _vital_signs(page: PageRequest, incidents: Sequence[Incident]) -> list[VitalSign]:
    """The vital signs of the agents with a part in those incidents that are open."""
    events = [event for incident in incidents if incident.open for event in incident.events]
    agents = {event.agent_id for event in events}
    return [sign for sign in read_vital_signs(page) if sign.agent_id in agents] if agents else []


def _read_query() -> tuple[TargetAnswer, str]:
    fields = {name: request.args.get(name, "") for name in TargetAnswer.model_fields}
    return read_form(TargetAnswer, **fields), request.args.get("id", "")


def target_address(target: str, **more: str) -> str:
    """The address of the page about a target."""
    return f"{BASE}/target?{urlencode({'target': target, **more})}"


def incident_address(incident: Incident, path: str = "/incident") -> str:
    """The address of the page about an incident, or of another one about it."""
    return f"{BASE}{path}?{urlencode({'target': incident.target, 'id': incident.id})}"


def plot(history: TargetHistory, incidents: Sequence[Incident]) -> TargetPlot:
    """The plot of a target's history, with these incidents."""
    axis = TimeAxis(history.since, history.until)
    events = [*history.events, *(event for incident in incidents for event in incident.events)]
    kinds = {kind: [event for event in events if event.kind == kind] for kind in LANES}
    return TargetPlot(
        ticks=axis.ticks(_TICKS),
        incidents=[axis.bar(it.since, it.until, "shade") for it in incidents],
        series=[axis.plot(series) for series in history.series],
        lanes=[_lane(axis, kind, events) for kind, events in kinds.items() if events],
    )


def _lane(axis: TimeAxis, kind: EventKind, events: Sequence[TargetEvent]) -> EventLane:
    bars = [axis.bar(event.at, event.until, _look(event), event.title) for event in events]
    states: dict[str, int] = {}
    for event in events:
        states[event.state] = states.get(event.state, 0) + 1
    summary = ", ".join(f"{number} {state}" for state, number in states.items())
    return EventLane(LANES[kind], bars, summary)


def _look(event: TargetEvent) -> str:
    if event.kind == "anomaly":
        return "bad" if event.severity in ("high", "critical") else "warn"
    if event.state in _GOOD:
        return "good"
    if event.state in _BAD:
        return "bad"
    return "warn" if event.is_open or event.kind == "alert" else "plain"


def _neighbours(filter: Filter[IncidentsQuery], history: TargetHistory) -> dict[str, str]:
    """The addresses of the period before and, if it is not the newest, of the one after."""
    length = history.until - history.since
    others = {name: text for name, text in filter.given.items() if name not in ("since", "until")}

    def address(since: datetime) -> str:
        until = since + length
        return target_address(**{**others, "since": since.isoformat(), "until": until.isoformat()})

    addresses = {"Earlier": address(history.since - length)}
    if "until" in filter.given:
        addresses["Later"] = address(history.until)
        addresses["Last day"] = target_address(**others)
    return addresses


def _title(history: TargetHistory) -> str:
    open_now = sum(incident.open for incident in history.incidents)
    number = len(history.incidents)
    text = counted(number, "incident") if number else "No incident on record"
    return f"{text}, {open_now} open" if open_now else text


_SHARED = {
    "shapes": SHAPES,
    "incident_address": incident_address,
    "target_address": target_address,
    "title": _title,
    "width": WIDTH,
    "height": HEIGHT,
}
