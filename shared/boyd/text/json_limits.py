"""Limits the number of values in a JSON text before it is parsed.

A parser holds the interpreter until it has built all values, which takes long for many lists.
"""

from __future__ import annotations

import re
from typing import Any

#: Maximum values of a JSON text; an object or a list counts as two because of its cost.
MAX_VALUES = 100_000

_TEXT = re.compile(rb'"[^"]*+"?')


class TooManyValues(ValueError):
    """A JSON text has too many values."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has more than {most} values")


def check_values(text: str | bytes, most: int = MAX_VALUES) -> None:
    """Reject a JSON text, valid or not, with more than *most* values.

    Raises:
        TooManyValues: it has more.
    """
    plain = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    # Strings may contain what looks like values; only then is a closer look necessary.
    if _values(plain, 0, len(plain)) > most:
        _check_outside(plain.replace(rb"\\", b"").replace(rb"\"", b""), most)


def check_read(value: Any) -> None:
    """Reject a parsed value with more than `MAX_VALUES` values.

    Raises:
        TooManyValues: it has more.
    """
    count = 0
    layer = [value]
    while layer:
        inside = [value for value in layer if value and isinstance(value, dict | list)]
        count += len(layer) + len(inside)
        # Before they are looked at: what a mapping makes may have a list any number of times.
        if count + sum(map(len, inside)) > MAX_VALUES:
            raise TooManyValues(MAX_VALUES)
        layer = [
            child
            for value in inside
            for child in (value.values() if isinstance(value, dict) else value)
        ]


def _check_outside(plain: bytes, most: int) -> None:
    """Count values outside of strings; *plain* has no escaped quotation marks."""
    count = at = 0
    for texts, text in enumerate(_TEXT.finditer(plain)):
        count += _values(plain, at, text.start())
        at = text.end()
        # Each value has at most one string, and one more for its name.
        if count > most or texts > 2 * most:
            raise TooManyValues(most)
    if count + _values(plain, at, len(plain)) > most:
        raise TooManyValues(most)


def _values(text: bytes, begin: int, end: int) -> int:
    containers = text.count(b"[", begin, end) + text.count(b"{", begin, end)
    return text.count(b",", begin, end) + 2 * containers
