"""The log of an investigation as text: turns, tool calls and results."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Self

from boyd.models import investigation
from boyd.text.formatting import counted, dollars
from boyd_cli import output

Channel = Literal["text", "reasoning"]
#: The style of a line.
Tone = Literal["call", "ok", "detail", "note", "end"]

#: The endings that are answers.
ANSWERED: tuple[investigation.Ending, ...] = ("final_answer", "final_synthesis")
#: Lines shown of a result.
_FIRST = 6


class Transcript(ABC):
    """Shows the entries of an investigation in order; use it in a `with` block."""

    def __init__(self) -> None:
        self._calls: dict[str, investigation.ToolCall] = {}
        self._started: set[str] = set()
        self._waited: set[str] = set()
        self._last_turn = ""
        self._has_pieces = False
        self._failed = 0
        self._why = ""
        #: The heading of the final text.
        self.heading = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()

    def show(self, entry: investigation.Entry | None) -> None:
        """Show an entry; None stands for an unknown kind."""
        match entry:
            case investigation.Asked():
                self.settle()
                self.question(entry.text)
                self._last_turn = ""
            case investigation.Delta():
                self._has_pieces = True
                self.piece(entry.channel, entry.text)
            case investigation.Discarded():
                self._discard(output.one_line(entry.why))
            case investigation.Said():
                self.turn(entry.text)
                self._last_turn = entry.text
                self._has_pieces, self._failed, self._why = False, 0, ""
                self._calls.update((call.id, call) for call in entry.calls)
            case investigation.Started():
                self._start_call(entry.call_id)
            case investigation.Waits():
                self._wait(entry)
            case investigation.Result():
                self._end_call(entry.observation)
            case investigation.Steered() | investigation.Warned() | investigation.Compacted():
                self.settle()
                self.line("note", _remark(entry))
            case investigation.Ended():
                self._end(entry)

    @abstractmethod
    def question(self, text: str) -> None:
        """Show a message to the model."""

    @abstractmethod
    def piece(self, channel: Channel, text: str) -> None:
        """Show a piece of the current turn."""

    @abstractmethod
    def turn(self, text: str) -> None:
        """Show a complete turn."""

    @abstractmethod
    def answer(self, text: str, repeats: bool) -> None:
        """Show the answer; *repeats*: it was the last turn."""

    @abstractmethod
    def withdraw(self, why: str) -> None:
        """Take back the pieces of a failed turn."""

    @abstractmethod
    def line(self, tone: Tone, text: str) -> None:
        """Show a line from Boyd itself."""

    @abstractmethod
    def settle(self) -> None:
        """Show everything that was held back."""

    def doing(self, what: str) -> None:  # noqa: B027 - most have nowhere to show it
        """Show the current activity, if it can be erased again."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Release the terminal for the block."""
        yield

    def _discard(self, why: str) -> None:
        """Take back a failed attempt, or only report it if nothing was shown."""
        self._failed += 1
        if self._has_pieces:
            self.withdraw(why)
        else:
            self.settle()
            because = f": {why}" if why and why != self._why else " with the same error"
            self.line("note", f"! attempt {self._failed} failed{because}")
        self._has_pieces, self._why = False, why

    def _start_call(self, call_id: str) -> None:
        """Show a call once; its turn may not have been shown."""
        call = self._calls.get(call_id)
        if call is not None and call_id not in self._started:
            self.settle()
            self._started.add(call_id)
            self.line("call", f"→ {call.label} {call_text(call)}")
            self.doing(f"{output.one_line(call.name)} runs")

    def _wait(self, waits: investigation.Waits) -> None:
        self.settle()
        self._waited.add(waits.call_id)
        name = output.short(waits.approval_id)
        command = f"{output.command_name()} approvals"
        self.line("note", f"  it waits for approval {name}; see it with `{command} show {name}`")
        self.line("note", f"  `{command} approve {name}` runs it, `deny` rejects it")
        self.doing(f"waits for approval {name}")

    def _end_call(self, seen: investigation.ToolObservation) -> None:
        self.settle()
        self._start_call(seen.call_id or "")
        # Other lines may separate the result from its call.
        apart = seen.call_id in self._waited or seen.call_id not in self._started
        label = investigation.call_label(seen.call_id or "")
        which = f"{label} {output.one_line(seen.tool)}: " if apart else ""
        self.line("ok" if seen.status == "succeeded" else "note", f"  {which}{result_text(seen)}")
        for text in first_lines(seen.output):
            self.line("detail", f"    {text}")
        self.doing("waiting for the model")

    def _end(self, ended: investigation.Ended) -> None:
        repeats = ended.text.strip() == self._last_turn.strip()
        is_answer = ended.ending in ANSWERED
        self.heading = "Answer" if is_answer else "Conclusion" if repeats else "Findings"
        self.answer(ended.text, repeats)
        self.settle()
        self._last_turn = ""
        self.line("end" if is_answer else "note", end_text(ended))


class PlainTranscript(Transcript):
    """Prints complete lines of plain text.

    A turn is held back until it is known whether it is the answer.
    """

    def __init__(self, print_line: Callable[[str], None], *, answers: bool = True) -> None:
        """Print with *print_line*; without *answers*, answers are omitted."""
        super().__init__()
        self._print = print_line
        self._answers = answers
        self._thought = ""
        self._held = ""

    def question(self, text: str) -> None:
        """See `Transcript`."""
        self._lines("> ", text)

    def piece(self, channel: Channel, text: str) -> None:
        """See `Transcript`."""
        if channel == "reasoning":
            self._thought += text

    def turn(self, text: str) -> None:
        """See `Transcript`."""
        self.settle()
        self._held = text

    def answer(self, text: str, repeats: bool) -> None:
        """See `Transcript`."""
        if not repeats:
            self.settle()
        self._held = text if self._answers else ""

    def withdraw(self, why: str) -> None:
        """See `Transcript`: pieces are only reported."""
        self.settle()
        self._print(f"! withdrawn: {why}")

    def line(self, tone: Tone, text: str) -> None:
        """See `Transcript`."""
        self._print(text)

    def settle(self) -> None:
        """See `Transcript`."""
        self._lines("| ", self._thought)
        self._lines("", self._held)
        self._thought = self._held = ""

    def _lines(self, mark: str, text: str) -> None:
        for line in output.clean(text).strip().split("\n") if text.strip() else []:
            self._print(f"{mark}{line.rstrip()}")


def call_text(call: investigation.ToolCall) -> str:
    """A call on one line, with shortened arguments."""
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        given = call.arguments
    if isinstance(given, dict):
        pairs = [
            f"{output.one_line(key)}={output.short_value(value)}" for key, value in given.items()
        ]
    else:
        pairs = [output.short_value(given)]
    return output.cut(" ".join([output.one_line(call.name), *pairs]), output.LINE)


def result_text(seen: investigation.ToolObservation) -> str:
    """The outcome of a call in a few words."""
    parts = [
        "ok" if seen.status == "succeeded" else seen.status,
        f"exit code {seen.exit_code}" if seen.exit_code else "",
        "timed out" if seen.timed_out else "",
        output.duration(seen.duration) if seen.duration else "",
        f"{seen.total_bytes} bytes in total" if seen.truncated else "",
    ]
    return ", ".join(filter(None, parts))


def first_lines(text: str) -> Iterator[str]:
    """The first lines of a tool's output, and the number of omitted ones."""
    lines = [line.rstrip() for line in output.clean(text).strip("\n").split("\n")]
    for line in lines[:_FIRST]:
        yield output.cut(line, output.LINE)
    if len(lines) > _FIRST:
        yield f"… {counted(len(lines) - _FIRST, 'more line')}"


def end_text(ended: investigation.Ended) -> str:
    """The ending, and the resources used."""
    if ended.ending in ANSWERED:
        return f"{ended.ending}: {used(ended.counters)}"
    why = f": {output.one_line(ended.detail)}" if ended.detail else ""
    return f"! ended by {ended.ending}{why} ({used(ended.counters)})"


def used(counters: investigation.Counters) -> str:
    """The resources used, in words."""
    usage = counters.usage
    tokens = usage.input_tokens + usage.output_tokens
    about = "about " if usage.estimated else ""
    parts = [
        counted(counters.steps, "step"),
        counted(counters.tool_calls, "tool call"),
        f"{about}{tokens} tokens" if tokens else "",
        f"cost {dollars(counters.cost)}" if counters.cost else "",
        output.seconds(counters.seconds) if counters.seconds else "",
    ]
    return ", ".join(filter(None, parts))


_COMPACTED = {
    "full": "the context was full",
    "near": "the context was nearly full",
    "cut": "no room was left for the answer",
}


def compacted_text(entry: investigation.Compacted) -> str:
    """The way in which the conversation was shortened for the model."""
    ranges: list[list[int]] = []
    for number in sorted({investigation.call_number(one) for one in entry.results}):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    calls = ", ".join("-".join(f"#{number}" for number in one) for one in ranges)
    what = f"calls {calls}" if len(entry.results) > 1 else f"call {calls}"
    parts = [
        what if entry.results else "",
        "older turns summarised" if entry.folded else "",
        f"{entry.before} → {entry.after} characters",
    ]
    return f"{_COMPACTED[entry.why]}; compacted: {', '.join(filter(None, parts))}"


def _remark(entry: investigation.Steered | investigation.Warned | investigation.Compacted) -> str:
    if isinstance(entry, investigation.Compacted):
        return f"! {compacted_text(entry)}"
    text = output.one_line(entry.text)
    if isinstance(entry, investigation.Warned):
        return f"! {text}"
    text = output.cut(text, output.LINE)
    how = f"{entry.why}, without tools from now on" if entry.strip else entry.why
    return f"! told the model ({output.one_line(how)}): {text}"
