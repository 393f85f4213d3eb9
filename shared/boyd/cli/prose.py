"""Markdown from outside on a terminal: rendered, block by block as it comes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from boyd.cli import output

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(\s|$)")
#: Characters of a line that tell what it is the beginning of.
_TELLING = 12


class Prose:
    """Markdown as rich renders it, without anything that does more than colour it.

    Links are written out, so that nobody is led elsewhere than where they say; what entities such
    as `&#8238;` become is cleaned too.
    """

    def __init__(self, text: str) -> None:
        self._text = output.clean(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.markdown import Heading, Markdown
        from rich.segment import Segment
        from rich.text import Text

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
    """How many characters of *text* are blocks that nothing which may follow can change."""
    fence = ""
    begin, at, blank = "", 0, False
    whole = 0
    for line in text.splitlines(keepends=True):
        is_sure = line.endswith("\n") or len(line) > _TELLING
        if not fence and blank and line.strip() and is_sure and not _goes_on(begin, line):
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


def _goes_on(begin: str, line: str) -> bool:
    """Whether a line after a blank one still belongs to what began with the line *begin*."""
    return line[0] == " " or bool(_ITEM.match(begin) and _ITEM.match(line))
