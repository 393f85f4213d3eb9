"""What a model thinks aloud between `<think>` tags, told apart from what it answers."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator

from boyd.llm.messages import ReasoningDelta, TextDelta, Turn
from boyd.llm.tool_call_parsing import ends_in_half, rejoined, storable

_OPEN = ("<think>", "<thinking>")
_CLOSE = ("</think>", "</thinking>")
_TAG = re.compile(r"(?<!`)</?think(?:ing)?>")
_LONGEST = max(map(len, (*_OPEN, *_CLOSE)))


class ThinkTagParser:
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


_THINKING = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)\s*>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w+.#-]*[ \t]*$", re.MULTILINE)
#: Letters and symbols that show nothing: the fillers of Hangul and the empty cell of Braille.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800"


def is_substantive(text: str) -> bool:
    """Whether anything but reasoning, blanks, punctuation and empty code fences is in *text*."""
    return any(map(_says_something, _FENCE.sub("", spoken(text))))


def is_empty(turn: Turn) -> bool:
    """Whether a turn counts as empty: one cut short or filtered does not, that is another fault."""
    return not turn.calls and turn.finish in {"stop", "calls"} and not is_substantive(turn.text)


def spoken(text: str) -> str:
    """A text without what the model thinks in tags.

    What an unclosed tag opens is reasoning to the end. What comes before a closing tag that nothing
    opened is reasoning too: some servers put the opening one into the prompt.
    """
    said: list[str] = []
    start, thinking, opened = 0, False, False
    for tag in _THINKING.finditer(text):
        closes = tag[1] == "/"
        if not thinking and (opened or not closes):
            said.append(text[start : tag.start()])
        start, thinking, opened = tag.end(), not closes, True
    return "".join(said) if thinking else "".join([*said, text[start:]])


def _says_something(character: str) -> bool:
    if character in string.punctuation or character in _BLANK:
        return False
    return unicodedata.category(character)[0] not in "CMPZ"


#: What may stand around the marker on its line: `**Final answer:**`, `> Final answer:`.
_BEFORE, _AFTER = r"(?:(?<![*_`#> ])[*_`#> ]+)?", r"[*_`]*"


def marked(text: str, marker: str) -> str | None:
    """What *text* says behind its *marker*, in whatever case; None: none is marked.

    The marker is the first that begins a line, else the first. What the model only thinks is not
    said. A marker that nothing follows marks what stands before.
    """
    said = spoken(text)
    words = f"{_BEFORE}{re.escape(marker)}{_AFTER}"
    at_once = re.search(f"^{words}", said, re.IGNORECASE | re.MULTILINE)
    place = at_once or re.search(words, said, re.IGNORECASE)
    if place is None:
        return None
    parts = said[place.end() :], said[: place.start()]
    return next((part.strip() for part in parts if is_substantive(part)), None)
