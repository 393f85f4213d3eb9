"""The time in a deployment: the Redis server's clock, and the timeouts of the engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from boyd.errors import StoreError
from boyd.models import from_ms
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import milliseconds

#: Seconds between two reads of the server's clock, and to the next attempt after a failure.
RESYNC = 2.0
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

    def read(self) -> datetime:
        """The time by the server itself, whose clock may have stepped since it was last read."""
        self._resync()
        return self.now()

    def _resync(self) -> None:
        first = self._read_at == float("-inf")
        try:
            with translate_errors():
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

    def wait_ms(self, successor: str) -> int:
        """Milliseconds until the lease of a *successor* ends, or else a message is sent again."""
        return self.lease_ms if successor else self.resend_after_ms
