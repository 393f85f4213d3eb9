"""Timeouts of the engine, and the retention of ended work."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.models import Model


@dataclass(frozen=True)
class Timing:
    """The timeouts of the engine in seconds, and as milliseconds for scripts.

    See docs/configuration.md.
    """

    resend_after: float = 2.0
    lease: float = 3.0
    queue_timeout: float = 300.0
    attempts: int = 3

    @property
    def resend_after_ms(self) -> int:
        """The time after which an unanswered message counts as lost."""
        return milliseconds(self.resend_after)

    @property
    def lease_ms(self) -> int:
        """The time for which a worker holds its work without renewing it."""
        return milliseconds(self.lease)

    @property
    def queue_timeout_ms(self) -> int:
        """The time for which work waits for a worker."""
        return milliseconds(self.queue_timeout)


def milliseconds(seconds: float) -> int:
    """Convert to whole milliseconds, as scripts take times."""
    return int(seconds * 1000)


class Retention(Model):
    """The limits for pending items and for ended ones, with times in seconds.

    Without a `ttl`, items wait forever.
    """

    ttl: float | None = 3600.0
    max_age: float = 30 * 86400.0
    max_count: int = 500
    runs_max_age: float = 86400.0
    runs_max_count: int = 500
    iterations_max_age: float = 30 * 86400.0
    iterations_max_count: int = 500

    def of_items(self) -> list[int]:
        """The time in ms and the number of resolved items to keep."""
        return [milliseconds(self.max_age), self.max_count]

    def of_runs(self) -> list[int]:
        """The time in ms and the number of finished runs to keep."""
        return [milliseconds(self.runs_max_age), self.runs_max_count]

    def of_iterations(self) -> list[int]:
        """The time in ms and the number of iterations to keep."""
        return [milliseconds(self.iterations_max_age), self.iterations_max_count]

    def limits(self) -> dict[str, list[int]]:
        """All limits, as scripts take them."""
        return {
            "items": self.of_items(),
            "runs": self.of_runs(),
            "iterations": self.of_iterations(),
        }
