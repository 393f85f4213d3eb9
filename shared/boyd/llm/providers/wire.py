"""Wire formats of model servers, and the preparation of messages for any of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import SecretStr

from boyd.llm.messages import Message, ModelRequest, StreamEvent, parse_object, sendable_arguments
from boyd.llm.model_errors import Fault
from boyd.models.investigation import ToolCall
from boyd.settings.model import ModelSettings


class Decoder(Protocol):
    """Stateful decoder of one answer."""

    def decode(self, data: str) -> Iterable[StreamEvent]:
        """Decode the data of a server-sent event; raises `Fault` for errors and invalid data."""


@dataclass(frozen=True)
class Wire:
    """The functions that speak one wire format."""

    url: Callable[[ModelSettings], str]
    headers: Callable[[SecretStr | None], dict[str, str]]
    body: Callable[[ModelSettings, ModelRequest], dict[str, Any]]
    decoder: Callable[[], Decoder]


def common_fields(settings: ModelSettings, max_tokens: str) -> dict[str, Any]:
    """Fields of every request; *max_tokens* is the name of the output limit."""
    fields = {"model": settings.model, "stream": True, max_tokens: settings.max_output_tokens}
    temperature = settings.temperature
    return fields if temperature is None else {**fields, "temperature": temperature}


def parse_event(data: str) -> dict[str, Any]:
    """The JSON object of an event; raises `Fault` if it is none."""
    value = parse_object(data)
    if value is None:
        raise Fault("an event in the stream is not a JSON object")
    return value


def part(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object in field *name*, or an empty one."""
    field = value.get(name)
    return field if isinstance(field, dict) else {}


def text(value: Mapping[str, Any], name: str) -> str:
    """The text in field *name*, or an empty one."""
    field = value.get(name)
    return field if isinstance(field, str) else ""


def number(value: Mapping[str, Any], name: str) -> int:
    """The number of tokens in field *name*, or 0."""
    field = value.get(name)
    return max(field, 0) if isinstance(field, int) else 0


def index(value: Mapping[str, Any]) -> int | None:
    """The `index` of a piece, if it has one."""
    field = value.get("index")
    return field if isinstance(field, int) and not isinstance(field, bool) else None


#: Distinguishes messages of Boyd from those of a person, and from results: only Boyd writes it.
_STEERING = "<steering>\n{}\n</steering>"
_TAG = re.compile(r"<(?=\s*+/?\s*+steering\b)", re.IGNORECASE)


def prepare(request: ModelRequest, *, takes_system: bool) -> tuple[str, list[Message]]:
    """The system prompt and the messages after it.

    Later system messages become tagged user messages, unless the server *takes_system* messages
    there. Empty messages are dropped, and malformed calls are rewritten to suit servers.
    """
    messages = request.messages
    first = next((n for n, each in enumerate(messages) if each.role != "system"), len(messages))
    tool_names = {tool.name for tool in request.tools}
    rest = (_with_valid_calls(_tag_steering(m, takes_system), tool_names) for m in messages[first:])
    return _join_text(messages[:first]), _merge(rest)


def _join_text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.text for message in messages if message.text.strip())


def _tag_steering(message: Message, takes_system: bool) -> Message:
    if message.role == "assistant":
        return message
    # What Boyd says may quote results.
    text = _TAG.sub(r"\\u003c", message.text)
    if message.role not in ("system", "steering"):
        return message if text == message.text else message.patched({"text": text})
    if takes_system or not text.strip():
        return Message(role="system", text=text)
    return Message(role="user", text=_STEERING.format(text))


def _with_valid_calls(message: Message, tool_names: Collection[str]) -> Message:
    if not message.calls:
        return message
    calls = [
        ToolCall(
            id=c.id, name=_legal(c.name, tool_names), arguments=sendable_arguments(c.arguments)
        )
        for c in message.calls
    ]
    return Message(role=message.role, text=message.text, calls=calls)


def _legal(name: str, tool_names: Collection[str]) -> str:
    """A known name, or one that servers accept in place of a name that the model made up."""
    return name if name in tool_names else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"


def _merge(messages: Iterable[Message]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        if message.role != "tool" and not message.calls and not message.text.strip():
            continue
        before = merged[-1] if merged else None
        if before and before.role == message.role != "tool" and not before.calls:
            text = _join_text([before, message])
            merged[-1] = Message(role=message.role, text=text, calls=message.calls)
        else:
            merged.append(message)
    return merged
