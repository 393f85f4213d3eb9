"""Destinations: the addresses that an action may connect to."""

from __future__ import annotations

import sys
from collections.abc import Collection
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
#: The audit event of Python that tells of a refusal.
REFUSED = "boyd.destination.refused"


def refuse_destination(url: str, destinations: Collection[str] | None) -> str | None:
    """The error of a request to a *url* that is not in the list, if there is one."""
    if destinations is None:
        return None
    parts = urlsplit(url)
    name = f"{parts.hostname}:{parts.port or _PORTS.get(parts.scheme, 0)}"
    if name in destinations:
        return None
    sys.audit(REFUSED, name)
    return f"{name} is not among the destinations of the action"
