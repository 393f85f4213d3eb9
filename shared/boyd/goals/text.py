"""What criteria can be split into, and texts that are cut (M7)."""

from __future__ import annotations

import re

_BETWEEN = re.compile(r",(?: ?and )?| and ", re.IGNORECASE)


def split_criteria(criteria: str) -> list[str]:
    """The parts between commas and the word "and", never inside of a word (M7)."""
    parts = (part.strip() for part in _BETWEEN.split(" ".join(criteria.split())))
    return [part for part in parts if part]


def clipped(text: str, limit: int) -> str:
    """At most *limit* characters of *text*; dots say that there was more."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
