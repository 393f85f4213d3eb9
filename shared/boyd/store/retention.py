"""How long things wait and are kept."""

from __future__ import annotations

from boyd.models import Model
from boyd.store.timing import milliseconds


class Retention(Model):
    """How long items wait, and how much of what has ended an agent keeps.

    Times are in seconds; `ttl` None: they wait for ever.
    """

    ttl: float | None = 3600.0
    max_age: float = 30 * 86400.0
    max_count: int = 500
    runs_max_age: float = 86400.0
    runs_max_count: int = 500
    iterations_max_age: float = 30 * 86400.0
    iterations_max_count: int = 500

    def of_items(self) -> list[int]:
        """Milliseconds and number that resolved items are kept."""
        return [milliseconds(self.max_age), self.max_count]

    def of_runs(self) -> list[int]:
        """The same for finished runs."""
        return [milliseconds(self.runs_max_age), self.runs_max_count]

    def of_iterations(self) -> list[int]:
        """The same for iterations."""
        return [milliseconds(self.iterations_max_age), self.iterations_max_count]
