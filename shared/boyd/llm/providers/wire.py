"""A conversation as servers take it: nothing empty, nothing that only Boyd understands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import SecretStr

from boyd.json_limits import check_values
from boyd.llm.messages import Message, ModelRequest, Role, StreamEvent
from boyd.llm.model_errors import Fault
from boyd.llm.tool_call_parsing import sendable
from boyd.models.investigation import ToolCall
from boyd.settings.model import ModelSettings


class Decoder(Protocol):
    """Reads the events of one answer; may remember what it has read."""

    def decode(self, data: str) -> Iterable[StreamEvent]:
        """What the data of one server-sent event say.

        Raises:
            Fault: an error, or nothing that belongs on this wire.
        """
        ...


@dataclass(frozen=True)
class Wire:
    """How to talk to one kind of server.

    Attributes:
        url: where requests go.
        headers: what goes with them.
        body: the JSON object of a request.
        decoder: makes what reads one answer.
    """

    url: Callable[[ModelSettings], str]
    headers: Callable[[SecretStr | None], dict[str, str]]
    body: Callable[[ModelSettings, ModelRequest], dict[str, Any]]
    decoder: Callable[[], Decoder]


def frame(settings: ModelSettings, longest: str) -> dict[str, Any]:
    """What a request says on every wire; *longest* is what this one calls the limit of a turn."""
    said = {"model": settings.model, "stream": True, longest: settings.max_output_tokens}
    return said if settings.temperature is None else {**said, "temperature": settings.temperature}


def document(data: str) -> dict[str, Any]:
    """The JSON object that an event carries.

    Raises:
        Fault: it carries none.
    """
    try:
        check_values(data)
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Fault("an event of the stream is no JSON object")
    return value


def part(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object below *name*; an empty one when there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def text(value: Mapping[str, Any], name: str) -> str:
    """The text below *name*; empty when there is none."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def number(value: Mapping[str, Any], name: str) -> int:
    """The number of tokens below *name*; 0 when there is none."""
    found = value.get(name)
    return max(found, 0) if isinstance(found, int) else 0


def index(value: Mapping[str, Any]) -> int | None:
    """The `index` of a piece; None when there is none."""
    found = value.get("index")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


#: How what Boyd says in the middle of a conversation is told from what a person says (F9).
_STEERING = "<steering>\n{}\n</steering>"


def prepared(request: ModelRequest, *, takes_system: bool) -> tuple[str, list[Message]]:
    """What the model is told first, and the messages after it.

    System messages further on are steering: tagged messages of the user, unless the server
    *takes_system* messages there. Messages that say nothing are left out, and calls that the model
    got wrong are made such that servers take them back.
    """
    messages = request.messages
    first = next((at for at, one in enumerate(messages) if one.role != "system"), len(messages))
    known = {tool.name for tool in request.tools}
    rest = (_acceptable(_steered(one, takes_system), known) for one in messages[first:])
    return _text_of(messages[:first]), _merged(rest)


def _text_of(messages: Sequence[Message]) -> str:
    return "\n\n".join(one.text for one in messages if one.text.strip())


def _steered(message: Message, takes_system: bool) -> Message:
    if message.role not in ("system", "steering"):
        return message
    if takes_system or not message.text.strip():
        return Message(role="system", text=message.text)
    return Message(role="user", text=_STEERING.format(message.text))


def _acceptable(message: Message, known: Collection[str]) -> Message:
    if not message.calls:
        return message
    calls = [
        ToolCall(id=one.id, name=_legal(one.name, known), arguments=sendable(one.arguments))
        for one in message.calls
    ]
    return Message(role=message.role, text=message.text, calls=calls)


def _legal(name: str, known: Collection[str]) -> str:
    """The name of a tool, or what servers take in place of one that a model has made up."""
    return name if name in known else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"


def _merged(messages: Iterable[Message]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        if message.role != "tool" and not message.calls and not message.text.strip():
            continue
        before = merged[-1] if merged else None
        if before and _may_merge(before, message.role):
            merged[-1] = Message(
                role=message.role, text=_text_of([before, message]), calls=message.calls
            )
        else:
            merged.append(message)
    return merged


def _may_merge(before: Message, role: Role) -> bool:
    return before.role == role and role != "tool" and not before.calls
