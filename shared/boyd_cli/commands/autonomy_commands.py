"""`boyd autonomy …`: the track records of actions, and the grants that they have earned."""

from __future__ import annotations

import click

from boyd.models import TrackRecord, TrackRecordList
from boyd.models.responses import RevokedAutonomy
from boyd.text.formatting import counted
from boyd_cli import completion, output
from boyd_cli.api_access import Api
from boyd_cli.options import data_options, id_argument
from boyd_cli.views.tables import label, sentence, whole

COLUMNS = (
    *(label("action"), sentence("situation", least=12), whole("effective"), whole("at least")),
    *(whole("Brier", drop=2), whole("base rate", drop=2), whole("alone until")),
    *(label("class", drop=3), sentence("note", drop=1)),
)


@click.group()
def autonomy() -> None:
    """Show what actions have earned, and revoke their right to run alone."""


@autonomy.command("list")
@data_options
def list_(api: Api, form: str) -> None:
    """List the track records of the actions by class of situation."""
    found = api.agent.get("/autonomy", TrackRecordList).records
    nothing = "No outcome was verified yet."
    output.print_list(form, found, COLUMNS, map(_row, found), nothing)


def _row(record: TrackRecord) -> list[str]:
    grant = record.grant
    return [
        *(record.action, record.label, f"{record.effective} of {record.outcomes}"),
        *map(_share, (record.lower_bound, record.brier, record.base_brier)),
        *(output.short_date(grant.until) if grant else "", record.situation),
        record.ended or "",
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@autonomy.command()
@id_argument("action", completion.actions)
@click.argument("situation", metavar="[CLASS]", default="")
@click.option("--note", help="Reason; shown in the audit trail.")
@data_options
def revoke(api: Api, action: str, situation: str, note: str | None, form: str) -> None:
    """Have a person approve an action again, in one class of situation or in all."""
    body = {"action": action, "situation": situation, "note": note or ""}
    done = api.agent.post("/autonomy/revoke", RevokedAutonomy, body)
    if not output.print_data(form, done):
        output.say(f"{output.one_line(action)}: {counted(done.revoked, 'grant')} revoked")
