"""Tool calls and their outcomes, and the signature by which two calls are the same call."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from boyd.models import JsonObject, unstorable
from boyd.models.investigation import Category, ToolStatus
from boyd.text.json_limits import check_values

SHELL = "bash"
_ALIASES = {"run_command": SHELL}
#: Shell arguments that do not change what a command does.
_SHELL_IGNORED = frozenset({"description", "reason", "timeout"})
#: Outcomes that the model caused; a person's refusal or a crash is not its error.
_ERRORS: frozenset[ToolStatus] = frozenset({"failed", "refused"})

#: Quoted and escaped text and here-documents are kept; so is an unclosed quote, to the end.
_PIECES = re.compile(
    r"""(?P<kept>'[^']*+'|"(?:[^"\\]|\\.)*+"|\\.|<<<|<<[^\n]*+(?:\n.*)?|['"].*)|[ \t]++""",
    re.DOTALL,
)


@dataclass(frozen=True)
class ToolUse:
    """A call that the model asked for.

    Attributes:
        id: the call's id within its turn.
        name: the tool, as the model named it.
        arguments: an object, or the raw text if it is not one.
        poll: the tool is meant to be called repeatedly.
    """

    id: str
    name: str
    arguments: JsonObject | str
    category: Category
    poll: bool = False

    @property
    def signature(self) -> str:
        """See `signature`."""
        return signature(self.name, self.arguments)


@dataclass(frozen=True)
class ToolOutcome:
    """The one result of a call; `text` is redacted."""

    call_id: str
    status: ToolStatus
    text: str
    counts_as_error: bool

    @property
    def succeeded(self) -> bool:
        """The call ran and did its work."""
        return self.status == "succeeded" and not self.counts_as_error


def is_error(status: ToolStatus) -> bool:
    """Report whether the model caused the failure."""
    return status in _ERRORS


def signature(name: str, arguments: JsonObject | str) -> str:
    """The hexadecimal SHA-256 of a tool's canonical name and arguments.

    *arguments* that cannot be parsed are given as text.
    """
    tool = _ALIASES.get(name, name)
    if isinstance(arguments, str):
        return digest(f"{tool}\0text\0{arguments.strip()}")
    ignored = _SHELL_IGNORED if tool == SHELL else ()
    kept = {key: value for key, value in arguments.items() if key not in ignored}
    command = kept.get("command")
    if tool == SHELL and isinstance(command, str):
        kept["command"] = normalize_command(command)
    return digest(f"{tool}\0json\0{canonical_json(kept)}")


def canonical_json(value: object) -> str:
    """Compact JSON with sorted keys and one form for each number."""
    return json.dumps(_normalize(value), sort_keys=True, separators=(",", ":"))


def normalize_command(command: str) -> str:
    """A shell command, trimmed, with unified line ends and collapsed blanks outside quotes."""
    text = command.replace("\r\n", "\n").replace("\r", "\n").strip()
    return _PIECES.sub(lambda found: found["kept"] or " ", text)


def parse_json(text: str) -> Any:
    """The value of a JSON *text*; raises `ValueError` if it is invalid, too large or too deep."""
    check_values(text)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object in *text*, if there is one."""
    with suppress(ValueError):
        value = parse_json(text)
        return value if isinstance(value, dict) else None
    return None


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The JSON object in *text*; None if there is none or it cannot be stored."""
    value = parse_object(text)
    return value if value is not None and unstorable(value) is None else None


def sendable_arguments(text: str) -> str:
    """Arguments to send back to the server, which refuses any that are not an object."""
    if parse_arguments(text) is not None:
        return text
    return json.dumps({"unparseable": text}, ensure_ascii=False)


def _normalize(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _normalize(item) for key, item in value.items()}
    return [_normalize(item) for item in value] if isinstance(value, list) else value


def digest(text: str) -> str:
    """The hexadecimal SHA-256 of *text*."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
