"""The words that a model may have to put in front of its final answer (seed 1, T5)."""

from __future__ import annotations

import re

from boyd.llm.substance import is_substantive, spoken

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
