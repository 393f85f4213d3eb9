"""Scripted replies as events of either wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from boyd.models.investigation import Finish
from boyd.testing.replies import Reply, ScriptedCall

#: The names of reasons: those of OpenAI and of Anthropic.
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
    """The wire of OpenAI."""

    def __init__(self, reply: Reply, number: int, counts: bool) -> None:
        """Speak *reply*.

        Args:
            reply: what is said.
            number: of the request, so that each call has an id of its own.
            counts: whether the client has asked for the usage.
        """
        self._reply = reply
        self._number = number
        self._counts = counts

    def said(self) -> Iterator[bytes]:
        """The events of all that the model says."""
        reply = self._reply
        yield self._delta({"role": "assistant", "content": ""})
        for piece in pieces(reply.reasoning, reply.chunk):
            yield self._delta({"reasoning_content": piece})
        for piece in pieces(reply.text, reply.chunk):
            yield self._delta({"content": piece})
        for at, asked in enumerate(reply.calls):
            for fragment in self._fragments(at, asked):
                yield self._delta({"tool_calls": [fragment]})

    def reason(self) -> Iterator[bytes]:
        """The events that say why it is over, and what it cost."""
        yield self._chunk({"index": 0, "delta": {}, "finish_reason": self._finish})
        usage = self._reply.usage
        if usage and self._counts:
            sent, told = usage.input_tokens, usage.output_tokens
            counted = {"prompt_tokens": sent, "completion_tokens": told}
            yield _event({**self._head, "choices": [], "usage": counted})

    def marker(self) -> bytes:
        """The end marker."""
        return b"data: [DONE]\n\n"

    def error(self) -> bytes:
        """An error event."""
        return _event({"error": {"message": self._reply.message, "type": self._reply.error}})

    @property
    def _finish(self) -> str:
        return _REASONS[self._reply.reason][0]

    @property
    def _head(self) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self._number}", "object": "chat.completion.chunk"}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return _event({**self._head, "choices": [choice]})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._chunk({"index": 0, "delta": delta, "finish_reason": None})

    def _fragments(self, at: int, asked: ScriptedCall) -> Iterator[dict[str, Any]]:
        """A call in the pieces that servers make of it."""
        cut = self._reply.cut
        id_ = asked.id or ("call_same" if cut == "same_id" else f"call_{self._number}_{at}")
        whole = cut in ("bare", "same_id", "object", "empty")
        texts = [asked.text] if whole else ["", *pieces(asked.text, self._reply.chunk)]
        for number, text in enumerate(texts):
            is_first = number == 0
            fragment: dict[str, Any] = {"index": 0 if cut in ("same_index", "same_id") else at}
            function: dict[str, Any] = {"arguments": text}
            if is_first or cut == "repeated_name":
                fragment |= {"id": id_, "type": "function"}
                function["name"] = asked.name
            if cut == "new_ids":
                fragment["id"] = f"{id_}_{number}"
            if cut in ("no_index", "bare"):
                del fragment["index"]
            if cut in ("no_id", "bare"):
                fragment.pop("id", None)
            if cut == "object":
                function["arguments"] = asked.arguments
            if cut == "empty" and not asked.arguments:
                function["arguments"] = ""
            yield {**fragment, "function": function}


class Messages:
    """The wire of Anthropic."""

    def __init__(self, reply: Reply, number: int) -> None:
        """Speak *reply*, to the request of that number."""
        self._reply = reply
        self._number = number

    def said(self) -> Iterator[bytes]:
        """The events of all that the model says."""
        reply, at = self._reply, 0
        usage = reply.usage
        counted = {"input_tokens": usage.input_tokens, "output_tokens": 1} if usage else {}
        message = {"id": f"msg_{self._number}", "role": "assistant", "content": []}
        yield _typed("message_start", message={**message, "usage": counted})
        yield _typed("ping")
        if reply.reasoning:
            block = {"type": "thinking", "thinking": ""}
            yield from self._block(at, block, "thinking", "thinking_delta", reply.reasoning)
            at += 1
        if reply.text:
            block = {"type": "text", "text": ""}
            yield from self._block(at, block, "text", "text_delta", reply.text)
            at += 1
        for number, asked in enumerate(reply.calls):
            id_ = asked.id or f"toolu_{self._number}_{number}"
            call = {"type": "tool_use", "id": id_, "name": asked.name, "input": {}}
            text = asked.text if asked.arguments else ""
            yield from self._block(at, call, "partial_json", "input_json_delta", text)
            at += 1

    def reason(self) -> Iterator[bytes]:
        """The events that say why it is over, and what it cost."""
        usage = self._reply.usage
        counted = {"usage": {"output_tokens": usage.output_tokens}} if usage else {}
        delta = {"stop_reason": _REASONS[self._reply.reason][1]}
        yield _typed("message_delta", delta=delta, **counted)

    def marker(self) -> bytes:
        """The end marker."""
        return _typed("message_stop")

    def error(self) -> bytes:
        """An error event."""
        error = {"type": self._reply.error, "message": self._reply.message}
        return _typed("error", error=error)

    def _block(
        self, at: int, block: dict[str, Any], field: str, kind: str, text: str
    ) -> Iterator[bytes]:
        yield _typed("content_block_start", index=at, content_block=block)
        for piece in pieces(text, self._reply.chunk):
            yield _typed("content_block_delta", index=at, delta={"type": kind, field: piece})
        yield _typed("content_block_stop", index=at)


def _typed(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + _event({"type": kind, **fields})


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
