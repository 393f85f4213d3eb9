"""`boyd actions executions`: what was executed, where, by whom and when."""

from __future__ import annotations

from datetime import datetime

import click

from boyd.cli import output, pages
from boyd.cli.columns import label, whole
from boyd.cli.connection import Api
from boyd.cli.durations import period_options
from boyd.cli.options import api_options
from boyd.cli.values import Whole
from boyd.models import ExecutionEntry

#: The columns of the list.
COLUMNS = (
    *(label("execution", least=17), whole("started"), label("action"), whole("state")),
    *(label("target", drop=3), whole("took", drop=2), label("host"), label("by", drop=1)),
)


@click.command()
@click.option("--host", help="Only those on that host.")
@click.option("--worker", help="Only those of that process.")
@click.option("--action", help="Only those of that action.")
@click.option(
    "--state",
    type=click.Choice(["running", "succeeded", "failed", "unknown"]),
    help="Only those that are so.",
)
@period_options
@click.option("--limit", type=Whole(1, 100_000), default=50, show_default=True)
@output.output_option
@api_options
def executions(
    api: Api,
    host: str | None,
    worker: str | None,
    action: str | None,
    state: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    form: str,
) -> None:
    """List what was executed within the last seven days, the newest first."""
    query = {
        "host": host,
        "worker": worker,
        "action": action,
        "state": state,
        "since": since,
        "until": until,
    }
    found = pages.executions(api, limit, **query)
    if output.print_data(form, found):
        return
    if not found:
        output.say("Nothing was executed.")
        return
    output.print_table(COLUMNS, map(_row, found))


def _row(entry: ExecutionEntry) -> list[str]:
    took = entry.ended_at - entry.started_at if entry.ended_at and entry.started_at else None
    return [
        entry.id,
        output.short_date(entry.started_at or entry.ended_at),
        entry.action,
        entry.state,
        entry.target,
        output.duration(took.total_seconds() * 1000) if took is not None else "",
        entry.host or "",
        entry.by or "",
    ]
