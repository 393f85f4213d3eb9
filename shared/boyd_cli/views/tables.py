"""The layout of tables on a terminal: one line per row.

If the terminal is too narrow, unimportant columns are omitted and long texts cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

#: Spaces between two columns.
GAP = 2
#: The least width of sentences and names; below it columns are omitted.
_TEXT = 20
_NAME = 12
#: The least width of all columns if omitting others does not help.
_SCANT = 4

#: The treatment of cells that do not fit: none, cut, or wrapped.
Kind = Literal["whole", "cut", "prose"]


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


def whole(name: str, drop: int = 0) -> Column:
    """A column of short words, numbers, dates or ids: never cut."""
    return Column(name, "whole", drop=drop)


def label(name: str, least: int = _NAME, drop: int = 0) -> Column:
    """A column of names: cut to *least* if necessary."""
    return Column(name, "cut", least, drop)


def sentence(name: str, least: int = _TEXT, drop: int = 0) -> Column:
    """A column of sentences: gets the remaining room, and is cut there."""
    return Column(name, "cut", least, drop)


def prose(name: str, least: int = _TEXT) -> Column:
    """A column of texts that must be read in full: they wrap."""
    return Column(name, "prose", least)


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
