"""How much of a tool's result had been said by earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The share of known words above which a result is stale, and how many words make it comparable.
STALE = 0.9
WORDS = 20


def is_stale(text: str, earlier: Iterable[str]) -> bool:
    """Whether nearly all that *text* says was in the *earlier* texts already."""
    new = _words(text)
    if len(new) < WORDS:
        return False
    known = new.intersection(*[set().union(*map(_words, earlier))])
    return len(known) > STALE * len(new)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
