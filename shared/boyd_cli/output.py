"""Prints lines, tables, JSON and YAML; colour only on a terminal.

A table on a terminal has one line per row: if there is no room, unimportant columns are omitted and
long texts cut. Rich cuts, too, but knows neither columns to omit nor least widths to keep.
Texts come from outside, so control characters are removed before they reach a terminal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click

from boyd.errors import ApiProblem
from boyd.models import Model
from boyd.text.formatting import one_line as one_line
from boyd.text.formatting import printable, visible
from boyd.text.formatting import seconds as seconds

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Table

#: Spaces between two columns.
GAP = 2
#: The widest cell of a text, and of an id or another word, that others are padded to in a pipe: a
#: longer one shifts the rest of its row.
_ALIGNED_TEXT, _ALIGNED_WORD = 40, 80
#: The least width of sentences and names; below it columns are omitted.
_TEXT = 20
_NAME = 12
#: The least width of all columns if omitting others does not help.
_SCANT = 4

#: The treatment of cells that do not fit: none, cut at the end or in the middle, or wrapped.
Kind = Literal["whole", "cut", "id", "prose"]

#: Exit statuses besides 0 (ok) and 2 (wrong usage, by click).
FAILED = 1
DENIED = 3
NOT_FOUND = 4
CONFLICT = 5
TIMED_OUT = 124

#: Exit statuses by the name of a problem, then by HTTP status.
_OF_NAME = {"not-pending": CONFLICT, "timeout": TIMED_OUT}
_OF_STATUS = {401: DENIED, 403: DENIED, 404: NOT_FOUND, 409: CONFLICT, 412: CONFLICT}

#: The default width of a line.
LINE = 120
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


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: its heading.
        kind: the treatment of cells that do not fit.
        least: the width below which columns are omitted instead.
        drop: 0: never omitted; otherwise the highest is omitted first.
    """

    name: str
    kind: Kind = "whole"
    least: int = 0
    drop: int = 0

    @property
    def alignment(self) -> int:
        """The widest cell that others are padded to in a pipe."""
        return _ALIGNED_TEXT if self.kind in ("cut", "prose") else _ALIGNED_WORD


def whole(name: str, drop: int = 0) -> Column:
    """A column of short words, numbers, dates or ids: never cut."""
    return Column(name, "whole", drop=drop)


def label(name: str, least: int = _NAME, drop: int = 0) -> Column:
    """A column of names: cut to *least* if necessary."""
    return Column(name, "cut", least, drop)


def long_id(name: str, least: int, drop: int = 0) -> Column:
    """A column of ids that differ at their ends: cut in the middle if necessary."""
    return Column(name, "id", least, drop)


def sentence(name: str, least: int = _TEXT, drop: int = 0) -> Column:
    """A column of sentences: gets the remaining room, and is cut there."""
    return Column(name, "cut", least, drop)


def prose(name: str, least: int = _TEXT) -> Column:
    """A column of texts that must be read in full: they wrap."""
    return Column(name, "prose", least)


def paint(text: str, colour: str | None) -> str:
    """The text in that colour, if colours are enabled."""
    return click.style(text, fg=colour) if colour and is_coloured() else text


def brief(text: str, width: int = LINE) -> str:
    """The text on one line; cut on a terminal only."""
    plain = one_line(text)
    return cut(plain, width) if is_terminal() else plain


def clock(moment: datetime) -> str:
    """The local time of day."""
    return moment.astimezone().strftime("%H:%M:%S")


def date(moment: datetime | None) -> str:
    """The local date and time, with the offset from UTC."""
    return moment.astimezone().isoformat(" ", "seconds") if moment else ""


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


def cut_middle(text: str, width: int) -> str:
    """The text, with `…` in place of its middle if it is longer than *width*."""
    if len(text) <= width:
        return text
    begin = width // 4
    return f"{text[:begin]}…{text[len(text) - width + begin + 1 :]}"


def short(id: str) -> str:
    """Shorten an id for tables."""
    return id[:SHORT]


def clean(text: str) -> str:
    """The text with its lines, without control characters and colours."""
    plain = _COLOURING.sub("", text).replace("\r\n", "\n").replace("\t", "    ")
    return "\n".join(map(printable, plain.split("\n")))


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


def confirm(question: str, otherwise: str) -> None:
    """Ask on the terminal; unless the answer is yes, end the command with *otherwise*."""
    if not click.confirm(question):
        stop(FAILED, otherwise)


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
    data: Sequence[object],
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[str]],
    empty: str,
) -> None:
    """Print *data* as one list, or its rows as a table; *empty* if there are none."""
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

    data = _wire(value)

    def dump(allow_unicode: bool) -> str:
        return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=allow_unicode, width=LINE))

    text = dump(allow_unicode=True)
    # Otherwise PyYAML leaves some of what nobody sees as it is.
    return text if text.replace("\n", "").isprintable() else dump(allow_unicode=False)


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
    In a pipe one long cell widens its own row only.
    """
    if is_terminal():
        from rich.padding import Padding

        table = fit_table(columns, rows, width() - indent)
        console().print(Padding(table, (0, 0, 0, indent)))
        return
    all_columns = _columns(columns)
    header = [column.name.upper() for column in all_columns]
    lines = [header, *([one_line(cell) for cell in row] for row in rows)]
    wide = [
        max(len(cell) for cell in cells if len(cell) <= column.alignment)
        for column, cells in zip(all_columns, zip(*lines, strict=True), strict=True)
    ]
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
        ids = {number for number, _ in widths if all_columns[number].kind == "id"}
        texts = {n: cut_middle(row[n], wide) if n in ids else row[n] for n, wide in widths}
        table.add_row(*(Text(text, style=colours[n]) for n, text in texts.items()))
    return table


def layout(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], room: int
) -> list[tuple[int, int]]:
    """Choose the columns to show; return the number and the width of each."""
    from rich.cells import cell_len

    names = [column.name for column in columns]
    needed = [max(map(cell_len, cells)) for cells in zip(names, *rows, strict=True)]
    least = [
        # Not below the width of the heading.
        wide if column.kind == "whole" else min(wide, max(column.least, len(column.name)))
        for column, wide in zip(columns, needed, strict=True)
    ]
    numbers = _choose(columns, least, room)
    if _total(least[number] for number in numbers) > room:
        return _squeeze(numbers, least, room)
    return _widen(numbers, least, needed, room)


def _choose(columns: Sequence[Column], least: Sequence[int], room: int) -> list[int]:
    """The columns to show; unimportant ones are omitted if necessary."""
    numbers = set(range(len(columns)))
    going = sorted((n for n in numbers if columns[n].drop), key=lambda n: -columns[n].drop)
    omitted = []
    for number in going:
        if _total(least[n] for n in numbers) > room:
            numbers.remove(number)
            omitted.append(number)
    # An omitted wide column may leave room for narrow ones.
    for number in reversed(omitted):
        if _total(least[n] for n in {*numbers, number}) <= room:
            numbers.add(number)
    return sorted(numbers)


def _widen(
    numbers: Sequence[int], least: Sequence[int], needed: Sequence[int], room: int
) -> list[tuple[int, int]]:
    """Distribute the remaining room, always to the narrowest column that needs it."""
    widths = {number: least[number] for number in numbers}
    for _ in range(room - _total(widths.values())):
        wanting = [number for number in numbers if widths[number] < needed[number]]
        if not wanting:
            break
        widths[min(wanting, key=lambda number: widths[number])] += 1
    return list(widths.items())


def _squeeze(numbers: Sequence[int], least: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Cut uncuttable columns, the widest first and the first column last."""
    widths = {number: least[number] for number in numbers}
    for columns, limit in ((numbers[1:], _SCANT), (numbers[1:], 1), (numbers[:1], 1)):
        while _total(widths.values()) > room:
            can = [number for number in columns if widths[number] > limit]
            if not can:
                break
            widths[max(can, key=lambda number: widths[number])] -= 1
    return list(widths.items())


def _total(widths: Iterable[int]) -> int:
    all_widths = list(widths)
    return sum(all_widths) + GAP * (len(all_widths) - 1)


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
