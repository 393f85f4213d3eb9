"""The words of a text, in one form for all of a word's: to search with, not to show."""

from __future__ import annotations

import re

#: Words that say nothing about what a text is about.
STOP = frozenset(
    {
        *("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "in"),
        *("is", "it", "its", "of", "on", "or", "that", "the", "this", "to", "was", "were", "with"),
    }
)
_APOSTROPHES = "'\u2019"
_WORD = re.compile(rf"[^\W_]+(?:[{_APOSTROPHES}][^\W_]+)*")
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words(text: str) -> set[str]:
    """The words of *text*: lower case, singular, `likeThis` as two, without stop words."""
    found = _WORD.findall(_BOUNDARY.sub(" ", text))
    return {stem(word) for word in found} - STOP


def stem(word: str) -> str:
    """A word in lower case and, as far as its ending tells, in the singular."""
    word = word.lower()
    if len(word) > 2 and word[-2] in _APOSTROPHES and word.endswith("s"):
        word = word[:-2]
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    return word[:-1]
