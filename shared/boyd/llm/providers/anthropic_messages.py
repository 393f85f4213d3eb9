"""The Messages API of Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic import SecretStr

from boyd.llm.messages import (
    CallFragment,
    Message,
    ModelRequest,
    ReasoningDelta,
    StreamEnded,
    StreamEvent,
    TextDelta,
    TurnFinished,
    UsageReport,
)
from boyd.llm.model_errors import fault_of_event
from boyd.llm.providers.wire import (
    Wire,
    common_fields,
    index,
    number,
    parse_event,
    part,
    prepare,
    text,
)
from boyd.models.investigation import Finish, Usage
from boyd.settings.model import ModelSettings

_VERSION = "2023-06-01"
_FINISHES: Mapping[str, Finish] = {
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
}
#: Tokens read from a cache or written to one count as input.
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def url(settings: ModelSettings) -> str:
    """The address of requests; `base_url` may end in `/v1`."""
    return settings.base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"


def headers(key: SecretStr | None) -> dict[str, str]:
    """The version, and the key if there is one."""
    key_header = {"x-api-key": key.get_secret_value()} if key else {}
    return {"anthropic-version": _VERSION, **key_header}


def body(settings: ModelSettings, request: ModelRequest) -> dict[str, Any]:
    """The JSON object of a request.

    Without `use_tools`, the tools are listed only if the conversation contains calls: the server
    rejects calls of unknown tools.
    """
    system, messages = prepare(request, takes_system=settings.steering == "system")
    result = {**common_fields(settings, "max_tokens"), "messages": _messages(messages)}
    if system:
        result["system"] = system
    if request.tools and (request.use_tools or any(message.calls for message in messages)):
        result["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
        if not request.use_tools:
            result["tool_choice"] = {"type": "none"}
    return result


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages, with consecutive ones of one side merged."""
    return [
        {"role": role, "content": [block for message in group for block in _blocks(message)]}
        for role, group in groupby(messages, lambda m: "user" if m.role == "tool" else m.role)
    ]


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}
        yield {**result, "is_error": True} if message.failed else result
        return
    if message.text.strip():
        yield {"type": "text", "text": message.text}
    for call in message.calls:
        arguments = json.loads(call.arguments)
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


class AnthropicDecoder:
    """Decodes the events of one answer; tracks tool-call blocks and token counts."""

    def __init__(self) -> None:
        self._calls: set[int | None] = set()
        self._counted: dict[str, int] = {}

    def decode(self, data: str) -> Iterable[StreamEvent]:
        """See `Decoder`."""
        event = parse_event(data)
        return list(self._events(text(event, "type"), event))

    def _events(self, kind: str, event: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if kind == "error":
            raise fault_of_event(event.get("error"))
        if kind == "message_start":
            yield from self._count(part(part(event, "message"), "usage"))
        elif kind == "content_block_start":
            yield from self._piece(index(event), part(event, "content_block"))
        elif kind == "content_block_delta":
            yield from self._piece(index(event), part(event, "delta"))
        elif kind == "message_delta":
            yield from self._count(part(event, "usage"))
            if reason := text(part(event, "delta"), "stop_reason"):
                yield TurnFinished(_FINISHES.get(reason, "stop"))
        elif kind == "message_stop":
            yield StreamEnded()

    def _count(self, usage: Mapping[str, Any]) -> Iterator[StreamEvent]:
        names = (*_INPUTS, "output_tokens")
        self._counted |= {name: number(usage, name) for name in names if number(usage, name)}
        if self._counted:
            sent = sum(self._counted.get(name, 0) for name in _INPUTS)
            received = self._counted.get("output_tokens", 0)
            yield UsageReport(Usage(input_tokens=sent, output_tokens=received))

    def _piece(self, at: int | None, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """The beginning of a block, or a later piece of it."""
        if text(piece, "type") == "tool_use":
            self._calls.add(at)
            id_, name = text(piece, "id") or None, text(piece, "name")
            yield CallFragment(at, id_, name, part(piece, "input"))
        elif answer := text(piece, "text"):
            yield TextDelta(answer)
        elif thought := text(piece, "thinking"):
            yield ReasoningDelta(thought)
        elif (more := text(piece, "partial_json")) and at in self._calls:
            yield CallFragment(at, arguments=more)


WIRE = Wire(url, headers, body, AnthropicDecoder)
