"""The log of an investigation as text: turns, tool calls and results."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Self

from rich.console import Group
from rich.live import Live
from rich.rule import Rule
from rich.spinner import Spinner
from rich.styled import Styled
from rich.text import Text

from boyd.models import investigation
from boyd.text.formatting import counted, dollars
from boyd_cli import output

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


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
    def withdraw(self, reason: str) -> None:
        """Take back the pieces of a failed turn."""

    @abstractmethod
    def line(self, tone: Tone, text: str) -> None:
        """Show a line from Boyd itself."""

    @abstractmethod
    def settle(self) -> None:
        """Show everything that was held back."""

    def doing(self, activity: str) -> None:  # noqa: B027 - most have nowhere to show it
        """Show the current activity, if it can be erased again."""

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Release the terminal for the block."""
        yield

    def _discard(self, reason: str) -> None:
        """Take back a failed attempt, or only report it if nothing was shown."""
        self._failed += 1
        if self._has_pieces:
            self.withdraw(reason)
        else:
            self.settle()
            because = f": {reason}" if reason and reason != self._why else " with the same error"
            self.line("note", f"! attempt {self._failed} failed{because}")
        self._has_pieces, self._why = False, reason

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

    def _end_call(self, result: investigation.ToolObservation) -> None:
        self.settle()
        self._start_call(result.call_id or "")
        # Other lines may separate the result from its call.
        apart = result.call_id in self._waited or result.call_id not in self._started
        label = investigation.call_label(result.call_id or "")
        which = f"{label} {output.one_line(result.tool)}: " if apart else ""
        self.line(
            "ok" if result.status == "succeeded" else "note", f"  {which}{result_text(result)}"
        )
        for text in first_lines(result.output):
            self.line("detail", f"    {text}")
        self.doing("waiting for the model")

    def _end(self, end: investigation.Ended) -> None:
        repeats = end.text.strip() == self._last_turn.strip()
        is_answer = end.ending in ANSWERED
        self.heading = "Answer" if is_answer else "Conclusion" if repeats else "Findings"
        self.answer(end.text, repeats)
        self.settle()
        self._last_turn = ""
        self.line("end" if is_answer else "note", end_text(end))


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

    def withdraw(self, reason: str) -> None:
        """See `Transcript`: pieces are only reported."""
        self.settle()
        self._print(f"! withdrawn: {reason}")

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
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    if isinstance(arguments, dict):
        pairs = [
            f"{output.one_line(key)}={output.short_value(value)}"
            for key, value in arguments.items()
        ]
    else:
        pairs = [output.short_value(arguments)]
    return output.cut(" ".join([output.one_line(call.name), *pairs]), output.LINE)


def result_text(result: investigation.ToolObservation) -> str:
    """The outcome of a call in a few words."""
    parts = [
        "ok" if result.status == "succeeded" else result.status,
        f"exit code {result.exit_code}" if result.exit_code else "",
        "timed out" if result.timed_out else "",
        output.duration(result.duration) if result.duration else "",
        f"{result.total_bytes} bytes in total" if result.truncated else "",
    ]
    return ", ".join(filter(None, parts))


def first_lines(text: str) -> Iterator[str]:
    """The first lines of a tool's output, and the number of omitted ones."""
    lines = [line.rstrip() for line in output.clean(text).strip("\n").split("\n")]
    for line in lines[:_FIRST]:
        yield output.cut(line, output.LINE)
    if len(lines) > _FIRST:
        yield f"… {counted(len(lines) - _FIRST, 'more line')}"


def end_text(end: investigation.Ended) -> str:
    """The ending, and the resources used."""
    if end.ending in ANSWERED:
        return f"{end.ending}: {usage_text(end.counters)}"
    detail = f": {output.one_line(end.detail)}" if end.detail else ""
    return f"! ended by {end.ending}{detail} ({usage_text(end.counters)})"


def usage_text(counters: investigation.Counters) -> str:
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


def compaction_text(entry: investigation.Compacted) -> str:
    """The way in which the conversation was shortened for the model."""
    ranges: list[list[int]] = []
    for number in sorted({investigation.call_number(call_id) for call_id in entry.results}):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    calls = ", ".join("-".join(f"#{number}" for number in call_id) for call_id in ranges)
    subject = f"calls {calls}" if len(entry.results) > 1 else f"call {calls}"
    parts = [
        subject if entry.results else "",
        "older turns summarised" if entry.folded else "",
        f"{entry.before} → {entry.after} characters",
    ]
    return f"{_COMPACTED[entry.why]}; compacted: {', '.join(filter(None, parts))}"


def _remark(entry: investigation.Steered | investigation.Warned | investigation.Compacted) -> str:
    if isinstance(entry, investigation.Compacted):
        return f"! {compaction_text(entry)}"
    text = output.one_line(entry.text)
    if isinstance(entry, investigation.Warned):
        return f"! {text}"
    text = output.cut(text, output.LINE)
    reason = f"{entry.why}, without tools from now on" if entry.strip else entry.why
    return f"! told the model ({output.one_line(reason)}): {text}"


# A transcript on a terminal: a turn is drawn as it comes, and printed once its role is known.
#
# Only the end tells whether a turn is the answer: that is printed below a heading; text before a
# tool call is dim.

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(\s|$)")
#: Characters of a line that reveal the kind of its block.
_TELLING = 12


class Prose:
    """Markdown rendered by rich, with nothing but colours.

    Links are written out in full, and characters such as `&#8238;` are removed.
    """

    def __init__(self, text: str) -> None:
        self._text = output.clean(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.markdown import Heading, Markdown
        from rich.segment import Segment

        class LeftHeading(Heading):
            def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
                yield Text(self.text.plain, "bold underline" if self.tag == "h1" else "bold")

        class Calm(Markdown):
            elements = {**Markdown.elements, "heading_open": LeftHeading}  # noqa: RUF012 - as there

        markdown = Calm(self._text, code_theme="ansi_dark", hyperlinks=False)
        for text, style, control in console.render(markdown, options):
            if control is None:
                yield Segment(output.clean(text), style)


def whole_blocks(text: str) -> int:
    """The number of characters in blocks that later text cannot change."""
    fence = ""
    begin, at, blank = "", 0, False
    whole = 0
    for line in text.splitlines(keepends=True):
        is_sure = line.endswith("\n") or len(line) > _TELLING
        # After a blank line, an indented line or another item of a list continues the block.
        goes_on = line[0] == " " or (_ITEM.match(begin) and _ITEM.match(line))
        if not fence and blank and line.strip() and is_sure and not goes_on:
            whole, begin = at, line
        begin = begin or line
        marker = _FENCE.match(line)
        if marker and not fence:
            fence = marker[1]
        elif marker and marker[1].startswith(fence) and not line[marker.end() :].strip():
            fence = ""
        blank = not line.strip()
        at += len(line)
    return whole


_STYLES: dict[Tone, str] = {
    "call": "bold",
    "ok": "green",
    "detail": "dim",
    "note": "yellow",
    "end": "dim",
}
#: Lines of the screen that the live display leaves free.
_FREE = 4


class LiveTranscript(Transcript):
    """Draws the current turn, and prints it when the next entry arrives."""

    def __init__(self) -> None:
        super().__init__()
        self._console: Console = output.console()
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._channel: Channel = "text"
        self._block = ""
        self._printed = ""
        self.doing("waiting for the model")

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()
        self._stop()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """See `Transcript`."""
        self.settle()
        self._stop()
        try:
            yield
        finally:
            self._printed = "others"
            self._start()

    def question(self, text: str) -> None:
        """See `Transcript`."""
        self._print("question", Text(f"> {output.clean(text).strip()}", "bold"))

    def piece(self, channel: Channel, text: str) -> None:
        """See `Transcript`."""
        if channel != self._channel:
            self.settle()
        self._channel = channel
        self._block += text
        whole = whole_blocks(self._block) if channel == "reasoning" else 0
        if whole:
            self._print_block(self._block[:whole])
            self._block = self._block[whole:]
        self.doing("the model is thinking" if channel == "reasoning" else "the model is answering")

    def turn(self, text: str) -> None:
        """See `Transcript`: it is drawn until the next entry arrives."""
        if self._channel == "reasoning":
            self.settle()
        self._channel, self._block = "text", text

    def answer(self, text: str, repeats: bool) -> None:
        """See `Transcript`."""
        if repeats:
            self._block = ""
        self.settle()
        self._print("answer", Rule(self.heading, align="left", style="dim"))
        self._print("text", Prose(text))

    def withdraw(self, reason: str) -> None:
        """See `Transcript`: the note tells to ignore printed reasoning."""
        self._block = ""
        was_reasoning = self._printed == "reasoning"
        remark = "withdrawn, ignore the reasoning above" if was_reasoning else "withdrawn"
        self.line("note", f"! {remark}: {reason}")
        self.doing("waiting for the model")

    def line(self, tone: Tone, text: str) -> None:
        """See `Transcript`."""
        styled = Text(text, _STYLES[tone], no_wrap=tone == "detail", overflow="ellipsis")
        self._print("lines", styled)

    def doing(self, activity: str) -> None:
        """See `Transcript`."""
        self._spinner.update(text=Text(output.one_line(activity), "dim"))

    def settle(self) -> None:
        """See `Transcript`."""
        block, self._block = self._block, ""
        if block.strip():
            self._print_block(block)

    def _print_block(self, block: str) -> None:
        if self._channel == "text":
            self._print("aloud", Styled(Prose(block), "dim"))
        else:
            self._print("reasoning", Text(output.clean(block).strip(), "dim italic"))

    def _print(self, kind: str, renderable: RenderableType) -> None:
        """Print for good, with a blank line between different kinds."""
        if self._printed and (kind != "lines" or self._printed != "lines"):
            self._console.print()
        self._console.print(renderable)
        self._printed = kind

    def _start(self) -> None:
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> RenderableType:
        if not self._block.strip():
            return self._spinner
        size = self._console.size
        rows = max(1, size.height - _FREE)
        lines = output.clean(self._block).strip("\n").split("\n")[-rows:]
        text = "\n".join(lines)[-rows * size.width :]
        style = "dim italic" if self._channel == "reasoning" else ""
        return Group(Text(text, style), self._spinner)
