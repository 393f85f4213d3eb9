"""An investigation as its log has it: what was said, which tools were called, what is open.

Nothing is remembered elsewhere: whoever reads the log knows how to go on (T2).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

from boyd.errors import BoydError
from boyd.llm.compaction import Compaction
from boyd.llm.messages import Message, Turn
from boyd.llm.output_view import SHOWN, for_model
from boyd.llm.tool_call_parsing import parsed
from boyd.llm.tool_calls import is_error
from boyd.models import JsonObject
from boyd.models.investigation import (
    Asked,
    Compacted,
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
class ToolCallRecord:
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


@dataclass(frozen=True)
class SentTurn:
    """The conversation as it was sent for the last turn, and how many tokens that were.

    Attributes:
        messages: how many of them there were.
        compacted: how they were compacted.
        tokens: that the server has counted; None: it has not, or not for one request alone.
    """

    messages: int
    compacted: Compacted | None
    tokens: int | None


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
        observations: the results of all calls of all questions, by the ids of the calls.
        compacted: how the conversation is compacted for the model; None: not at all.
        compactions: how often it was since the last turn.
        refused: how many characters the shortest conversation had that was refused as too long.
        sent: what was sent for the last turn.
        has_more: whether the model was shown only a part of some result.
        concluding: what has asked the model to conclude because of a limit; None: nothing.
        spoke_at: when the last thing happened before a turn, in milliseconds since the epoch.
        longest_turn: milliseconds that the longest turn took.
    """

    messages: list[Message] = field(default_factory=list)
    calls: list[ToolCallRecord] = field(default_factory=list)
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
    observations: dict[str, ToolObservation] = field(default_factory=dict)
    compacted: Compacted | None = None
    compactions: int = 0
    refused: int | None = None
    sent: SentTurn | None = None
    has_more: bool = False
    concluding: Steered | None = None
    spoke_at: int = 0
    longest_turn: int = 0

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
    def open(self) -> list[ToolCallRecord]:
        """The calls of the last turn that have no result yet, in the model's order."""
        return [called for called in self.calls if called.observation is None]

    @property
    def compaction(self) -> Compaction:
        """What the model is shown of it, and how that can be made shorter."""
        return Compaction(self.messages, self.observations, self.compacted)

    @property
    def was_sent(self) -> Compaction | None:
        """What the model was shown for the last turn, if the server has counted its tokens."""
        if self.sent is None or self.sent.tokens is None:
            return None
        messages = self.messages[: self.sent.messages]
        return Compaction(messages, self.observations, self.sent.compacted)

    @property
    def turns(self) -> list[Turn]:
        """The turns since the last question."""
        return [one.turn for one in self.rounds]

    @property
    def done(self) -> list[ToolCallRecord]:
        """The calls since the last question that have a result."""
        return [called for called in self.calls if called.observation is not None]

    def of_step(self, step: int) -> list[ToolCallRecord]:
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
        after.observations = {**self.observations}
        return after

    def next_id(self, offset: int = 0) -> str:
        """What a new call is known by, *offset* calls from now."""
        return CALL_ID.format(self.numbered + offset + 1)

    def add(self, entry: Entry, at: int) -> None:
        """Take in an entry that was written *at* so many milliseconds since the epoch."""
        self._time(entry, at)
        match entry:
            case Asked():
                self._ask(entry, at)
            case Said():
                self._say(entry)
            case Compacted():
                self._compact(entry)
            case Started() | Waits():
                self._begin(entry, at)
            case Delta() | Discarded():
                self.shown = isinstance(entry, Delta)
            case Result():
                self._result(entry.observation, at)
            case Steered():
                self._steer(entry)
            case Warned():
                self.warned.add(entry.what)
            case Ended():
                self._end(entry)

    def _ask(self, entry: Asked, at: int) -> None:
        self.messages.append(Message(role="user", text=entry.text))
        if entry.by and entry.by not in self.askers:
            self.askers.append(entry.by)
        self.calls, self.rounds, self.warned = [], [], set()
        self.used, self.ended, self.concluding = Counters(), None, None
        self.stripped = self.waited = 0
        self.asked_at = at

    def _time(self, entry: Entry, at: int) -> None:
        """Measure how long turns take."""
        if isinstance(entry, Said) and self.spoke_at and at:
            self.longest_turn = max(self.longest_turn, at - self.spoke_at)
        elif not isinstance(entry, Delta | Discarded):
            self.spoke_at = at

    def _begin(self, entry: Started | Waits, at: int) -> None:
        called = self._called(entry.call_id)
        if isinstance(entry, Waits):
            called.approval_id, called.asked_at = entry.approval_id, at
        else:
            called.started = True

    def _steer(self, entry: Steered) -> None:
        self.messages.append(Message(role="steering", text=entry.text))
        self.stripped += entry.strip
        self.concluding = entry if entry.ending else self.concluding

    def _end(self, entry: Ended) -> None:
        self.ended = entry
        self._count(entry.usage, requests=entry.requests)
        self.total = self.total.patched({"seconds": entry.counters.seconds})

    def timed(self, entry: Entry, at: int) -> Entry:
        """An entry that is written *at* that time; an end tells how long it took until then."""
        if not isinstance(entry, Ended):
            return entry
        seconds = self.total.seconds + max(0, at - self.asked_at) / 1000
        counters = entry.counters.patched({"seconds": round(seconds, 1)})
        return entry.patched({"counters": counters})

    def _compact(self, entry: Compacted) -> None:
        self.compacted = entry
        self.compactions += 1
        self.has_more = True
        if entry.why == "full":
            self.refused = min(entry.before, self.refused or entry.before)
        self._count(entry.usage, requests=entry.requests)

    def _say(self, entry: Said) -> None:
        counted = entry.requests == 1 and not entry.usage.estimated
        tokens = entry.usage.input_tokens if counted else None
        self.sent = SentTurn(len(self.messages), self.compacted, tokens or None)
        self.compactions = 0
        self.messages.append(Message(role="assistant", text=entry.text, calls=entry.calls))
        self.step = entry.step
        self.shown = False
        turn = Turn(text=entry.text, calls=entry.calls, finish=entry.finish, usage=entry.usage)
        self.rounds.append(Round(entry.step, turn, self.stripped > 0))
        self.calls += [ToolCallRecord(call, entry.step) for call in entry.calls]
        self.numbered += len(entry.calls)
        self._count(entry.usage, steps=1, requests=entry.requests)

    def _result(self, observation: ToolObservation, at: int) -> None:
        called = self._called(observation.call_id or "")
        called.observation = observation
        self.observations[called.call.id] = observation
        self.has_more = self.has_more or len(observation.output) > SHOWN
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

    def _called(self, call_id: str) -> ToolCallRecord:
        return next(called for called in reversed(self.calls) if called.call.id == call_id)
