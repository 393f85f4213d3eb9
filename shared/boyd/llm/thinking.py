"""What a model thinks aloud between `<think>` tags, told apart from what it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from boyd.llm.characters import ends_in_half, rejoined, storable
from boyd.llm.messages import ReasoningDelta, TextDelta

_OPEN = ("<think>", "<thinking>")
_CLOSE = ("</think>", "</thinking>")
_TAG = re.compile(r"(?<!`)</?think(?:ing)?>")
_LONGEST = max(map(len, (*_OPEN, *_CLOSE)))


class Thinking:
    """Tells answer from thought in a text that comes in pieces, wherever those are cut.

    Some servers put the first tag into the prompt: what comes before a closing tag alone was
    thought, too. What was told of it as text cannot be taken back, but `text` does not hold it. A
    tag behind a backtick is one that is written about.
    """

    def __init__(self) -> None:
        self._held = ""
        self._before = ""
        self._inside = False
        self._text: list[str] = []
        self._thought: list[str] = []
        #: Where in `_thought` a thought began after some answer: never closed, it is none.
        self._began: int | None = None

    def feed(self, piece: str) -> Iterator[TextDelta | ReasoningDelta]:
        """Take a piece of text; what can be told of it already."""
        waiting = rejoined(self._held + piece)
        cut = _holdback(waiting)
        self._held = waiting[cut:]
        yield from self._tell(waiting[:cut])

    def think(self, piece: str) -> Iterator[ReasoningDelta]:
        """Take a piece that the server says is thought."""
        if piece:
            thought = storable(piece)
            self._thought.append(thought)
            yield ReasoningDelta(thought)

    def end(self) -> Iterator[TextDelta | ReasoningDelta]:
        """Nothing follows: what could still have become a tag is none."""
        rest, self._held = self._held, ""
        yield from self._tell(rest)
        if self._inside and self._began is not None:
            self._text += self._thought[self._began :]
            del self._thought[self._began :]

    @property
    def text(self) -> str:
        """The answer until now."""
        return "".join(self._text)

    @property
    def thought(self) -> str:
        """The thoughts until now."""
        return "".join(self._thought)

    def _tell(self, ready: str) -> Iterator[TextDelta | ReasoningDelta]:
        ready = storable(ready)
        at = 0
        # With the character before it, a tag behind a backtick is seen across pieces.
        looked_at = self._before + ready
        shift = len(self._before)
        for tag in _TAG.finditer(looked_at, shift):
            yield from self._piece(ready[at : tag.start() - shift])
            at = tag.end() - shift
            self._switch(tag[0])
        yield from self._piece(ready[at:])
        self._before = looked_at[-1:]

    def _switch(self, tag: str) -> None:
        opens = tag in _OPEN
        if opens and not self._inside:
            self._inside = True
            has_answer = any(piece.strip() for piece in self._text)
            self._began = len(self._thought) if has_answer else None
        elif not opens and self._inside:
            self._inside = False
        elif not opens:
            self._thought += self._text
            self._text.clear()

    def _piece(self, piece: str) -> Iterator[TextDelta | ReasoningDelta]:
        if not piece:
            return
        if self._inside:
            self._thought.append(piece)
            yield ReasoningDelta(piece)
        else:
            self._text.append(piece)
            yield TextDelta(piece)


def _holdback(text: str) -> int:
    """From where on *text* may go on as a tag, or as a character of two halves."""
    start = text.rfind("<", max(0, len(text) - _LONGEST + 1))
    begun = text[start:] if start >= 0 else ""
    if begun and any(tag.startswith(begun) and tag != begun for tag in (*_OPEN, *_CLOSE)):
        return start
    return len(text) - 1 if ends_in_half(text) else len(text)
