"""Messages to and from a model, whatever the wire format of its server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from boyd.models import JsonObject, Model
from boyd.models.investigation import (
    Finish,
    ToolCall,
    ToolObservation,
    Usage,
    call_label,
    call_number,
)

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
    shown = observation.patched({"output": output, "truncated": observation.truncated or cut})
    fields = {key: value for key, value in shown.to_wire().items() if key not in _FLAGS or value}
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
