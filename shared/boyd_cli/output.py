"""Prints lines, tables, JSON and YAML; colour only on a terminal.

Texts come from outside, so control characters are removed before they reach a terminal.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click

from boyd.errors import ApiProblem
from boyd.models import ActionResult, EffectVerification, LoopResult, Model, responses
from boyd.models.responses import IterationSummary
from boyd.text.formatting import counted, visible
from boyd.text.formatting import seconds as seconds
from boyd_cli.views.tables import GAP, Column, layout

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Table

#: Exit statuses besides 0 (ok) and 2 (wrong usage, by click).
FAILED = 1
DENIED = 3
NOT_FOUND = 4
CONFLICT = 5
TIMED_OUT = 124

#: Exit statuses by the name of a problem, then by HTTP status.
_OF_NAME = {"not-pending": CONFLICT, "timeout": TIMED_OUT}
_OF_STATUS = {401: DENIED, 403: DENIED, 404: NOT_FOUND, 409: CONFLICT, 412: CONFLICT}

#: The default width of a line, and the least width of a summary in it.
LINE = 120
_LEAST = 24
#: Characters shown of an id.
SHORT = 8
#: Escape sequences for colours and window titles.
_COLOURING = re.compile(r"\x1b(\[[0-9;:]*m|\][^\x07\x1b]*(\x07|\x1b\\))")
#: Colours of table cells by their first word.
_COLOURS = {
    **dict.fromkeys(("ok", "idle"), "green"),
    **dict.fromkeys(("warn", "warning", "paused"), "yellow"),
    **dict.fromkeys(("fail", "failed", "error", "critical"), "red"),
    "frozen": "cyan",
    "revoked": "red",
}


def iteration_line(result: LoopResult, width: int = LINE) -> str:
    """One iteration as one line; the summary is cut to fit *width*.

    Without room for the summary, the number of observations is omitted first.
    """
    head = f"{clock(result.ended_at)}  {result.agent_id} #{result.iteration}  "
    head += f"{'ok' if result.success else 'failed'}  {duration(result.duration)}"
    came_to = outcome(result)
    tail = f"→ {came_to}" if came_to else ""
    summary = one_line(result.situation.summary) if result.situation else ""
    for middle in (f"  {_observation_count(result)}", ""):
        room = width - len(head) - len(middle) - len(tail) - 3
        if room >= min(_LEAST, len(summary)):
            text = f"{cut(summary, room)} " if summary else ""
            return f"{head}{middle}  {text}{tail}".rstrip()
    return cut(f"{head}  {tail}".rstrip(), width)


def paint_iteration(result: LoopResult) -> str:
    """The same as wide as the terminal, in colour."""
    colour = None if result.success else "red"
    if result.success and any(action.success for action in result.action_results):
        colour = "green"
    if result.success and any(action.waits_for for action in result.action_results):
        colour = "yellow"
    return paint(iteration_line(result, width() if is_terminal() else LINE), colour)


def paint(text: str, colour: str | None) -> str:
    """The text in that colour, if colours are enabled."""
    return click.style(text, fg=colour) if colour and is_coloured() else text


def _observation_count(result: LoopResult) -> str:
    text = counted(len(result.observations), "observation")
    lost = len({problem.id for problem in result.observer_errors})
    left_out = [f"{counted(lost, 'observer')} failed"] if lost else []
    if result.not_due:
        left_out.append(f"{counted(len(result.not_due), 'observer')} not due")
    return f"{text} ({', '.join(left_out)})" if left_out else text


def outcome(result: LoopResult | IterationSummary) -> str:
    """The outcome of an iteration: its action, or why it failed."""
    return responses.outcome(result, _reason)


def action_outcome(result: ActionResult, title: str = "") -> str:
    """The outcome of an action; *title* replaces the action's name."""
    return responses.action_outcome(result, title, _reason)


def _reason(error: str) -> str:
    return brief(error, LINE // 2)


def brief(text: str, width: int = LINE) -> str:
    """The text on one line; cut on a terminal only."""
    plain = one_line(text)
    return cut(plain, width) if is_terminal() else plain


def action_duration(result: ActionResult) -> str:
    """The duration of an action; empty if it was refused before it began."""
    return "" if not result.success and result.duration < 1 else duration(result.duration)


def error_row(result: ActionResult) -> tuple[str, str]:
    """The full error of an action, if `action_outcome` has cut it."""
    text = one_line(responses.error_of(result) or "")
    return "error", "" if text in action_outcome(result) else text


def clock(moment: datetime) -> str:
    """The local time of day."""
    return moment.astimezone().strftime("%H:%M:%S")


def date(moment: datetime | None) -> str:
    """The local date and time."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def short_date(moment: datetime | None, now: datetime | None = None) -> str:
    """A date for a column: as short as possible on a terminal, in full in a pipe."""
    if moment is None or not is_terminal():
        return date(moment)
    here, today = moment.astimezone(), (now or datetime.now(UTC)).astimezone()
    if here.date() == today.date():
        return clock(moment)
    return here.strftime("%b %d %H:%M" if here.year == today.year else "%Y-%m-%d")


def duration(milliseconds: float) -> str:
    """A duration in words, as in `85 ms`, `1.4 s` or `2 min 5 s`."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return seconds(milliseconds / 1000)


def short_seconds(number: float) -> str:
    """A number of seconds for a column, in one unit, as in `90 s`, `58 min` or `3 h`."""
    whole = int(number)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def age(moment: datetime | None, now: datetime, words: Callable[[float], str] = seconds) -> str:
    """The time since *moment*, as in `12 s ago`."""
    if moment is None:
        return "never"
    elapsed = (now - moment).total_seconds()
    return f"{words(int(elapsed))} ago" if elapsed >= 1 else "just now"


def short_age(moment: datetime | None, now: datetime) -> str:
    """The same for a column, in one unit."""
    return age(moment, now, short_seconds)


def cut(text: str, width: int) -> str:
    """The text, ended by `…` if it is longer than *width*."""
    return text if len(text) <= width else text[: max(1, width) - 1].rstrip() + "…"


def short(id: str) -> str:
    """Shorten an id for tables."""
    return id[:SHORT]


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())


def clean(text: str) -> str:
    """The text with its lines, without control characters and colours."""
    plain = _COLOURING.sub("", text).replace("\r\n", "\n").replace("\t", "    ")
    return "".join(c if c.isprintable() or c == "\n" else " " for c in plain)


_form = functools.partial(
    click.option,
    *("-o", "--output", "form"),
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
)
#: Gives a command the option `-o table|json|yaml`, as `form`.
output_option = _form(help="Output format.")
#: The same for commands that stream; see `print_item`.
lines_option = _form(help="Output format; json prints one object per line.")


def status_of(problem: ApiProblem) -> int:
    """The exit status for *problem*."""
    return _OF_NAME.get(problem.name) or _OF_STATUS.get(problem.status, FAILED)


def is_terminal() -> bool:
    """Check that standard output is a terminal."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def is_coloured() -> bool:
    """Check that colours are enabled: on a terminal, unless `NO_COLOR` is set."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def can_ask() -> bool:
    """Check that a person can answer: both standard input and output are terminals."""
    return is_terminal() and sys.stdin.isatty()


def width() -> int:
    """The width of a line; unlimited in a pipe."""
    return shutil.get_terminal_size().columns if is_terminal() else sys.maxsize


def console() -> Console:
    """A rich console for standard output; with `NO_COLOR` without any style."""
    from rich.console import Console

    system: Literal["auto"] | None = "auto" if is_coloured() else None
    return Console(file=sys.stdout, highlight=False, color_system=system)


def say(text: str = "") -> None:
    """Print a line."""
    click.echo(text)


def note(text: str) -> None:
    """Print a line to standard error."""
    click.echo(text, err=True)


def stop(status: int, message: str) -> NoReturn:
    """End the command with a message and a status."""
    note(f"boyd: {message}")
    raise click.exceptions.Exit(status)


def fail_if(failed: object) -> None:
    """End the command with status 1 if that is true."""
    if failed:
        raise click.exceptions.Exit(FAILED)


def print_data(form: str, value: object) -> bool:
    """Print *value* as one document; False if a table is wanted."""
    if form == "json":
        print_json(value)
    elif form == "yaml":
        click.echo(_yaml(value), nl=False)
    return form != "table"


def print_list(
    form: str,
    data: object,
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[str]],
    empty: str,
) -> None:
    """Print *data* as one document, or its rows as a table; *empty* if there are none."""
    if print_data(form, data):
        return
    cells = list(rows)
    if cells:
        print_table(columns, cells)
    else:
        say(empty)


def print_item(form: str, value: object) -> bool:
    """Print *value* as one of many documents; False if text is wanted."""
    if form == "json":
        say(_json(value))
    elif form == "yaml":
        click.echo(f"---\n{_yaml(value)}", nl=False)
    return form != "table"


def _yaml(value: object) -> str:
    import yaml

    text: str = yaml.safe_dump(_wire(value), sort_keys=False, allow_unicode=True, width=LINE)
    return text


def print_json(value: object, margin: int = 0) -> None:
    """Print *value* as one JSON document, indented by *margin*."""
    for line in _json(value, indent=2).split("\n"):
        say(f"{'':{margin}}{line}")


def short_value(value: object, width: int = 60) -> str:
    """A value to follow `=`, cut to *width*, and quoted if it has spaces."""
    text = cut(text_of(value), width)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and " " in text else text


def text_of(value: object) -> str:
    """The output of an action on one line."""
    if value is None or isinstance(value, str):
        return one_line(value or "")
    return _json(value)


def _json(value: object, indent: int | None = None) -> str:
    return visible(json.dumps(_wire(value), indent=indent, ensure_ascii=False))


def _wire(value: object) -> Any:
    if isinstance(value, Model):
        return value.to_wire()
    if isinstance(value, dict):
        return {str(key): _wire(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wire(item) for item in value]
    return value


def print_pairs(*pairs: tuple[str, str], indent: int = 2) -> None:
    """Print names and texts, one pair per line; empty texts are omitted."""
    rows = [(name, one_line(text)) for name, text in pairs if text]
    widest = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        say(f"{'':{indent}}{name:<{widest}}  {text}")


def print_table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[str]], indent: int = 0
) -> None:
    """Print a table: fitted to a terminal, or as plain uncut columns.

    A column given by name alone is never cut.
    """
    if is_terminal():
        from rich.padding import Padding

        table = fit_table(columns, rows, width() - indent)
        console().print(Padding(table, (0, 0, 0, indent)))
        return
    header = [column.name.upper() for column in _columns(columns)]
    lines = [header, *([one_line(cell) for cell in row] for row in rows)]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, wide, strict=True))
        say(f"{'':{indent}}{'  '.join(cells)}".rstrip())


def _columns(columns: Sequence[Column | str]) -> list[Column]:
    return [Column(column) if isinstance(column, str) else column for column in columns]


def fit_table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[str]], room: int | None = None
) -> Table:
    """A table that fits the terminal, or *room*; see `print_table`."""
    from rich.table import Table
    from rich.text import Text

    all_columns = _columns(columns)
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = layout(all_columns, cells, room or width())
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for number, wide in widths:
        folded = all_columns[number].kind == "prose"
        overflow: OverflowMethod = "fold" if folded else "ellipsis"
        title = cut(all_columns[number].name.upper(), wide)
        table.add_column(title, width=wide, no_wrap=not folded, overflow=overflow)
    for row in cells:
        colours = [_COLOURS.get(cell.split(" ")[0].rstrip(":,"), "") for cell in row]
        table.add_row(*(Text(row[number], style=colours[number]) for number, _ in widths))
    return table


def to_type(command: str) -> str:
    """The command to type here for the same agent, in backticks."""
    context = click.get_current_context(silent=True)
    agent = context.params.get("agent") if context is not None else None
    whose = f" --agent {shlex.quote(agent)}" if agent else ""
    return f"`{command_name()} {command}{whose}`"


def command_name() -> str:
    """`boyd` if it is on PATH, else the command as typed, as in `.venv/bin/boyd`."""
    typed = sys.argv[0]
    return typed if Path(typed).name == "boyd" and shutil.which("boyd") is None else "boyd"


def effect(verification: EffectVerification | None) -> str:
    """The effect of an execution, in one or two words."""
    if verification is None:
        return "not verified"
    return verification.verdict or "open"
