"""A pool that closes connections which nobody needs any more; redis-py keeps all it ever had."""

from __future__ import annotations

import time
from typing import Any

from redis import ConnectionPool

#: Seconds without use after which a connection is closed.
IDLE = 60.0


class ClosingIdle(ConnectionPool):
    """Closes idle connections, whenever one is given back; those used last are used again first."""

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        now = time.monotonic()
        connection.released_at = now
        super().release(connection)
        with self._lock:
            for idle in self._available_connections:
                if idle.released_at > now - IDLE:
                    break
                idle.disconnect()
