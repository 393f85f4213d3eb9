"""`boyd incidents`: what happened to a target, as a list or one incident in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from boyd.models.incident import Incident, TargetEvent, TargetHistory
from boyd.text.formatting import counted
from boyd_cli import completion, output
from boyd_cli.options import deployment_api_options, not_empty, period_options, report_option
from boyd_cli.output import label, sentence, whole

if TYPE_CHECKING:
    from boyd_cli.api_access import Api

COLUMNS = (
    *(whole("incident"), label("target", drop=3), whole("state"), label("severity", drop=2)),
    *(whole("lasted", drop=1), sentence("what"), sentence("what was done")),
)
EVENTS = (
    *(whole("time"), whole("kind", drop=1), sentence("what"), whole("state")),
    sentence("details", drop=2),
)


@click.command()
@click.argument("target", callback=not_empty)
@click.argument("incident", required=False, callback=not_empty)
@click.option(
    *("--agent", "knower"),
    callback=not_empty,
    shell_complete=completion.completer(completion.agents),
    help="Only what this agent knows; by default all agents.",
)
@report_option
@deployment_api_options
@period_options
def incidents(
    api: Api,
    target: str,
    incident: str | None,
    form: str,
    **query: Any,
) -> None:
    """Show what happened to TARGET, by default in the last day.

    An incident is everything from the first anomaly to the last verdict. With the time of one,
    show its timeline: all that was wrong, was done, and whether it helped.
    """
    query |= {"target": target, "agent": query.pop("knower")}
    if incident is not None:
        if query.pop("since") or query.pop("until"):
            raise click.UsageError("an incident has its own period: omit --since and --until")
        path = f"/incidents/{quote(incident, safe='')}"
        _show(api.deployment.get(path, Incident, **query), form)
        return
    history = api.deployment.get("/incidents", TargetHistory, **query)
    if form == "markdown":
        for past in reversed(history.incidents):
            _show(past, form)
    else:
        empty = f"No incident of {target} in this time."
        output.print_list(form, history.incidents, COLUMNS, map(_row, history.incidents), empty)
    if form == "table" and history.events:
        output.say("\nOutside of incidents")
        output.print_table(EVENTS, map(_event_row, reversed(history.events)), indent=2)
    for note in history.notes:
        output.note(note)


def _row(incident: Incident) -> list[str]:
    seconds = (incident.until - incident.since).total_seconds()
    return [
        incident.id,
        incident.target,
        "open" if incident.open else "over",
        incident.severity or "",
        output.seconds(int(seconds)),
        incident.title,
        incident.outcome,
    ]


def _show(incident: Incident, form: str) -> None:
    if form == "markdown":
        from boyd.export.archive.incident_report import report

        output.say(report(incident))
        return
    if output.print_data(form, incident):
        return
    lasted = output.seconds(int((incident.until - incident.since).total_seconds()))
    links = {link.url: link for event in incident.events for link in event.links}.values()
    output.say(output.one_line(f"{incident.target}: {incident.title}"))
    output.print_pairs(
        ("began", output.date(incident.since)),
        ("open for" if incident.open else "lasted", lasted),
        ("severity", incident.severity or ""),
        ("what was done", incident.outcome),
        *((link.title, link.url) for link in links),
    )
    output.say("\nTimeline")
    output.print_table(EVENTS, map(_event_row, incident.events), indent=2)
    if incident.more:
        output.note(f"{counted(incident.more, 'further event')} left out.")


def _event_row(event: TargetEvent) -> list[str]:
    by = f"by {event.by}" if event.by else ""
    details = ": ".join(filter(None, [by, event.detail]))
    return [output.short_date(event.moment), event.kind, event.title, event.state, details]
