"""Investigations: conversations of a model with tools, as a log of entries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from boyd.models.base import JsonObject, Model, Timestamp, as_whole
from boyd.text.redaction import redactor

Profile = Literal["research", "general", "execution", "off"]
Category = Literal["search", "execution", "delegation"]

#: Why a turn of the model ended; `length` and `filtered` ones are not answers.
Finish = Literal["stop", "calls", "length", "filtered"]

#: How a request to a model ended: with an answer; so that it may be sent again; so that it would
#: be refused again; or given up while its answer came.
RequestOutcome = Literal["answered", "failed", "refused", "abandoned"]

#: Why an investigation ended.
Ending = Literal[
    "final_answer",
    "final_synthesis",
    "max_steps",
    "doom_loop",
    "stuck_cycle",
    "repeated_error",
    "empty_turns",
    "budget_exhausted",
    "deadline",
    "cancelled",
    "error",
]

#: What became of a tool call.
ToolStatus = Literal[
    "succeeded",
    "failed",
    "refused",
    "denied",
    "expired",
    "withdrawn",
    "interrupted",
    "skipped",
]

InvestigationStatus = Literal["running", "waiting", "ended"]

#: How many characters a question may have.
MOST_ASKED = 100_000
#: How many characters a title may have, and one that is the beginning of a question.
MOST_TITLED = 500
_TITLE = 120


class ToolCall(Model):
    """A tool that the model asks for; `arguments` is JSON text as the model wrote it."""

    id: str = Field(min_length=1)
    name: str
    arguments: str = "{}"

    @property
    def label(self) -> str:
        """The number that models and people know it by, as in `#3`."""
        return call_label(self.id)


def call_number(call_id: str) -> int:
    """The number of a call within its investigation, counted from 1; 0: its id has none."""
    digits = call_id.removeprefix("call")
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def call_label(call_id: str) -> str:
    """The same as models and people write it: `#3`."""
    return f"#{call_number(call_id)}"


def title_of(question: str) -> str:
    """The beginning of a question: its first line, or a part of it."""
    line = " ".join(question.strip().partition("\n")[0].split())
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"


class Usage(Model):
    """Tokens of one or several requests; `estimated` when the server did not say."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            estimated=self.estimated or other.estimated,
        )


class Limits(Model):
    """The limits of an investigation; times in seconds, money in the unit of the prices."""

    max_steps: int = Field(default=30, gt=0, le=1000)
    max_tool_calls: int = Field(default=100, gt=0, le=10_000)
    max_tokens: int | None = Field(default=None, gt=0)
    max_cost: float | None = Field(default=None, gt=0)
    max_seconds: float = Field(default=3600.0, gt=0)


class Wanted(Model):
    """The limits requested for one investigation; absent ones are the agent's."""

    # Bounds come first: after a validator of ours they are not in the JSON Schema.
    max_steps: Annotated[int, Field(gt=0, le=1000), BeforeValidator(as_whole)] | None = None
    max_tool_calls: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(as_whole)] | None = None
    max_tokens: Annotated[int, Field(gt=0), BeforeValidator(as_whole)] | None = None
    max_cost: float | None = Field(default=None, gt=0)
    max_seconds: float | None = Field(default=None, gt=0)


class Counters(Model):
    """The usage of an investigation so far.

    `requests` counts every attempt of every turn, `seconds` the time from each question to its end.
    """

    steps: int = 0
    requests: int = 0
    tool_calls: int = 0
    errors: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    seconds: float = 0.0

    def plus(self, usage: Usage = Usage(), **more: int) -> Counters:  # noqa: B008 - it is frozen
        """With so much more of each."""
        changes: dict[str, Any] = {name: getattr(self, name) + n for name, n in more.items()}
        return self.patched({**changes, "usage": self.usage + usage})


class ToolObservation(Model):
    """The observation of a tool call; models read it, so its wire names are as here.

    Attributes:
        schema_: the name and version of this shape.
        time: when it ended.
        step: the turn that asked for it; set by the caller that logs it.
        tool: its name, as the model knows it.
        call_id: which call it answers.
        command: of a shell tool.
        workdir: of a shell tool.
        status: its outcome.
        exit_code: of a shell tool.
        timed_out: whether its time was up.
        interactive: whether it was refused for waiting for a person.
        truncated: whether `output` is only a part.
        total_bytes: how long the whole output was.
        duration: milliseconds.
        output: its output, or the reason of a refusal or failure.
    """

    model_config = ConfigDict(alias_generator=None)

    schema_: Literal["boyd.tool_observation.v1"] = Field(
        default="boyd.tool_observation.v1", alias="schema"
    )
    time: Timestamp
    step: int | None = None
    tool: str
    call_id: str | None = None
    command: str | None = None
    workdir: str | None = None
    status: ToolStatus
    exit_code: int | None = None
    timed_out: bool = False
    interactive: bool = False
    truncated: bool = False
    total_bytes: int = 0
    duration: float = 0.0
    output: str = ""


class Asked(Model):
    """A message to the model: the question, or a follow-up; `rights` limit who wrote it."""

    kind: Literal["asked"] = "asked"
    text: str
    by: str = ""
    rights: list[str] | None = None


class Delta(Model):
    """A piece of a turn while it arrives; `Said` has the complete turn."""

    kind: Literal["delta"] = "delta"
    step: int
    channel: Literal["text", "reasoning"]
    text: str


class Discarded(Model):
    """The attempt of the last deltas failed: they are void."""

    kind: Literal["discarded"] = "discarded"
    step: int
    why: str


class Said(Model):
    """A complete turn of the model; stored before the first of its tools starts."""

    kind: Literal["said"] = "said"
    step: int
    text: str = ""
    calls: list[ToolCall] = Field(default_factory=list)
    finish: Finish = "stop"
    usage: Usage = Usage()
    requests: int = 1


class Started(Model):
    """A tool was started; without a later result its outcome is lost."""

    kind: Literal["started"] = "started"
    call_id: str


class Waits(Model):
    """A tool waits for a person."""

    kind: Literal["waits"] = "waits"
    call_id: str
    approval_id: str


class Result(Model):
    """The one result of a tool call."""

    kind: Literal["result"] = "result"
    observation: ToolObservation


class Steered(Model):
    """A message from Boyd to the model; `strip` removes its tools.

    With `ending` a limit is nearly reached: the model is asked to conclude.
    """

    kind: Literal["steered"] = "steered"
    text: str
    why: str
    strip: bool = False
    ending: Ending | None = None


class Warned(Model):
    """A warning for observers: a detected loop, or a nearly exhausted budget."""

    kind: Literal["warned"] = "warned"
    what: str
    text: str


class Compacted(Model):
    """The conversation was made shorter for the model; the log keeps all of it.

    Everything that the next request needs for that is here, so that it is the same on any worker.

    Attributes:
        why: `full`: the server refused it as too long; `cut`: it left no room for the answer;
            `near`: it would soon be too long.
        results: the ids of the calls whose results the model no longer sees.
        folded: how many of the first messages are replaced by the summary.
        summary: the text in their place.
        longest: how many characters of each remaining result are shown; None for no change.
        before: how many characters the conversation had.
        after: how many it has now.
        usage: what the request has cost that was refused.
        requests: how many were refused.
    """

    kind: Literal["compacted"] = "compacted"
    why: Literal["full", "cut", "near"]
    results: list[str] = Field(default_factory=list)
    folded: int = 0
    summary: str = ""
    longest: int | None = None
    before: int
    after: int
    usage: Usage = Usage()
    requests: int = 0


class Ended(Model):
    """The end: its reason and findings, and the usage of a failed turn."""

    kind: Literal["ended"] = "ended"
    ending: Ending
    text: str = Field(min_length=1)
    detail: str | None = None
    findings: JsonObject | None = None
    counters: Counters = Counters()
    requests: int = 0
    usage: Usage = Usage()


Entry = Annotated[
    Asked
    | Delta
    | Discarded
    | Said
    | Started
    | Waits
    | Result
    | Steered
    | Warned
    | Compacted
    | Ended,
    Field(discriminator="kind"),
]

_entry: TypeAdapter[Entry] = TypeAdapter(Entry)


def read_entry(text: str | bytes) -> Entry | None:
    """Read an entry of a log; None if this release does not know its kind."""
    try:
        return _entry.validate_json(text, extra="ignore")
    except ValidationError:
        return None


def redact_entry(entry: Entry) -> Entry:
    """Remove secrets from an entry."""
    return _entry.validate_json(json.dumps(redactor().redact_json(entry.to_wire())))


class Logged(Model):
    """An entry with its place in the log; None if this release does not know its kind."""

    id: str
    entry: Entry | None


class InvestigationRequest(Model):
    """A question to a model, its tools and limits.

    Attributes:
        question: what it is to find out.
        instructions: what it is told first, after what the agent always says.
        tools: patterns of the tools it may use.
        profile: how eager it is to come to an end; absent: as the agent says.
        limits: what it may use up; never more than the agent allows.
        answer: a JSON schema that the answer has to fit; absent: it answers in prose.
        title: what lists call it; absent: the beginning of the question.
    """

    question: str = Field(min_length=1, max_length=MOST_ASKED)
    instructions: str = Field(default="", max_length=100_000)
    tools: list[str] = Field(default_factory=lambda: ["*"])
    profile: Profile | None = None
    limits: Wanted = Wanted()
    answer: JsonObject | None = None
    title: str = Field(default="", max_length=MOST_TITLED)

    @property
    def name(self) -> str:
        """The title in lists."""
        return self.title or title_of(self.question)


class Investigation(InvestigationRequest):
    """An investigation and its state.

    Attributes:
        source: what it is for: `api`, `run`, or `plugin:<id>`.
        key: what its source knows it by.
        asked_by: the principal that asked, if one did.
        ending: why it ended.
        detail: more about that.
        text: the answer, or what was found when there is none.
        findings: the answer as `answer` has it.
        counters: what it has used up.
        used: how often each tool was called.
        reflection: what the reflection has counted.
        approval_id: what it waits for.
        cancelled_by: who wants it to end.
        version: counts its changes.
    """

    id: str
    status: InvestigationStatus = "running"
    source: str = "api"
    key: str | None = None
    asked_by: str | None = None
    created_at: Timestamp
    updated_at: Timestamp
    ended_at: Timestamp | None = None
    ending: Ending | None = None
    detail: str | None = None
    text: str | None = None
    findings: JsonObject | None = None
    counters: Counters = Counters()
    used: dict[str, int] = Field(default_factory=dict)
    reflection: JsonObject = Field(default_factory=dict)
    approval_id: str | None = None
    cancelled_by: str | None = None
    version: int = 0


class InvestigationPage(Model):
    """Investigations, newest first; `next_cursor` when there are more.

    `missing` says why archived ones are missing, if the archive does not answer.
    """

    investigations: list[Investigation]
    total: int
    next_cursor: str | None = None
    missing: str | None = None


class LogPage(Model):
    """Entries of a log, oldest first; `next_after` goes on from there when there may be more."""

    entries: list[Logged]
    next_after: str | None = None


@dataclass(frozen=True)
class ModelTotals:
    """The totals of an agent's model since the agent was created.

    Attributes:
        tokens: by model, and `input` or `output`.
        requests: by model and outcome.
        cost: by model, in the currency of its prices.
        ended: investigations by outcome.
        spoken_at: the last time when its server returned a tool call as text.
    """

    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    spoken_at: float | None = None
