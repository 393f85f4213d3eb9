"""Pages of what an index holds, newest first, at a cost that does not grow with it (A14, R6)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from boyd.errors import BadCursor
from boyd.store.client import Client

#: Where a page begins: the member and score of the last one seen; empty at the beginning.
Position = tuple[str, float] | None


def read_page(
    client: Client, key: str, position: Position, limit: int, newest_first: bool = True
) -> list[tuple[str, float]]:
    """Up to *limit* members with their scores, after *position*."""
    start = 0
    if position is not None:
        member, score = position
        rank = (client.zrevrank if newest_first else client.zrank)(key, member)
        if rank is None:
            return _beyond(client, key, score, limit, newest_first)
        start = rank + 1
    read = client.zrevrange if newest_first else client.zrange
    found: list[tuple[str, float]] = read(key, start, start + limit - 1, withscores=True)
    return found


def _beyond(
    client: Client, key: str, score: float, limit: int, newest_first: bool
) -> list[tuple[str, float]]:
    """What follows a member that has left the index meanwhile."""
    read = client.zrevrangebyscore if newest_first else client.zrangebyscore
    end = "-inf" if newest_first else "+inf"
    found: list[tuple[str, float]] = read(
        key, f"({score!r}", end, start=0, num=limit, withscores=True
    )
    return found


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
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise BadCursor(f"cursor {text[:40]!r} is none that was given out") from None
    return positions


def _position(item: Any) -> Position:
    if item is None:
        return None
    member, score = item
    if not isinstance(member, str) or isinstance(score, bool):
        raise ValueError
    return member, float(score)
