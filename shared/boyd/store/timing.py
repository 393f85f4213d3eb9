"""Times: the Redis server's clock, which all processes share, timeouts, and retention."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from boyd.errors import StoreError
from boyd.models import Model, from_ms
from boyd.store.server.connection import Client, translated

#: Seconds between two reads of the server's clock, and to the next attempt after a failure.
RESYNC = 10.0
_AGAIN = 1.0


class ServerClock:
    """The Redis server's clock, read regularly and extrapolated by the monotonic clock."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._offset = 0.0
        self._read_at = float("-inf")

    def seconds(self) -> float:
        """Seconds since the epoch; by this machine's clock until Redis has answered once."""
        if time.monotonic() - self._read_at > RESYNC:
            self._resync()
        return time.monotonic() + self._offset

    def now(self) -> datetime:
        """The same as a time in UTC."""
        return from_ms(self.seconds() * 1000)

    def _resync(self) -> None:
        first = self._read_at == float("-inf")
        try:
            with translated():
                seconds, micros = self._client.time()
            # Ignoring the latency keeps this clock behind the server's, so no slot is early.
            read_at = time.monotonic()
            self._offset = seconds + micros / 1e6 - read_at
            self._read_at = read_at
        except StoreError:
            if first:
                self._offset = time.time() - time.monotonic()
            else:
                self._read_at = time.monotonic() - RESYNC + _AGAIN


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
