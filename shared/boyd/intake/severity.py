"""What others call severities."""

from __future__ import annotations

from boyd.models import Severity

WORDS: dict[Severity, str] = {
    "critical": "critical crit fatal emergency emerg disaster page",
    "error": "error err major high",
    "warning": "warning warn minor medium moderate",
    "info": "info information informational notice none low debug ok normal",
}
_SEVERITIES = {word: severity for severity, words in WORDS.items() for word in words.split()}


def severity_of(word: str) -> Severity | None:
    """The severity that a word stands for in either case; None when it is not known."""
    return _SEVERITIES.get(word.strip().lower())
