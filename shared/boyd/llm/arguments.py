"""The arguments of a tool call: JSON text as a model wrote it, complete or not."""

from __future__ import annotations

import json
from typing import Any

from boyd.models import unstorable
from boyd.values import check_values


def parsed(arguments: str) -> dict[str, Any] | None:
    """The object that *arguments* spell; None when they spell none, or one that cannot be kept."""
    try:
        check_values(arguments)
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and unstorable(value) is None else None


def sendable(arguments: str) -> str:
    """What to send back: servers refuse a conversation with arguments that are no object."""
    if parsed(arguments) is not None:
        return arguments
    return json.dumps({"unparseable": arguments}, ensure_ascii=False)
