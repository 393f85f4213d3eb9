"""`boyd intake`: lists formats and intakes, and shows what a message would become."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from boyd.settings.process_settings import Settings
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.options import settings_options
from boyd_cli.views.tables import folded, label, sentence, whole

if TYPE_CHECKING:
    from boyd.models import Observation
    from boyd.settings.intake_settings import DeclaredIntake

_AGENT = click.option(
    "--agent", "agent", metavar="AGENT", help="Agent file or module:agent with `[[intakes]]`."
)


@click.group()
def intake() -> None:
    """List intakes, and see what a message becomes."""


@intake.command("list")
@_AGENT
@output.output_option
@settings_options
def show_list(settings: Settings, agent: str | None, form: str) -> None:
    """List the formats of this installation, and the intakes of an agent."""
    rows = list(_rows(_declared(agent)))
    columns = (whole("name"), whole("from"), whole("auth"), sentence("title"))
    output.print_list(form, rows, columns, [list(row.values()) for row in rows], "no formats")


def _rows(own: Mapping[str, DeclaredIntake]) -> Iterator[dict[str, str]]:
    from boyd.intake import format_names
    from boyd.settings.intake_settings import shipped_intakes

    shipped = shipped_intakes()
    for name in sorted({*format_names(), *own}):
        use = own[name].use if name in own else name
        same = name in shipped and shipped[name].use == use
        known = shipped.get(name if same else use)
        title = known.title if known else f"the format {use!r}"
        origin = "agent" if name in own else "boyd" if name in shipped else "package"
        auth = own[name].auth.method if name in own else "key"
        yield {"name": name, "from": origin, "auth": auth, "title": title}


@intake.command("try")
@click.argument("file", type=click.File("rb"))
@click.option("--format", "name", metavar="NAME", help="Format or intake; default: the folder.")
@_AGENT
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Header of it."
)
@output.output_option
@settings_options
def try_message(
    settings: Settings,
    file: IO[bytes],
    name: str | None,
    agent: str | None,
    headers: Sequence[str],
    form: str,
) -> None:
    """Show what a message in FILE becomes; - reads standard input. Nothing is sent.

    With an intake of an agent, the sender is checked if headers are given, as the API would; the
    secret is looked up in the folder of the setting `intake.secrets`.
    """
    from boyd.intake import BadIntake, IntakeRequest, UnknownFormat, parse, parse_declared

    most, given = settings.intake.max_body, dict(_headers(headers))
    body = file.read(most + 1)
    if len(body) > most:
        raise click.BadParameter(f"it is longer than intake.max_body, {most} bytes")
    chosen = name or Path(file.name).resolve().parent.name
    declared = _declared(agent).get(chosen)
    kind = given.get("content-type", "application/json")
    sent = IntakeRequest(kind, given, body)
    try:
        if declared is not None and given:
            _check(settings, declared, given, body)
        found = parse_declared(declared, sent) if declared else parse(chosen, sent)
    except (BadIntake, UnknownFormat) as error:
        output.stop(output.FAILED, f"{chosen}: {error}")
    if not output.print_data(form, found):
        _show(found)


def _show(found: Sequence[Observation]) -> None:
    from boyd.intake import UNOBSERVED

    output.note(counted(len(found), "observation") + (f": {UNOBSERVED}" if not found else ""))
    for one in found:
        output.say()
        named = {"source": one.source, "type": one.type, "severity": one.severity or "none"}
        marks = {**named, **(one.metadata or {}), "timestamp": one.timestamp.isoformat()}
        rows = [[key, output.text_of(value)] for key, value in (marks | one.data).items()]
        output.print_table((label("field"), folded("value")), rows)


def _check(
    settings: Settings, declared: DeclaredIntake, headers: Mapping[str, str], body: bytes
) -> None:
    """Check the sender as the API would, and say so; stop if it is refused."""
    from boyd.intake.sender_checks import SenderRefused, check_sender, read_secrets
    from boyd.settings.intake_settings import KeyAuth, QueryAuth, SnsAuth

    auth = declared.auth
    if isinstance(auth, KeyAuth | QueryAuth | SnsAuth):
        output.note(f"The sender is not checked: only the API can check {auth.method!r}.")
        return
    secrets = read_secrets(settings.intake.secrets, auth.secret)
    try:
        check_sender(auth, secrets, headers, lambda: body, time.time(), {})
    except SenderRefused as error:
        output.stop(output.FAILED, f"the sender would be refused: {error}")
    output.note(f"The sender would be admitted ({auth.method}).")


def _headers(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{text!r} is not 'Name: value'", param_hint="--header")
        yield name.strip().lower(), value.strip()


def _declared(agent: str | None) -> dict[str, DeclaredIntake]:
    from boyd.agent import load_agent

    return {one.name: one for one in load_agent(agent).settings.intakes} if agent else {}
