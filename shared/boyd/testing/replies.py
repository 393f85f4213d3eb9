"""What a scripted model replies: the shapes of a script, and functions that write them."""

from __future__ import annotations

import json
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
