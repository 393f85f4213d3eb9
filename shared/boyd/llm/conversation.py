"""An investigation as its log has it: what was said, which tools were called, what is open.

Nothing is remembered elsewhere: whoever reads the log knows how to go on (T2).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

from boyd.errors import BoydError
from boyd.llm.arguments import parsed
from boyd.llm.messages import Message, Turn
from boyd.llm.tooling import is_error
from boyd.llm.view import for_model
from boyd.models import JsonObject
from boyd.models.investigation import (
    Asked,
    Counters,
    Delta,
    Discarded,
    Ended,
    Entry,
    Logged,
    Result,
    Said,
    Started,
    Steered,
    ToolCall,
    ToolObservation,
    Usage,
    Waits,
    Warned,
)


class Unreadable(BoydError):
    """A later release has written what this one cannot read."""


#: What a call is known by, in messages and results: short, and of letters and digits only.
CALL_ID = "call{:05d}"


@dataclass
class Called:
    """A tool call and how far it is.

    Attributes:
        call: as the model has asked for it.
        step: in which turn.
        started: whether it was started, perhaps by a worker that was lost (T2).
        approval_id: what it waits for, or has waited for.
        asked_at: milliseconds since the epoch when it began to wait.
        observation: its one result.
    """

    call: ToolCall
    step: int
    started: bool = False
    approval_id: str | None = None
    asked_at: int = 0
    observation: ToolObservation | None = None

    @property
    def arguments(self) -> JsonObject | None:
        """What it is called with; None when the model has not written an object of JSON."""
        return parsed(self.call.arguments)


@dataclass(frozen=True)
class Round:
    """A turn of the model with its number, and whether its tools had been taken away."""

    step: int
    turn: Turn
    stripped: bool


@dataclass
class Conversation:
    """What a log says. Counters, calls and guards begin anew with each question.

    Attributes:
        messages: what the model has heard and said, in order.
        calls: the tool calls since the last question.
        step: the turns so far, of all questions.
        total: what all questions have used up; `used`: the last one.
        stripped: how many turns without tools have been asked for.
        rounds: the turns since the last question.
        warned: what was warned of, since the last question.
        askers: the principals who have said something, each once.
        tools: how often each tool was called, by all questions.
        shown: whether pieces of a turn were shown that has not come to its end.
        pieces: where in the log pieces of earlier turns lie.
        asked_at: when the last question was asked, in milliseconds since the epoch.
        waited: milliseconds since then that were spent waiting for people.
        ended: how the last question ended.
    """

    messages: list[Message] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    step: int = 0
    numbered: int = 0
    total: Counters = field(default_factory=Counters)
    used: Counters = field(default_factory=Counters)
    stripped: int = 0
    rounds: list[Round] = field(default_factory=list)
    warned: set[str] = field(default_factory=set)
    askers: list[str] = field(default_factory=list)
    tools: dict[str, int] = field(default_factory=dict)
    shown: bool = False
    pieces: list[str] = field(default_factory=list)
    asked_at: int = 0
    waited: int = 0
    ended: Ended | None = None

    @classmethod
    def of(cls, log: Iterable[Logged]) -> Conversation:
        """The conversation that *log* tells.

        Raises:
            Unreadable: an entry is of a later release.
        """
        conversation = cls()
        for logged in log:
            if logged.entry is None:
                raise Unreadable
            if isinstance(logged.entry, Delta):
                conversation.pieces.append(logged.id)
            conversation.add(logged.entry, int(logged.id.partition("-")[0]))
        return conversation

    @property
    def open(self) -> list[Called]:
        """The calls of the last turn that have no result yet, in the model's order."""
        return [called for called in self.calls if called.observation is None]

    @property
    def turns(self) -> list[Turn]:
        """The turns since the last question."""
        return [one.turn for one in self.rounds]

    @property
    def done(self) -> list[Called]:
        """The calls since the last question that have a result."""
        return [called for called in self.calls if called.observation is not None]

    def of_step(self, step: int) -> list[Called]:
        """The calls of one turn."""
        return [called for called in self.calls if called.step == step]

    def after(self, entries: Iterable[Entry], at: int = 0) -> Conversation:
        """What it is after more *entries*, written *at* that time; this one stays as it was."""
        after = self._apart()
        for entry in entries:
            after.add(entry, at)
        return after

    def _apart(self) -> Conversation:
        after = copy(self)
        after.messages, after.rounds = [*self.messages], [*self.rounds]
        after.askers, after.pieces = [*self.askers], [*self.pieces]
        after.calls = [one if one.observation else copy(one) for one in self.calls]
        after.warned, after.tools = {*self.warned}, {**self.tools}
        return after

    def next_id(self, offset: int = 0) -> str:
        """What a new call is known by, *offset* calls from now."""
        return CALL_ID.format(self.numbered + offset + 1)

    def add(self, entry: Entry, at: int) -> None:
        """Take in an entry that was written *at* so many milliseconds since the epoch."""
        match entry:
            case Asked():
                self._ask(entry, at)
            case Said():
                self._say(entry)
            case Started():
                self._called(entry.call_id).started = True
            case Delta() | Discarded():
                self.shown = isinstance(entry, Delta)
            case Waits():
                called = self._called(entry.call_id)
                called.approval_id, called.asked_at = entry.approval_id, at
            case Result():
                self._result(entry.observation, at)
            case Steered():
                self.messages.append(Message(role="steering", text=entry.text))
                self.stripped += entry.strip
            case Warned():
                self.warned.add(entry.what)
            case Ended():
                self.ended = entry
                self._count(entry.usage, requests=entry.requests)

    def _ask(self, entry: Asked, at: int) -> None:
        self.messages.append(Message(role="user", text=entry.text))
        if entry.by and entry.by not in self.askers:
            self.askers.append(entry.by)
        self.calls, self.rounds, self.warned = [], [], set()
        self.used, self.ended = Counters(), None
        self.stripped = self.waited = 0
        self.asked_at = at

    def _say(self, entry: Said) -> None:
        self.messages.append(Message(role="assistant", text=entry.text, calls=entry.calls))
        self.step = entry.step
        self.shown = False
        turn = Turn(text=entry.text, calls=entry.calls, finish=entry.finish)
        self.rounds.append(Round(entry.step, turn, self.stripped > 0))
        self.calls += [Called(call, entry.step) for call in entry.calls]
        self.numbered += len(entry.calls)
        self._count(entry.usage, steps=1, requests=entry.requests)

    def _result(self, observation: ToolObservation, at: int) -> None:
        called = self._called(observation.call_id or "")
        called.observation = observation
        if called.asked_at:
            self.waited += at - called.asked_at
        message = for_model(observation)
        failed = is_error(observation.status)
        self.messages.append(
            Message(role="tool", text=message, call_id=observation.call_id, failed=failed)
        )
        if observation.status != "skipped":
            self.tools[observation.tool] = self.tools.get(observation.tool, 0) + 1
            self._count(tool_calls=1, errors=int(failed))

    def _count(self, usage: Usage | None = None, **more: int) -> None:
        self.total = self.total.plus(usage or Usage(), **more)
        self.used = self.used.plus(usage or Usage(), **more)

    def _called(self, call_id: str) -> Called:
        return next(called for called in reversed(self.calls) if called.call.id == call_id)
