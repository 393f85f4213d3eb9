"""The job of each peer: observe, orient, decide, act; the same functions, called in its own way.

Observers count themselves in Redis, and the last one goes on: the quickest that is written by hand.
"""

from __future__ import annotations

import os
from typing import Any

#: The Redis of messages and counts. A peer is bound to it for good.
URL = os.environ["PEER_URL"]

Seen = list[dict[str, Any]]


def observe(index: int) -> Seen:
    """See something."""
    return [{"source": f"o{index}", "type": "metric", "data": {"value": 1}}]


def orient(observations: list[Seen]) -> dict[str, Any]:
    """Understand."""
    return {"summary": f"{len(observations)} observations"}


def decide(situation: dict[str, Any]) -> dict[str, Any]:
    """Choose."""
    return {"action": "act", "situation": situation}


def act(decision: dict[str, Any]) -> list[Any]:
    """Do nothing."""
    return [decision["action"]]
