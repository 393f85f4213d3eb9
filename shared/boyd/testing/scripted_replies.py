"""Scripted replies as data, and their events in either wire format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from boyd.models import JsonObject, Model
from boyd.models.investigation import Finish, Usage

#: Ways in which servers of chat completions fragment calls; Anthropic has only one.
Cut = Literal[
    "plain",
    "same_index",
    "no_index",
    "no_id",
    "bare",
    "new_ids",
    "same_id",
    "repeated_name",
    "object",
    "empty",
]

#: Ends of a stream: correct, without the end marker, without a reason or a marker, in the middle of
#: the body, with a connection reset, with an error event, or never.
End = Literal["normal", "unmarked", "unfinished", "cut", "reset", "error", "silence"]


class ScriptedCall(Model):
    """A tool call; arguments given as text are sent verbatim."""

    name: str
    arguments: JsonObject | str = Field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        """The arguments as text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


class Reply(Model):
    """One reply.

    Attributes:
        text: the answer.
        reasoning: the reasoning before it.
        calls: the tool calls.
        usage: the reported tokens; None to omit them.
        finish: the finish reason; absent: `calls` if there are calls, else `stop`.
        chunk: characters per event.
        cut: fragmentation of calls, for the OpenAI format.
        end: end of the stream.
        after: number of events before that end; absent: after the whole reply.
        error: type of the error event.
        status: HTTP status; other than 200, an error document is sent.
        retry_after: the `Retry-After` header, in seconds or as a date.
        message: the error message.
        wait: seconds before the response.
    """

    text: str = ""
    reasoning: str = ""
    calls: list[ScriptedCall] = Field(default_factory=list)
    usage: Usage | None = Usage(input_tokens=100, output_tokens=20)
    finish: Finish | None = None
    chunk: int = Field(default=8, gt=0)
    cut: Cut = "plain"
    end: End = "normal"
    after: int | None = Field(default=None, ge=0)
    error: str = "server_error"
    status: int = Field(default=200, ge=200, le=599)
    retry_after: float | str | None = None
    message: str = "scripted"
    wait: float = Field(default=0.0, ge=0)

    @property
    def reason(self) -> Finish:
        """The finish reason."""
        return self.finish or ("calls" if self.calls else "stop")


#: Finish reasons of OpenAI and Anthropic.
_REASONS: dict[Finish, tuple[str, str]] = {
    "stop": ("stop", "end_turn"),
    "calls": ("tool_calls", "tool_use"),
    "length": ("length", "max_tokens"),
    "filtered": ("content_filter", "refusal"),
}


def pieces(text: str, size: int) -> Iterator[str]:
    """*text* in pieces of at most *size* characters."""
    for at in range(0, len(text), size):
        yield text[at : at + size]


class ChatCompletions:
    """A reply in the OpenAI format."""

    def __init__(self, reply: Reply, number: int, counts: bool) -> None:
        """Encode *reply* to request *number*; report its usage if the client asked (*counts*)."""
        self._reply = reply
        self._number = number
        self._counts = counts

    def content(self) -> Iterator[bytes]:
        """The events of the content."""
        reply = self._reply
        yield self._delta({"role": "assistant", "content": ""})
        for piece in pieces(reply.reasoning, reply.chunk):
            yield self._delta({"reasoning_content": piece})
        for piece in pieces(reply.text, reply.chunk):
            yield self._delta({"content": piece})
        for at, call in enumerate(reply.calls):
            for fragment in self._fragments(at, call):
                yield self._delta({"tool_calls": [fragment]})

    def ending(self) -> Iterator[bytes]:
        """The events of the finish reason and the usage."""
        reason = _REASONS[self._reply.reason][0]
        yield self._chunk({"index": 0, "delta": {}, "finish_reason": reason})
        usage = self._reply.usage
        if usage and self._counts:
            counted = {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
            }
            yield _event({**self._head, "choices": [], "usage": counted})

    def marker(self) -> bytes:
        """The end marker."""
        return b"data: [DONE]\n\n"

    def error(self) -> bytes:
        """An error event."""
        return _event({"error": {"message": self._reply.message, "type": self._reply.error}})

    @property
    def _head(self) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self._number}", "object": "chat.completion.chunk"}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return _event({**self._head, "choices": [choice]})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._chunk({"index": 0, "delta": delta, "finish_reason": None})

    def _fragments(self, at: int, call: ScriptedCall) -> Iterator[dict[str, Any]]:
        """The fragments of a call."""
        cut = self._reply.cut
        id_ = call.id or ("call_same" if cut == "same_id" else f"call_{self._number}_{at}")
        whole = cut in ("bare", "same_id", "object", "empty")
        texts = [call.text] if whole else ["", *pieces(call.text, self._reply.chunk)]
        for number, text in enumerate(texts):
            is_first = number == 0
            fragment: dict[str, Any] = {"index": 0 if cut in ("same_index", "same_id") else at}
            function: dict[str, Any] = {"arguments": text}
            if is_first or cut == "repeated_name":
                fragment |= {"id": id_, "type": "function"}
                function["name"] = call.name
            if cut == "new_ids":
                fragment["id"] = f"{id_}_{number}"
            if cut in ("no_index", "bare"):
                del fragment["index"]
            if cut in ("no_id", "bare"):
                fragment.pop("id", None)
            if cut == "object":
                function["arguments"] = call.arguments
            if cut == "empty" and not call.arguments:
                function["arguments"] = ""
            yield {**fragment, "function": function}


class Messages:
    """A reply in the Anthropic format."""

    def __init__(self, reply: Reply, number: int) -> None:
        """Encode *reply* to request *number*."""
        self._reply = reply
        self._number = number

    def content(self) -> Iterator[bytes]:
        """The events of the content."""
        reply, usage = self._reply, self._reply.usage
        counted = {"input_tokens": usage.input_tokens, "output_tokens": 1} if usage else {}
        message = {"id": f"msg_{self._number}", "role": "assistant", "content": []}
        yield _event_of_type("message_start", message={**message, "usage": counted})
        yield _event_of_type("ping")
        blocks: list[tuple[dict[str, Any], str, str, str]] = []
        if reply.reasoning:
            block = {"type": "thinking", "thinking": ""}
            blocks.append((block, "thinking", "thinking_delta", reply.reasoning))
        if reply.text:
            blocks.append(({"type": "text", "text": ""}, "text", "text_delta", reply.text))
        for number, scripted in enumerate(reply.calls):
            id_ = scripted.id or f"toolu_{self._number}_{number}"
            call = {"type": "tool_use", "id": id_, "name": scripted.name, "input": {}}
            text = scripted.text if scripted.arguments else ""
            blocks.append((call, "partial_json", "input_json_delta", text))
        for at, (block, field, kind, text) in enumerate(blocks):
            yield _event_of_type("content_block_start", index=at, content_block=block)
            for piece in pieces(text, reply.chunk):
                yield _event_of_type(
                    "content_block_delta", index=at, delta={"type": kind, field: piece}
                )
            yield _event_of_type("content_block_stop", index=at)

    def ending(self) -> Iterator[bytes]:
        """The events of the finish reason and the usage."""
        usage = self._reply.usage
        counted = {"usage": {"output_tokens": usage.output_tokens}} if usage else {}
        delta = {"stop_reason": _REASONS[self._reply.reason][1]}
        yield _event_of_type("message_delta", delta=delta, **counted)

    def marker(self) -> bytes:
        """The end marker."""
        return _event_of_type("message_stop")

    def error(self) -> bytes:
        """An error event."""
        error = {"type": self._reply.error, "message": self._reply.message}
        return _event_of_type("error", error=error)


def _event_of_type(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + _event({"type": kind, **fields})


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
