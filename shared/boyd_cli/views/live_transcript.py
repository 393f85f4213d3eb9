"""A transcript on a terminal: a turn is drawn as it comes, and printed once its role is known.

Only the end tells whether a turn is the answer: that is printed below a heading; text before a
tool call is dim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.rule import Rule
from rich.spinner import Spinner
from rich.styled import Styled
from rich.text import Text

from boyd_cli import output
from boyd_cli.views.transcript import Channel, Tone, Transcript

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

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

        made = Calm(self._text, code_theme="ansi_dark", hyperlinks=False)
        for text, style, control in console.render(made, options):
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
    def paused(self) -> Iterator[None]:
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

    def withdraw(self, why: str) -> None:
        """See `Transcript`: the note tells to ignore printed reasoning."""
        self._block = ""
        gone = self._printed == "reasoning"
        what = "withdrawn, ignore the reasoning above" if gone else "withdrawn"
        self.line("note", f"! {what}: {why}")
        self.doing("waiting for the model")

    def line(self, tone: Tone, text: str) -> None:
        """See `Transcript`."""
        shown = Text(text, _STYLES[tone], no_wrap=tone == "detail", overflow="ellipsis")
        self._print("lines", shown)

    def doing(self, what: str) -> None:
        """See `Transcript`."""
        self._spinner.update(text=Text(output.one_line(what), "dim"))

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

    def _print(self, kind: str, shown: RenderableType) -> None:
        """Print for good, with a blank line between different kinds."""
        if self._printed and (kind != "lines" or self._printed != "lines"):
            self._console.print()
        self._console.print(shown)
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
