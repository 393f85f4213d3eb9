"""Scripted replies as events of either wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from boyd.models import JsonObject, Model
from boyd.models.investigation import Finish, Usage

#: How servers of chat completions cut calls into pieces; the wire of Anthropic has one way only.
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

#: How a stream ends: as it should, without the end marker, without a reason or a marker, in the
#: middle of the body, with a reset of the connection, with an error event, or not at all.
End = Literal["normal", "unmarked", "unfinished", "cut", "reset", "error", "silence"]


class ScriptedCall(Model):
    """A call of a tool; arguments as text are sent as they are, whatever they are."""

    name: str
    arguments: JsonObject | str = Field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        """The arguments as the model writes them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


class Reply(Model):
    """One answer.

    Attributes:
        text: what the model says.
        reasoning: what it thinks before.
        calls: the tools it asks for.
        usage: what the server counts; None: it does not say.
        finish: why the turn is over; absent: `calls` when there are calls, else `stop`.
        chunk: how many characters an event has.
        cut: how the calls are cut, on the wire of OpenAI.
        end: how the stream ends.
        after: after how many events it ends so; absent: after all that the model says.
        error: the kind of the error event.
        status: an answer of HTTP that is no stream, if not 200.
        retry_after: its header, in seconds or as a date.
        message: what the error says.
        wait: seconds before anything is answered.
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
        """Why the turn is over."""
        return self.finish or ("calls" if self.calls else "stop")


def say(text: str, **fields: Any) -> Reply:
    """The model answers *text*."""
    return Reply(text=text, **fields)


def call(name: str, arguments: JsonObject | str | None = None, **fields: Any) -> Reply:
    """The model asks for one tool."""
    return calls((name, {} if arguments is None else arguments), **fields)


def calls(*asked: tuple[str, JsonObject | str], **fields: Any) -> Reply:
    """The model asks for several tools at once."""
    made = [ScriptedCall(name=name, arguments=arguments) for name, arguments in asked]
    return Reply(calls=made, **fields)


def empty(**fields: Any) -> Reply:
    """The model says nothing."""
    return Reply(**fields)


def status(code: int, retry_after: float | str | None = None, **fields: Any) -> Reply:
    """The server answers with a status of HTTP and an error document."""
    return Reply(status=code, retry_after=retry_after, **fields)


def cut_after(events: int, reply: Reply | None = None) -> Reply:
    """The connection is lost after some events of *reply*."""
    return _ended(reply, end="cut", after=events)


def unfinished(reply: Reply | None = None) -> Reply:
    """The stream ends in peace after all that the model says, without a reason or a marker."""
    return _ended(reply, end="unfinished")


def error_event(kind: str = "server_error", reply: Reply | None = None) -> Reply:
    """An error of that kind comes in the stream, after all that the model says."""
    return _ended(reply, end="error", error=kind)


def hang(seconds: float, reply: Reply | None = None) -> Reply:
    """Nothing comes for some seconds, then *reply*."""
    return _ended(reply, wait=seconds)


def silence(events: int = 0, reply: Reply | None = None) -> Reply:
    """Nothing comes any more after some events of *reply*."""
    return _ended(reply, end="silence", after=events)


def length(reply: Reply) -> Reply:
    """The turn was too long: the last call, if there is one, is half of *reply*'s."""
    asked = list(reply.calls)
    if asked:
        text = asked[-1].text
        asked[-1] = asked[-1].patched({"arguments": text[: len(text) // 2]})
    return _ended(reply, finish="length", calls=asked)


def _ended(reply: Reply | None, **fields: Any) -> Reply:
    return (reply or say("this is what comes first")).model_copy(update=fields)


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
