"""What is said to a model and what it says, whatever its wire (G1, G2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from boyd.models import JsonObject, Model
from boyd.models.investigation import Finish, ToolCall, Usage

#: `steering` is what Boyd says in the middle of a conversation: a tagged message of the user,
#: unless the server takes system messages there (F9).
Role = Literal["system", "user", "assistant", "tool", "steering"]


class Message(Model):
    """One message; `calls` belong to the assistant's, `call_id` to a tool's."""

    role: Role
    text: str = ""
    calls: list[ToolCall] = Field(default_factory=list)
    call_id: str | None = None
    failed: bool = False


class ToolSpec(Model):
    """A tool as the model is told of it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: JsonObject


class ModelRequest(Model):
    """One request; without `use_tools` the model must answer, whatever tools it had (F5)."""

    messages: list[Message]
    tools: list[ToolSpec] = Field(default_factory=list)
    use_tools: bool = True


class Turn(Model):
    """A complete turn of the model; `requests` is how many attempts it took."""

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
    """A piece of what the model thinks aloud; no part of the answer."""

    text: str


@dataclass(frozen=True)
class CallFragment:
    """A piece of a tool call, as the server cut it (G4)."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | JsonObject | None = None


@dataclass(frozen=True)
class Used:
    """What the turn has cost so far; a later one replaces it."""

    usage: Usage


@dataclass(frozen=True)
class TurnFinished:
    """The server says why the turn is over."""

    reason: Finish


@dataclass(frozen=True)
class StreamEnded:
    """The end marker of the stream: nothing comes after it."""


StreamEvent = TextDelta | ReasoningDelta | CallFragment | Used | TurnFinished | StreamEnded
