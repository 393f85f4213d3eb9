"""Characters that come in two halves, as JSON escapes allow and some servers cut them."""

from __future__ import annotations

import re

_HALVES = re.compile("[\ud800-\udfff]")


def rejoined(text: str) -> str:
    """*text* with the halves that fit put together; a lone one stays."""
    if not _HALVES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def storable(text: str) -> str:
    """*text* with halves put together, and lone ones replaced: nothing could store them."""
    return _HALVES.sub("\ufffd", rejoined(text))


def ends_in_half(text: str) -> bool:
    """Whether *text* may end in the middle of a character."""
    return "\ud800" <= text[-1:] <= "\udbff"
