"""The state of an investigation, rebuilt from its log.

The log is the only memory: any worker that reads it knows how to go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime

from boyd.errors import BoydError
from boyd.llm.messages import (
    SHOWN,
    Message,
    ToolOutcome,
    Turn,
    is_error,
    parse_arguments,
    render_observation,
)
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
    ToolStatus,
    Usage,
    Waits,
    Warned,
)


class Unreadable(BoydError):
    """The log has an entry written by a later release."""


#: Format of call ids: short, with letters and digits only.
CALL_ID = "call{:05d}"


@dataclass
class ToolCallRecord:
    """A tool call and its progress.

    Attributes:
        call: the call as the model wrote it.
        started: some worker, perhaps a lost one, started it.
        approval_id: the approval that it waits for or waited for.
        asked_at: when it began to wait, in milliseconds since the epoch.
    """

    call: ToolCall
    step: int
    started: bool = False
    approval_id: str | None = None
    asked_at: int = 0
    observation: ToolObservation | None = None

    @property
    def arguments(self) -> JsonObject | None:
        """The parsed arguments; None unless the model wrote a JSON object."""
        return parse_arguments(self.call.arguments)

    @property
    def result(self) -> ToolObservation:
        """The observation of a finished call."""
        assert self.observation is not None, "only finished calls have a result"
        return self.observation

    @property
    def outcome(self) -> ToolOutcome:
        """The outcome of a finished call."""
        status, output = self.result.status, self.result.output
        return ToolOutcome(self.call.id, status, output, is_error(status))

    def observe(self, status: ToolStatus, output: str, now: datetime) -> ToolObservation:
        """An observation of this call."""
        return ToolObservation(
            time=now,
            step=self.step,
            tool=self.call.name,
            call_id=self.call.id,
            status=status,
            total_bytes=len(output.encode()),
            output=output,
        )


@dataclass(frozen=True)
class Round:
    """A numbered turn of the model; `stripped` if it had no tools."""

    step: int
    turn: Turn
    stripped: bool


@dataclass(frozen=True)
class SentTurn:
    """The request for the last turn; `tokens` is None unless the server counted one request."""

    messages: int
    compacted: Compacted | None
    tokens: int | None


@dataclass
class Conversation:
    """The content of a log. Times are in milliseconds since the epoch, durations in milliseconds.

    Attributes:
        messages: the whole conversation.
        calls: tool calls since the last question.
        step: turns so far, over all questions.
        numbered: tool calls so far, over all questions.
        total: usage of all questions; `used`: of the last one.
        stripped: requests for turns without tools.
        rounds: turns since the last question.
        warned: warnings since the last question.
        askers: principals who have asked.
        limits: the rights of each message of one who has only some.
        tools: number of calls by tool, over all questions.
        shown: pieces of an unfinished turn were shown.
        pieces: log ids of pieces of earlier turns.
        asked_at: time of the last question.
        waited: time since then spent waiting for people.
        ended: the end of the last question.
        observations: results by call id, over all questions.
        compacted: the current compaction.
        compactions: compactions since the last turn.
        refused: characters of the shortest conversation refused as too long.
        sent: the request for the last turn.
        has_more: the model saw only a part of some result.
        concluding: the request to conclude because of a limit.
        spoke_at: time of the last entry before a turn.
        longest_turn: duration of the longest turn.
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
    limits: list[list[str]] = field(default_factory=list)
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
        """Read a log; raises `Unreadable` if a later release wrote an entry."""
        return cls().with_log(log)

    def with_log(self, log: Iterable[Logged]) -> Conversation:
        """A copy extended by *log*; raises `Unreadable` if a later release wrote an entry."""
        after = self._copy()
        for logged in log:
            if logged.entry is None:
                raise Unreadable
            if isinstance(logged.entry, Delta):
                after.pieces.append(logged.id)
            after.add(logged.entry, int(logged.id.partition("-")[0]))
        return after

    @property
    def open(self) -> list[ToolCallRecord]:
        """Calls of the last turn without a result, in the model's order."""
        return [called for called in self.calls if called.observation is None]

    @property
    def finished_calls(self) -> list[ToolCallRecord]:
        """Calls since the last question that have a result."""
        return [called for called in self.calls if called.observation is not None]

    @property
    def turns(self) -> list[Turn]:
        """Turns since the last question."""
        return [each.turn for each in self.rounds]

    def of_step(self, step: int) -> list[ToolCallRecord]:
        """The calls of one turn."""
        return [called for called in self.calls if called.step == step]

    def next_id(self, offset: int = 0) -> str:
        """The id of the call *offset* places after the next one."""
        return CALL_ID.format(self.numbered + offset + 1)

    def after(self, entries: Iterable[Entry], at: int = 0) -> Conversation:
        """A copy of the conversation with more *entries*, written at that time."""
        after = self._copy()
        for entry in entries:
            after.add(entry, at)
        return after

    def _copy(self) -> Conversation:
        after = copy(self)
        after.messages, after.rounds = [*self.messages], [*self.rounds]
        after.askers, after.pieces = [*self.askers], [*self.pieces]
        after.limits = [*self.limits]
        after.calls = [each if each.observation else copy(each) for each in self.calls]
        after.warned, after.tools = {*self.warned}, {**self.tools}
        after.observations = {**self.observations}
        return after

    def with_duration(self, entry: Entry, at: int) -> Entry:
        """Set the total duration of an end that is written at that time."""
        if not isinstance(entry, Ended):
            return entry
        seconds = self.total.seconds + max(0, at - self.asked_at) / 1000
        counters = entry.counters.patched({"seconds": round(seconds, 1)})
        return entry.patched({"counters": counters})

    def add(self, entry: Entry, at: int) -> None:
        """Add an entry written at that time."""
        self._measure(entry, at)
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
                self._add_result(entry.observation, at)
            case Steered():
                self._steer(entry)
            case Warned():
                self.warned.add(entry.what)
            case Ended():
                self._end(entry)

    def _measure(self, entry: Entry, at: int) -> None:
        if isinstance(entry, Said) and self.spoke_at and at:
            self.longest_turn = max(self.longest_turn, at - self.spoke_at)
        elif not isinstance(entry, Delta | Discarded):
            self.spoke_at = at

    def _ask(self, entry: Asked, at: int) -> None:
        self.messages.append(Message(role="user", text=entry.text))
        if entry.by and entry.by not in self.askers:
            self.askers.append(entry.by)
        if entry.rights is not None and entry.rights not in self.limits:
            self.limits.append(entry.rights)
        self.calls, self.rounds, self.warned = [], [], set()
        self.used, self.ended, self.concluding = Counters(), None, None
        self.stripped = self.waited = 0
        self.asked_at = at

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

    def _compact(self, entry: Compacted) -> None:
        self.compacted = entry
        self.compactions += 1
        self.has_more = True
        if entry.why == "full":
            self.refused = min(entry.before, self.refused or entry.before)
        self._count(entry.usage, requests=entry.requests)

    def _add_result(self, observation: ToolObservation, at: int) -> None:
        called = self._call(observation.call_id or "")
        called.observation = observation
        self.observations[called.call.id] = observation
        self.has_more = self.has_more or len(observation.output) > SHOWN
        if called.asked_at:
            self.waited += at - called.asked_at
        text, failed = render_observation(observation), is_error(observation.status)
        message = Message(role="tool", text=text, call_id=observation.call_id, failed=failed)
        self.messages.append(message)
        if observation.status != "skipped":
            self.tools[observation.tool] = self.tools.get(observation.tool, 0) + 1
            self._count(tool_calls=1, errors=int(failed))

    def _begin(self, entry: Started | Waits, at: int) -> None:
        called = self._call(entry.call_id)
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

    def _count(self, usage: Usage | None = None, **more: int) -> None:
        self.total = self.total.plus(usage or Usage(), **more)
        self.used = self.used.plus(usage or Usage(), **more)

    def _call(self, call_id: str) -> ToolCallRecord:
        return next(called for called in reversed(self.calls) if called.call.id == call_id)
