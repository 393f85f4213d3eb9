"""Who counts what is asked of a model: every request, also one that came to nothing (G7)."""

from __future__ import annotations

from typing import Protocol

from boyd.models.investigation import RequestOutcome, Usage


class Meter(Protocol):
    """Counts requests as they end; it may not fail, and lose one when it cannot count it."""

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """A request has ended so, and has cost so much, as far as the server said."""
        ...


class Uncounted:
    """Counts nothing."""

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """See `Meter`."""
