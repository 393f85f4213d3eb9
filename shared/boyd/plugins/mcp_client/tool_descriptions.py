"""Tools as MCP servers describe them: the lock file, changes since it was written, and checks.

Nothing here follows a reference, fetches anything or evaluates a pattern of a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from unicodedata import category

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boyd.errors import ConfigError
from boyd.llm.messages import canonical_json
from boyd.models import JsonObject, explain, unstorable
from boyd.plugins.mcp_client.remote_server import ServerName
from boyd.plugins.results import difference

#: The most bytes of a lock file.
MAX_BYTES = 8_388_608
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
#: Characters shown of the description of a new tool; the lock file has all.
_SHOWN = 300


class LockedTool(BaseModel):
    """A server's description of a tool; the annotations are only shown, never trusted."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    digest: str
    description: str = ""
    schema_: JsonObject = Field(alias="inputSchema")
    annotations: JsonObject = Field(default_factory=dict)

    @classmethod
    def of(cls, description: str, schema: JsonObject, annotations: JsonObject) -> LockedTool:
        """The tool with its digest."""
        return cls(
            digest=digest(description, schema),
            description=description,
            schema_=schema,
            annotations=annotations,
        )


class LockedServer(BaseModel):
    """The tools of a server, and the revision of the protocol that it spoke."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: str
    tools: dict[str, LockedTool] = Field(default_factory=dict, max_length=MAX_TOOLS)


class ToolLock(BaseModel):
    """The content of a lock file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    servers: dict[ServerName, LockedServer] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ToolLock:
        """Read a file; without one, no tool is known.

        Raises:
            ConfigError: it cannot be read, or is not what `boyd mcp sync` writes.
        """
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        try:
            if len(raw) > MAX_BYTES:
                raise ValueError(f"is longer than {MAX_BYTES} bytes")
            lock = cls.model_validate_json(raw)
            lock.check()
        except ValueError as error:
            problem = explain(error) if isinstance(error, ValidationError) else str(error)
            raise ConfigError(f"{path}: {problem}; run `boyd mcp sync`") from None
        return lock

    def check(self) -> None:
        """Check each tool as when it was written.

        Raises:
            ValueError: one has a flaw, or was edited.
        """
        for name, server in self.servers.items():
            for tool, locked in server.tools.items():
                problem = flaw(tool, locked.description, locked.schema_)
                if not problem and locked.digest != digest(locked.description, locked.schema_):
                    problem = "its digest is not that of its description and schema"
                if not problem and ambiguous(server.tools.keys()):
                    problem = "another tool has a name that can be mistaken for its own"
                if problem:
                    raise ValueError(f"{name}/{tool}: {problem}")

    def write(self, path: Path) -> None:
        """Replace the file."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, sort_keys=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(f"{text}\n", encoding="utf-8")
        temporary.replace(path)


def changes(before: ToolLock, after: ToolLock) -> Iterator[str]:
    """Texts about each tool that is new, gone or described in another way."""
    for name in sorted(before.servers.keys() | after.servers.keys()):
        old = before.servers.get(name, LockedServer(protocol=""))
        new = after.servers.get(name, LockedServer(protocol=""))
        if old.protocol != new.protocol:
            yield f"{name}: protocol {old.protocol or 'none'} -> {new.protocol or 'none'}"
        for tool in sorted(old.tools.keys() | new.tools.keys()):
            was, current = old.tools.get(tool), new.tools.get(tool)
            if was is None and current is not None:
                yield f"new: {name}/{tool} {current.digest}\n  {_begin(current.description)}"
            elif current is None:
                yield f"gone: {name}/{tool}"
            elif was is not None and was.digest != current.digest:
                yield f"changed: {name}/{tool} {current.digest}"
                yield describe_change(was, current, f"{name}/{tool}")
            elif was is not None and was.annotations != current.annotations:
                yield f"claims: {name}/{tool} {was.annotations} -> {current.annotations}"


def _begin(description: str) -> str:
    line = visible(" ".join(description.split()))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"


def describe_change(before: LockedTool, after: LockedTool, name: str) -> str:
    """The difference between two descriptions of a tool and their schemas."""
    return difference(_as_text(before), _as_text(after), name, ("as locked", "as offered"))


def _as_text(tool: LockedTool) -> str:
    schema = yaml.safe_dump(visible_json(tool.schema_), sort_keys=True, allow_unicode=True)
    return f"{visible(tool.description)}\n\nschema:\n{schema}"


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
        c if c in "\n\t" or category(c) not in _HIDDEN else f"\\u{{{ord(c):x}}}" for c in text
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
