"""Pages of what an index holds, newest first, at a cost that does not grow with it (A14, R6)."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from typing import Any

from boyd.errors import BadCursor
from boyd.store.scripts import Scripts

#: Where a page begins: the member and score of the last one seen; empty at the beginning.
Position = tuple[str, float] | None


def read_page(
    scripts: Scripts, key: str, position: Position, limit: int, newest_first: bool = True
) -> list[tuple[str, float]]:
    """Up to *limit* members with their scores, after *position*, wherever it is by now."""
    member, score = position or ("", 0.0)
    flat = scripts.run("page", [key], [member, repr(score), limit, int(newest_first)])
    return [(name, float(text)) for name, text in zip(flat[::2], flat[1::2], strict=True)]


def dump_cursor(*positions: Position) -> str:
    """Positions as a text for a client, who gives it back as it is."""
    text = json.dumps([list(p) if p else None for p in positions], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def load_cursor(text: str | None, count: int) -> Sequence[Position]:
    """The positions of a cursor; the beginning when there is none.

    Raises:
        BadCursor: it is none of ours.
    """
    if not text:
        return [None] * count
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        positions = [_position(item) for item in found]
        if len(positions) != count:
            raise ValueError
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError):
        raise BadCursor(f"cursor {text[:40]!r} is none that was given out") from None
    return positions


def _position(item: Any) -> Position:
    if item is None:
        return None
    member, score = item
    if not isinstance(member, str) or not member or isinstance(score, bool):
        raise ValueError
    member.encode()  # half of a surrogate pair is nothing that Redis can be asked for
    if math.isnan(float(score)):
        raise ValueError
    return member, float(score)
