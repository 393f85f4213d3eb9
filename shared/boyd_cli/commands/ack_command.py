"""`boyd ack …`: take care of an approval or an open anomaly, or leave it to others again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from boyd.models import Acknowledgement, ApprovalItem, OpenAnomaly
from boyd.models.responses import AnomalyList
from boyd_cli import api_access, output
from boyd_cli.api_access import Api, resolve_prefix
from boyd_cli.completion import acknowledgeable, completer
from boyd_cli.options import data_options, duration_option
from boyd_cli.output import label, sentence, whole

COLUMNS = (
    *(whole("id"), label("what", least=16), whole("since", drop=2)),
    *(sentence("acknowledged", least=20), sentence("why", drop=1)),
)


@click.command()
@click.argument("id", default="", shell_complete=completer(acknowledgeable))
@duration_option("--for", "seconds", help="As in 30m; an approval is then announced again.")
@click.option(
    "--reason", "note", default="", help="Reason; shown to others and in the audit trail."
)
@click.option("--release", is_flag=True, help="Leave it to others again.")
@data_options
def ack(api: Api, id: str, seconds: float | None, note: str, release: bool, form: str) -> None:
    """Say that you take care of an approval or an open anomaly.

    Nobody else is told of it meanwhile, until it is answered or over. Without ID: list what is
    open, and who has it.
    """
    if not id:
        _list(api, form)
        return
    waiting = {item.id: item for item in _pending(api)}
    anomalies = {it.id or "": it for it in api.agent.get("/anomalies", AnomalyList).anomalies}
    whole_id = resolve_prefix("approval or anomaly", id, [*waiting, *anomalies])
    kind: type[ApprovalItem | OpenAnomaly] = ApprovalItem if whole_id in waiting else OpenAnomaly
    path = f"/{'approvals' if kind is ApprovalItem else 'anomalies'}/{whole_id}"
    if release:
        subject = api.agent.post(f"{path}/release", kind)
    else:
        body: dict[str, Any] = {"note": note, **({"seconds": seconds} if seconds else {})}
        subject = api.agent.post(f"{path}/acknowledge", kind, body)
    if not output.print_data(form, subject):
        keeper = _keeper(subject.acknowledgement, api.agent.now())
        output.say(output.one_line(f"{_title(subject)}: {keeper}"))


def _pending(api: Api) -> Iterator[ApprovalItem]:
    for page in api_access.approvals(api, history=False):
        yield from page.pending


def _list(api: Api, form: str) -> None:
    """Print the open anomalies and pending approvals, with who has them."""
    anomalies = api.agent.get("/anomalies", AnomalyList).anomalies
    waiting = list(_pending(api))
    now = api.agent.now()
    subjects: list[ApprovalItem | OpenAnomaly] = [*anomalies, *waiting]
    rows = [_row(subject, now) for subject in subjects]
    output.print_list(form, subjects, COLUMNS, rows, "No anomaly is open, and no approval waits.")


def _row(subject: ApprovalItem | OpenAnomaly, now: datetime) -> list[str]:
    if isinstance(subject, OpenAnomaly):
        since, reason = subject.since, subject.description
    else:
        since, reason = subject.created_at, subject.decision.rationale
    keeper = _keeper(subject.acknowledgement, now)
    return [
        output.short(subject.id or ""),
        _title(subject),
        output.short_age(since, now),
        keeper,
        reason,
    ]


def _title(subject: ApprovalItem | OpenAnomaly) -> str:
    if isinstance(subject, OpenAnomaly):
        return f"{subject.severity}: {subject.symptom}"
    return f"{subject.title}{f' on {subject.target}' if subject.target else ''}"


def _keeper(latest: Acknowledgement | None, now: datetime) -> str:
    if latest is None or not latest.is_in_force(now):
        return "nobody has it"
    until = f", until {output.short_date(latest.until)}" if latest.until else ""
    return f"{latest.by} has it since {output.short_date(latest.at)}{until}"
