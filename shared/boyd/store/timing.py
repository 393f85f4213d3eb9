"""The clock of the Redis server: the only one that all processes of a deployment agree on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from boyd.errors import StoreError
from boyd.models import Model, from_ms
from boyd.store.connection import Client, translated

#: Seconds between two looks at it.
RESYNC = 10.0


class ServerClock:
    """The Redis server's clock, read now and then and carried on by our own monotonic one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._offset = 0.0
        self._read_at = float("-inf")

    def seconds(self) -> float:
        """Seconds since the epoch; our own wall clock's until Redis has answered once."""
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
            # As if the answer had taken no time: never ahead of the server, so no slot is early.
            read_at = time.monotonic()
            self._offset = seconds + micros / 1e6 - read_at
            self._read_at = read_at
        except StoreError:
            if first:
                self._offset = time.time() - time.monotonic()


@dataclass(frozen=True)
class Timing:
    """How patient the engine is, in seconds; see docs/configuration.md.

    Scripts take milliseconds: `resend_after_ms`, `lease_ms` and `queue_timeout_ms`.
    """

    resend_after: float = 2.0
    lease: float = 3.0
    queue_timeout: float = 300.0
    attempts: int = 3

    @property
    def resend_after_ms(self) -> int:
        """How long a message may take until it counts as lost."""
        return milliseconds(self.resend_after)

    @property
    def lease_ms(self) -> int:
        """How long a worker counts as alive that does not renew what it holds."""
        return milliseconds(self.lease)

    @property
    def queue_timeout_ms(self) -> int:
        """How long something waits for a worker that takes it."""
        return milliseconds(self.queue_timeout)


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, as scripts take times."""
    return int(seconds * 1000)


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

    def limits(self) -> dict[str, list[int]]:
        """All of them, as scripts take them."""
        return {
            "items": self.of_items(),
            "runs": self.of_runs(),
            "iterations": self.of_iterations(),
        }
