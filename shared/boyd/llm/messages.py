"""Messages to and from a model, and the tool calls in them, for any wire format."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from boyd.models import JsonObject, Model, unstorable
from boyd.models.investigation import (
    Category,
    Finish,
    ToolCall,
    ToolObservation,
    ToolStatus,
    Usage,
    call_label,
    call_number,
)
from boyd.text.json_limits import check_values

#: `steering` is what Boyd tells the model in mid-conversation: a tagged user message, unless the
#: server accepts system messages there.
Role = Literal["system", "user", "assistant", "tool", "steering"]


class Message(Model):
    """One message; `calls` belong to the assistant's, `call_id` to a tool's."""

    role: Role
    text: str = ""
    calls: list[ToolCall] = Field(default_factory=list)
    call_id: str | None = None
    failed: bool = False


class ToolSpec(Model):
    """A tool as the model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: JsonObject


class ModelRequest(Model):
    """One request; without `use_tools` the model must answer, even if `tools` are listed."""

    messages: list[Message]
    tools: list[ToolSpec] = Field(default_factory=list)
    use_tools: bool = True


class Turn(Model):
    """A complete turn of the model; `requests` counts the attempts it took."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = Field(default_factory=list)
    usage: Usage = Usage()
    finish: Finish = "stop"
    requests: int = 1


@dataclass(frozen=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    """A piece of the model's reasoning, which is not part of the answer."""

    text: str


@dataclass(frozen=True)
class CallFragment:
    """A piece of a tool call, cut wherever the server cut it."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | JsonObject | None = None


@dataclass(frozen=True)
class UsageReport:
    """The tokens used by the turn so far; replaces any earlier report."""

    usage: Usage


@dataclass(frozen=True)
class TurnFinished:
    """The server's reason for ending the turn."""

    reason: Finish


@dataclass(frozen=True)
class StreamEnded:
    """The end marker of the stream."""


StreamEvent = TextDelta | ReasoningDelta | CallFragment | UsageReport | TurnFinished | StreamEnded

#: Characters of a tool's output that the model sees, and the share taken from its beginning.
SHOWN = 6000
HEAD = 0.6
#: Bytes of output that are kept.
CAPTURED = 65_536
#: Characters of one turn that are kept.
MAX_SAID = 100_000
#: Fields of an observation that are omitted when false.
_FLAGS = {"timed_out", "interactive", "truncated"}


def render_observation(observation: ToolObservation, longest: int = SHOWN) -> str:
    """The observation as JSON for the model, with its output shortened to *longest* characters."""
    number, offset = call_number(observation.call_id or ""), int(longest * HEAD)
    more = f"; read_output(call={number}, offset={offset}) continues there"
    return _render(observation, shorten(observation.output, longest, more))


def render_omitted(observation: ToolObservation) -> str:
    """The observation as JSON for the model, with a note in place of its output."""
    size, number = len(observation.output), call_number(observation.call_id or "")
    note = f"[{size} characters left out to make room; read_output(call={number}) shows them]"
    return _render(observation, note)


def _render(observation: ToolObservation, output: str) -> str:
    cut = output != observation.output
    shortened = observation.patched({"output": output, "truncated": observation.truncated or cut})
    fields = {
        key: value for key, value in shortened.to_wire().items() if key not in _FLAGS or value
    }
    return json.dumps({"call": call_label(observation.call_id or ""), **fields}, ensure_ascii=False)


def capture(text: str) -> tuple[str, int]:
    """*text* with its middle left out if it exceeds `CAPTURED` bytes, and its size in bytes."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= CAPTURED:
        return text, len(raw)
    head = int(CAPTURED * HEAD)
    ends = [part.decode("utf-8", "ignore") for part in (raw[:head], raw[head - CAPTURED :])]
    left_out = len(raw) - sum(len(part.encode()) for part in ends)
    return f"\n[{left_out} bytes left out]\n".join(ends), len(raw)


def shorten(text: str, limit: int = SHOWN, more: str = "") -> str:
    """*text* with its middle left out if it exceeds *limit*; *more* is added to the note."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD)
    omitted = f"[{len(text) - limit} characters left out{more}]"
    return f"{text[:head]}\n{omitted}\n{text[head - limit :]}"


def limit_reply(text: str) -> str:
    """The beginning of what a model said, with a note if it exceeds `MAX_SAID` characters."""
    if len(text) <= MAX_SAID:
        return text
    omitted = len(text) - MAX_SAID
    note = f"[{omitted} characters left out: at most {MAX_SAID} of a turn are kept]"
    return f"{text[:MAX_SAID]}\n\n{note}"


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
    def is_success(self) -> bool:
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
    relevant = {key: value for key, value in arguments.items() if key not in ignored}
    command = relevant.get("command")
    if tool == SHELL and isinstance(command, str):
        relevant["command"] = normalize_command(command)
    return digest(f"{tool}\0json\0{canonical_json(relevant)}")


def canonical_json(value: object) -> str:
    """Compact JSON with sorted keys and one form for each number."""
    return json.dumps(_normalize(value), sort_keys=True, separators=(",", ":"))


def normalize_command(command: str) -> str:
    """A shell command, trimmed, with unified line ends and collapsed blanks outside quotes."""
    text = command.replace("\r\n", "\n").replace("\r", "\n").strip()
    return _PIECES.sub(lambda match: match["kept"] or " ", text)


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
