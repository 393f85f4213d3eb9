"""Texts for people: numbers with their nouns, sums, and characters that cannot be seen."""

from __future__ import annotations

import json
from math import floor, log10


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, as in `1 run` and `2 runs`.

    Args:
        number: how many.
        noun: the noun, in the singular.
        plural: the same in the plural; without it *noun* with an s.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def dollars(amount: float) -> str:
    """An amount in plain decimals with two digits that count, as in `$1.25` and `$0.000021`."""
    if amount <= 0:
        return "$0"
    if amount >= 1:
        return f"${amount:.2f}"
    places = 1 - floor(log10(amount))
    return "$" + f"{amount:.{places}f}".rstrip("0").rstrip(".")


def seconds(number: float) -> str:
    """A number of seconds in words, in the two largest units."""
    if number < 60:
        return f"{number:g} s"
    whole = int(number)
    for size, unit, smaller_size, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(number)


def visible(text: str) -> str:
    """JSON whose invisible characters are escaped, so that nobody approves them unseen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def message_of(error: object) -> str:
    """The text of an error; empty if making it fails, as it does with some errors of libraries."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever it is, it is about the text only
        return ""


def error_line(error: BaseException) -> str:
    """The type of an error, and its text if it has one."""
    text = message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
