"""How wide the columns of a table are where a terminal has no room for all that is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: Between two columns.
GAP = 2
#: Columns that are typed again or looked for: they give way last, and the first one never does.
_FIRM = {"id", "action", "status", "outcome"}
#: What a long text should have at least, and what it gets where there is not even room for that.
_FAIR = 24
_POOR = 8
#: The same of all others: a date, a word.
_DATE = 10
_WORD = 8
#: What anything but an id can be pressed to.
_SCANT = 4


def widths(
    header: Sequence[str], rows: Iterable[Sequence[str]], room: int, cut: Sequence[str] = ()
) -> list[int]:
    """How wide each column is, so that all of them fit into *room*.

    Args:
        header: what is above the columns.
        rows: the cells below it.
        room: of the whole table.
        cut: the columns of long texts, which take what the others leave; the first gives way first.
    """
    found = [max(map(_cells, column)) for column in zip(header, *rows, strict=True)]
    for columns, least in _givers(header, cut):
        _narrow(found, columns, least, room - GAP * (len(found) - 1))
    return found


def _givers(
    header: Sequence[str], cut: Sequence[str]
) -> Iterator[tuple[Iterable[int], Sequence[int]]]:
    """Which columns give way, the first ones first, and how wide they stay at least."""
    named = {name: number for number, name in enumerate(header) if number}
    texts = [named[name] for name in cut if name in named]
    others = [n for name, n in named.items() if n not in texts and name not in _FIRM]
    yield texts, [_FAIR] * len(header)
    for text_least, least in ((_POOR, _DATE), (_SCANT, _WORD)):
        yield others, [max(least, len(name)) for name in header]
        for text in texts:
            yield [text], [text_least] * len(header)
    yield others, [_SCANT] * len(header)
    yield range(1, len(header)), [1] * len(header)


def _narrow(widths: list[int], columns: Iterable[int], least: Sequence[int], room: int) -> None:
    """Take from the widest of *columns*, again and again, until all fit."""
    while sum(widths) > room:
        can = [number for number in columns if widths[number] > least[number]]
        if not can:
            return
        widths[max(can, key=lambda number: widths[number])] -= 1


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
