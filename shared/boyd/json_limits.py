"""Counts the values of a JSON text before it is read.

A parser holds the interpreter until it has made all values: that is short for a long text, and
long for many lists. So texts with too many values are refused before they are parsed (P18).
"""

from __future__ import annotations

import re
from typing import Any

#: Values that one JSON text may have; an object or a list counts as two, for what it costs.
MAX_VALUES = 100_000

_TEXT = re.compile(rb'"[^"]*+"?')


class TooManyValues(ValueError):
    """A JSON text has more values than fit."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has more than {most} values")


def check_values(text: str | bytes, most: int = MAX_VALUES) -> None:
    """Refuse a JSON text with more than *most* values, whether it is valid or not.

    Raises:
        TooManyValues: it has more.
    """
    plain = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    # What looks like values may stand in texts; only then is it worth a closer look.
    if _values(plain, 0, len(plain)) > most:
        _check_outside(plain.replace(rb"\\", b"").replace(rb"\"", b""), most)


def check_read(value: Any) -> None:
    """Refuse a value, read from JSON, that `MAX_VALUES` do not suffice for.

    Raises:
        TooManyValues: it holds more.
    """
    seen = 0
    layer = [value]
    while layer:
        inside = [one for one in layer if one and isinstance(one, dict | list)]
        seen += len(layer) + len(inside)
        if seen > MAX_VALUES:
            raise TooManyValues(MAX_VALUES)
        layer = [
            child for one in inside for child in (one.values() if isinstance(one, dict) else one)
        ]


def _check_outside(plain: bytes, most: int) -> None:
    """Count what stands outside of texts; *plain* has no escaped quotation marks."""
    seen = at = 0
    for texts, text in enumerate(_TEXT.finditer(plain)):
        seen += _values(plain, at, text.start())
        at = text.end()
        # Each value is one text at most, with one more for its name.
        if seen > most or texts > 2 * most:
            raise TooManyValues(most)
    if seen + _values(plain, at, len(plain)) > most:
        raise TooManyValues(most)


def _values(text: bytes, begin: int, end: int) -> int:
    containers = text.count(b"[", begin, end) + text.count(b"{", begin, end)
    return text.count(b",", begin, end) + 2 * containers
