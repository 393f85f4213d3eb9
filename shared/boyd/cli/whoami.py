"""Who gives a command that goes to Redis directly; the API knows it by the key."""

from __future__ import annotations

import getpass

from boyd.models import Actor


def user() -> str:
    """The user of the operating system, as a principal."""
    try:
        return "-".join(getpass.getuser().split()) or "unknown"
    except (KeyError, OSError):  # no name for this user id, as in many containers
        return "unknown"


def actor() -> Actor:
    """Who gives the command, as the audit names them."""
    return Actor(principal=f"cli:{user()}", person=True)
