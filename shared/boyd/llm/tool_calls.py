"""What makes two tool calls the same call, however the model has written them (T5)."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from boyd.models import JsonObject
from boyd.models.investigation import Category, ToolStatus

SHELL = "bash"
_ALIASES = {"run_command": SHELL}
#: Arguments of the shell that make no difference to what a command does.
_SHELL_IGNORED = frozenset({"description", "reason", "timeout"})

#: Quoted and escaped text and here-documents are kept; an unclosed quote is, to the end.
_PIECES = re.compile(
    r"""(?P<kept>'[^']*+'|"(?:[^"\\]|\\.)*+"|\\.|<<<|<<[^\n]*+(?:\n.*)?|['"].*)|[ \t]++""",
    re.DOTALL,
)


def signature(name: str, arguments: JsonObject | str) -> str:
    """The SHA-256 of a call in hex: of the tool and of its arguments in one canonical form.

    Args:
        name: of the tool; `bash` and `run_command` are one.
        arguments: as an object, or as the model wrote them where that cannot be read.
    """
    tool = canonical_name(name)
    if isinstance(arguments, str):
        return _digest(f"{tool}\0text\0{arguments.strip()}")
    ignored = _SHELL_IGNORED if tool == SHELL else ()
    kept = {key: value for key, value in arguments.items() if key not in ignored}
    command = kept.get("command")
    if tool == SHELL and isinstance(command, str):
        kept["command"] = normal_command(command)
    return _digest(f"{tool}\0json\0{canonical_json(kept)}")


def canonical_name(name: str) -> str:
    """The name of a tool without its aliases."""
    return _ALIASES.get(name, name)


def canonical_json(value: object) -> str:
    """JSON with sorted keys, without blanks, and with one form for each number."""
    return json.dumps(_normal(value), sort_keys=True, separators=(",", ":"))


def normal_command(command: str) -> str:
    """A shell command trimmed, its line ends unified, its blanks outside quotes collapsed."""
    text = command.replace("\r\n", "\n").replace("\r", "\n").strip()
    return _PIECES.sub(lambda found: found["kept"] or " ", text)


def _normal(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _normal(one) for key, one in value.items()}
    return [_normal(one) for one in value] if isinstance(value, list) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


#: What a person or a crash did is no error of the model's; these are.
_ERRORS: frozenset[ToolStatus] = frozenset({"failed", "refused"})


@dataclass(frozen=True)
class ToolUse:
    """A call that the model asked for.

    Attributes:
        id: the call's, within its turn.
        name: of the tool, as the model said it.
        arguments: as an object; the text itself where it is none.
        category: what kind of work the tool does.
        poll: whether calling it again and again is how it is used.
    """

    id: str
    name: str
    arguments: JsonObject | str
    category: Category
    poll: bool = False

    @property
    def signature(self) -> str:
        """What tells this call from others."""
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
        """Whether the call ran and did what it was to do."""
        return self.status == "succeeded" and not self.counts_as_error


def is_error(status: ToolStatus) -> bool:
    """Whether a result counts as an error of what the model wanted."""
    return status in _ERRORS
