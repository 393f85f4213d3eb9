"""Findings: the results of checks, each with its remedy."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from boyd.models import Model, Timestamp

Level = Literal["ok", "warning", "error"]


class Finding(Model):
    """The result of one check.

    Attributes:
        level: `error`: something does not work or state gets lost; `warning`: it may.
        subject: the part that was checked.
        what: the result.
        what_to_do: the remedy; empty if none is needed.
        since: since when it is so, if `text` says how long that is.
        detail: the error behind it.
    """

    level: Level
    subject: str
    what: str
    what_to_do: str = ""
    since: Timestamp | None = None
    detail: str = ""

    def text(self, now: datetime) -> str:
        """The result, and for how long it has been so."""
        lasts = f" for {span(max(0.0, (now - self.since).total_seconds()))}" if self.since else ""
        return f"{self.what}{lasts}{f': {self.detail}' if self.detail else ''}"


def ok(subject: str, message: str) -> Finding:
    """A check that passed."""
    return Finding(level="ok", subject=subject, what=message)


def warning(subject: str, message: str, what_to_do: str) -> Finding:
    """A possible problem."""
    return Finding(level="warning", subject=subject, what=message, what_to_do=what_to_do)


def error(subject: str, message: str, what_to_do: str) -> Finding:
    """A problem."""
    return Finding(level="error", subject=subject, what=message, what_to_do=what_to_do)


def span(seconds: float) -> str:
    """A number of seconds in words, as in `1.5 s`, `12 min` or `3 h`."""
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    for size, batch in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {batch}"
    return f"{seconds:.0f} s"
