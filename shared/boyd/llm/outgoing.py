"""A conversation as servers take it: nothing empty, nothing that only Boyd understands."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from boyd.llm.arguments import sendable
from boyd.llm.messages import Message, ModelRequest, Role
from boyd.models.investigation import ToolCall

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
