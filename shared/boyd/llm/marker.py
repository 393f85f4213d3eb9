"""The words that a model may have to put in front of its final answer (seed 1, T5)."""

from __future__ import annotations

import re

from boyd.llm.substance import is_substantive, spoken


def marked(text: str, marker: str) -> str | None:
    """What *text* says behind its last *marker*, in whatever case; None: none is marked.

    What the model only thinks is not said. A marker that nothing follows marks what stands before.
    """
    said = spoken(text)
    places = list(re.finditer(re.escape(marker), said, re.IGNORECASE))
    if not places:
        return None
    parts = said[places[-1].end() :], said[: places[-1].start()]
    return next((part.strip() for part in parts if is_substantive(part)), None)
