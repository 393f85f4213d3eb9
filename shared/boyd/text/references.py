"""References to values, such as `${params.host}`: a whole text, or parts of a question."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_REFERENCE = re.compile(r"\$\{(\w+)((?:\.[\w-]+)*)\}", re.ASCII)


_WITHIN = re.compile(r"\$\{[^}]*\}?")
#: The most characters of a value within a text, and of that text.
LONGEST = 200
LONGEST_TEXT = 2000


class MissingValue(ValueError):
    """A reference has no value."""


@dataclass(frozen=True)
class Reference:
    """A reference: the name of a value, and the path to a part of it."""

    text: str
    name: str
    path: tuple[str, ...]

    def look_up(self, values: Mapping[str, Any]) -> Any:
        """The value that it stands for.

        Raises:
            MissingValue: there is none.
        """
        value: Any = values
        for part in (self.name, *self.path):
            if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            elif isinstance(value, Mapping) and part in value:
                value = value[part]
            else:
                raise MissingValue(f"{self.text}: there is no {part!r}")
        return value


def parse_reference(text: str) -> Reference | None:
    """Parse *text* as a reference; return None if it is not one."""
    match = _REFERENCE.fullmatch(text)
    return Reference(text, match[1], tuple(match[2].split(".")[1:])) if match else None


def reference_texts(value: Any) -> Iterator[str]:
    """The texts in *value* that are references, or look like one."""
    if isinstance(value, str) and "${" in value:
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from reference_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from reference_texts(item)


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """*value* with a value for each reference in it.

    Raises:
        MissingValue: there is none.
    """
    if isinstance(value, str):
        reference = parse_reference(value)
        return reference.look_up(values) if reference else value
    if isinstance(value, Mapping):
        return {name: fill(item, values) for name, item in value.items()}
    return [fill(item, values) for item in value] if isinstance(value, list) else value


def references_within(text: str) -> list[str]:
    """The parts of a text for people that are references, or look like one."""
    return _WITHIN.findall(text)


def fill_text(text: str, values: Mapping[str, Any]) -> str:
    """A text for people with a value for each reference within it.

    What is too long is cut, and an empty value is shown as `""`.

    Raises:
        MissingValue: there is none.
    """

    def replace(match: re.Match[str]) -> str:
        value = fill(match[0], values)
        is_word = isinstance(value, str) and value
        return _cut(value if is_word else json.dumps(value, ensure_ascii=False), LONGEST)

    return _cut(_WITHIN.sub(replace, text), LONGEST_TEXT)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
