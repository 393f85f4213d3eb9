"""Whether a model has said anything: what is left of a text without its wrappings."""

from __future__ import annotations

import re
import string
import unicodedata

from boyd.llm.messages import Turn

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
