"""JSON documents as lines of text, one for each value, behind the names of what has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from boyd_goals.criteria import base_of, split_word
from boyd_goals.vocabulary import BAD

#: The most lines of a document.
_MAX_LINES = 500
#: Fields that name an object.
_NAMING = frozenset(
    ["name", "id", "service", "unit", "host", "hostname", "target", "container", "pod", "resource"]
)
#: Fields that are good if they are false or zero, besides those of bad states.
_GOOD_IF_NOT = frozenset([*BAD, "dry", "warning", "timeout", "truncated", "paused"])


def lines_of(output: str) -> list[list[str]]:
    """The lines of each object in a JSON document; none for any other text."""
    if not output.lstrip().startswith(("{", "[")):
        return []
    try:
        document = json.loads(output)
    except ValueError:
        return []
    parts = document if isinstance(document, list) else [document]
    return [lines for part in parts if (lines := [*_lines(part, [])][:_MAX_LINES])]


def _lines(value: Any, names: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _lines(item, names)
    elif isinstance(value, dict):
        own = [str(item) for key, item in value.items() if _is_naming(key, item)]
        names = [*names, *own]
        if own and len(own) == len(value):
            yield " ".join(names)
        for key, item in value.items():
            if not _is_naming(key, item):
                yield from _field(key, item, names)
    elif value is not None and str(value).strip():
        yield " ".join([*names, *str(value).split()])


def _is_naming(key: str, value: Any) -> bool:
    return key.lower() in _NAMING and isinstance(value, str | int) and not isinstance(value, bool)


def _field(key: str, value: Any, names: Sequence[str]) -> Iterator[str]:
    """The lines of a field; none if it says that there is no error or the like."""
    words = [word.lower() for word in split_word(key)]
    if isinstance(value, dict):
        yield from _lines(value, [*names, " ".join(words)])
        return
    if value in (None, "", []) or (not value and not _GOOD_IF_NOT.isdisjoint(map(base_of, words))):
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict | list):
            yield from _lines(item, [*names, " ".join(words)])
        else:
            text = json.dumps(item) if isinstance(item, bool) else " ".join(str(item).split())
            yield f"{' '.join([*names, *words])}: {text}"
