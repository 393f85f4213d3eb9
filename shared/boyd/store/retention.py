"""How long things wait and are kept."""

from __future__ import annotations

from boyd.models import Model


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
        return [int(self.max_age * 1000), self.max_count]

    def of_runs(self) -> list[int]:
        """The same for finished runs."""
        return [int(self.runs_max_age * 1000), self.runs_max_count]

    def of_iterations(self) -> list[int]:
        """The same for iterations."""
        return [int(self.iterations_max_age * 1000), self.iterations_max_count]
