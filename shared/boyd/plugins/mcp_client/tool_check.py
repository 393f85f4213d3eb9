"""Checks what a server says of its tools, and makes it fit to be shown.

Nothing here follows a reference, fetches anything or evaluates a pattern of a schema.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any

from boyd.llm.messages import canonical_json
from boyd.models import JsonObject, unstorable

#: The most tools of a server, characters of a description, and characters of a schema as JSON.
MAX_TOOLS = 200
MAX_DESCRIPTION = 4_000
MAX_SCHEMA = 32_000
#: The deepest schema.
MAX_NESTING = 32

#: The names that the specification recommends; others can be mistaken for each other.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: What follows the id of an action in a path of the API.
_RESERVED = "dry-run"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER = "x-mcp-header"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: Unicode categories of what people do not see, or what changes the order of other characters.
_HIDDEN = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
_MARKED_TYPES = ("string", "integer", "boolean")


def digest(description: str, schema: JsonObject) -> str:
    """The digest of what a server says of a tool."""
    text = canonical_json({"description": description, "inputSchema": schema})
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def flaw(name: str, description: str, schema: JsonObject) -> str | None:
    """The flaw that makes a tool unusable, if it has one."""
    if not _NAME.fullmatch(name):
        return "its name is not 1 to 64 letters, digits, `_`, `.` and `-` of ASCII"
    if name == _RESERVED:
        return "its name is a word of the API"
    if len(description) > MAX_DESCRIPTION:
        return f"its description is longer than {MAX_DESCRIPTION} characters"
    if unstorable(schema) or len(json.dumps(schema)) > MAX_SCHEMA:
        return f"its schema cannot be stored, or is longer than {MAX_SCHEMA} characters"
    return _schema_flaw(schema)


def alike(name: str) -> str:
    """The form that *name* shares with names that can be mistaken for it."""
    return re.sub(r"[_.-]", "_", name).lower()


def ambiguous(names: Collection[str]) -> set[str]:
    """The *names* that can be mistaken for another of them, or occur twice."""
    forms = [alike(name) for name in names]
    return {name for name in names if forms.count(alike(name)) > 1}


def _schema_flaw(schema: JsonObject) -> str | None:
    if schema.get("type") != "object":
        return "its schema does not describe an object"
    if not isinstance(schema.get("properties", {}), dict):
        return "the properties of its schema are not an object"
    headers: set[str] = set()
    for depth, path, part in _parts(schema, 0, ()):
        if depth > MAX_NESTING:
            return f"its schema nests deeper than {MAX_NESTING} levels"
        for key in _REFERENCES:
            target = part.get(key, "#")
            if not (isinstance(target, str) and target.startswith("#")):
                return f"its schema refers to something outside of it ({key})"
        if _HEADER in part and (path is None or not _is_marked(part, headers)):
            return f"its schema has an {_HEADER} that is not allowed"
    return None


def _is_marked(part: Mapping[str, Any], headers: set[str]) -> bool:
    """Report whether the header of a property is valid and new; add it to *headers*."""
    name = part[_HEADER]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or name.lower() in headers:
        return False
    headers.add(name.lower())
    return part.get("type") in _MARKED_TYPES


def _parts(
    value: Any, depth: int, path: tuple[str, ...] | None
) -> Iterator[tuple[int, tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every object in a schema, how deep it is, and the properties that lead to it, if only they.

    Data, such as defaults, is taken for schemas too: that refuses more than necessary.
    """
    if depth > MAX_NESTING:
        yield depth, None, {}
        return
    if isinstance(value, list):
        for item in value:
            yield from _parts(item, depth + 1, None)
    if not isinstance(value, dict):
        return
    yield depth, path or None, value
    for key, item in value.items():
        if key == "properties" and path is not None and isinstance(item, dict):
            for name, part in item.items():
                yield from _parts(part, depth + 2, (*path, name))
        else:
            yield from _parts(item, depth + 1, None)


def headers_of(schema: JsonObject) -> dict[tuple[str, ...], str]:
    """The properties of a valid schema that are also sent as headers, and the headers' names."""
    return {
        path: part[_HEADER] for _, path, part in _parts(schema, 0, ()) if path and _HEADER in part
    }


def visible(text: str) -> str:
    """*text* with every character that people would not see written as its number."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in _HIDDEN
        else f"\\u{{{ord(character):x}}}"
        for character in text
    )


def visible_json(value: Any) -> Any:
    """A JSON value with every text and key made `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [visible_json(item) for item in value]
    if isinstance(value, dict):
        return {visible(key): visible_json(item) for key, item in value.items()}
    return value
