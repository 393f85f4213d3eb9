"""What the criteria of a goal are about, and the parts they can be split into (M5, M7)."""

from __future__ import annotations

import re

from boyd.words import words

#: Words that join or ask, and are nothing that can be found; `boyd.words` leaves out others.
_JOINING = frozenset(
    {
        *("all", "any", "been", "being", "but", "can", "could", "did", "does", "each", "every"),
        *("had", "her", "him", "his", "how", "into", "must", "nor", "not", "our", "out", "should"),
        *("some", "such", "than", "their", "them", "then", "there", "these", "they", "those"),
        *("what", "when", "where", "which", "while", "who", "why", "will", "would", "you", "your"),
    }
)
_TOKEN = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_BETWEEN = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)
_SHORT = 3


def tokens(text: str) -> list[str]:
    """The words of *text* as they are written, in their order."""
    return _TOKEN.findall(text)


def keywords(criteria: str) -> list[str]:
    """The words that must be found for *criteria* to be met, as `boyd.words` has them (M5).

    Each is there once, in the order of the text. What joins or asks is none, nor are words of one
    or two letters, unless they are capitals (`IP`) or nothing else is left.
    """
    telling = [word for word in tokens(criteria) if word.lower() not in _JOINING]
    long = [word for word in telling if len(word) >= _SHORT or _is_acronym(word)]
    return _stems(long) or _stems(telling)


def split_criteria(criteria: str) -> list[str]:
    """The parts between commas and the word "and", never inside of a word (M7)."""
    parts = (part.strip() for part in _BETWEEN.split(criteria))
    return [part for part in parts if part]


def clipped(text: str, limit: int) -> str:
    """At most *limit* characters of *text*; dots say that there was more."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _is_acronym(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def _stems(found: list[str]) -> list[str]:
    # A token may be two words (`likeThis`); what `words` gives is sorted: a set has no order.
    return list(dict.fromkeys(stem for word in found for stem in sorted(words(word))))
