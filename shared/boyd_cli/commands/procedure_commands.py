"""`boyd procedures list|show|cancel|resume`: actions composed of actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import click

from boyd import naming
from boyd.models import ProcedureList, ProcedureRecord, ProcedureStep, StepProgress
from boyd_cli import completion, output
from boyd_cli.api_access import Api
from boyd_cli.options import data_options, id_argument, resolve_prefix
from boyd_cli.parameter_types import Whole
from boyd_cli.views.tables import label, sentence, whole

COLUMNS = (
    *(label("procedure", least=17), label("action"), label("target", drop=2), whole("started")),
    *(sentence("progress", least=20), sentence("reason", drop=1)),
)
STEP_COLUMNS = (
    *(whole("step"), label("action"), whole("state"), whole("undone")),
    *(label("execution", least=17, drop=1), sentence("detail", drop=2)),
)

procedure_argument = id_argument("procedure", completion.procedures)
note_option = click.option("--note", default="", help="Reason; shown in the audit trail.")


@click.group()
def procedures() -> None:
    """Show procedures, cancel them, and resume those that wait for a person."""


@procedures.command("list")
@click.option("--limit", type=Whole(1, 500), default=20, show_default=True)
@data_options
def list_(api: Api, limit: int, form: str) -> None:
    """List the procedures that were started, latest first; `boyd actions list` has the others."""
    found = api.agent.get("/procedures", ProcedureList, limit=limit).procedures
    rows = [
        [
            *(one.id, one.action, one.target, output.short_date(one.started_at)),
            *(one.summary, one.reason or ""),
        ]
        for one in found
    ]
    output.print_list(form, found, COLUMNS, rows, "No procedure has been started.")


@procedures.command()
@procedure_argument
@data_options
def show(api: Api, procedure: str, form: str) -> None:
    """Show a procedure with the state of each step."""
    found = api.agent.get(_path(api, procedure), ProcedureRecord)
    if not output.print_data(form, found):
        _show(found)


@procedures.command()
@procedure_argument
@note_option
@data_options
def cancel(api: Api, procedure: str, note: str, form: str) -> None:
    """Start no further step, and undo those that took effect, the latest first."""
    _change(api, procedure, "cancel", {"note": note}, form)


@procedures.command()
@procedure_argument
@click.option("--repeat", is_flag=True, help="Execute again what was lost or failed.")
@note_option
@data_options
def resume(api: Api, procedure: str, repeat: bool, note: str, form: str) -> None:
    """Let a stopped procedure go on.

    A step or compensation whose outcome is unknown counts as done: find out first.
    """
    _change(api, procedure, "resume", {"note": note, "repeat": repeat}, form)


def _change(api: Api, procedure: str, verb: str, body: dict[str, Any], form: str) -> None:
    changed = api.agent.post(f"{_path(api, procedure)}/{verb}", ProcedureRecord, body)
    if not output.print_data(form, changed):
        done = "cancelled" if verb == "cancel" else changed.summary
        output.say(f"procedure {naming.short(changed.id)}: {done}")


def _path(api: Api, procedure: str) -> str:
    known = (one.id for one in api.agent.get("/procedures", ProcedureList, limit=500).procedures)
    return f"/procedures/{quote(resolve_prefix('procedure', procedure, known), safe=':')}"


def _show(record: ProcedureRecord) -> None:
    on = f" on {record.target}" if record.target else ""
    output.say(output.one_line(f"{record.action}{on}: {record.summary}"))
    output.print_pairs(
        ("id", record.id),
        ("started", output.short_date(record.started_at)),
        ("by", record.by),
        ("reason", record.reason or ""),
        ("cancelled by", record.cancelled_by or ""),
        *((f"  {name}", str(value)) for name, value in record.params.items()),
    )
    pairs = list(zip(record.steps, record.progress, strict=True))
    rows = [list(_row(step, progress)) for step, progress in pairs]
    output.print_list("table", pairs, STEP_COLUMNS, rows, "")


def _row(step: ProcedureStep, progress: StepProgress) -> Iterator[str]:
    undone = progress.compensation
    yield step.id
    yield step.action or "asks a person"
    yield progress.state
    yield undone.state if undone else ""
    yield progress.execution or ""
    yield (undone.detail if undone else None) or progress.detail or progress.approval or ""
