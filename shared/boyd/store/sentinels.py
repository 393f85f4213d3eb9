"""Sentinels: who is the master, asked often enough to notice that it is another."""

from __future__ import annotations

import copy
import logging
import threading
import time
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from boyd.store.address import Address

log = logging.getLogger("boyd.store")

#: Seconds that a sentinel may take; the next one is asked then.
TIMEOUT = 1.0
#: Seconds between two looks whether the master is still the master.
LOOK = 1.0
#: Seconds until the next one where no sentinel has answered.
LOOK_AGAIN = 10.0


def sentinel_options(address: Address) -> dict[str, Any]:
    """How to connect to the sentinels of *address*, as redis-py takes it."""
    return {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        # Left to itself, redis-py tries a dead sentinel for seconds before it asks the next one.
        "retry": Retry(NoBackoff(), 0),
        "ssl": address.tls,
        **address.ssl_options,
        **address.sentinel_options,
    }


class Sentinels(Sentinel):
    """Sentinels that several threads may ask."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Host and port of the master.

        Each thread asks with a list of its own: redis-py moves who has answered to the front, and
        when two threads do that at once, the one that was there is forgotten for good.

        Raises:
            redis.sentinel.MasterNotFoundError: no sentinel knows one.
        """
        asked = copy.copy(self)
        asked.sentinels = list(self.sentinels)
        found: tuple[str, int] = super(Sentinels, asked).discover_master(service_name)  # type: ignore[no-untyped-call]
        self.sentinels = asked.sentinels
        return found


class Pool(SentinelConnectionPool):
    """Connections to the master.

    A master that was cut off, not killed, does not hang up when another takes its place: until it
    learns of that it takes writes that will be lost. So the pool looks once in a while, and drops
    its idle connections when the master is another.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._look_at = time.monotonic() + LOOK
        self._looking = threading.Lock()
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """A connection to the master."""
        if time.monotonic() >= self._look_at and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return super().get_connection(*args, **options)

    def _look(self) -> None:
        before = self.master_address
        try:
            found = self.get_master_address()  # type: ignore[no-untyped-call]
        except (redis.ConnectionError, redis.TimeoutError) as error:
            # What is connected may well go on without them.
            log.warning("no sentinel names a master of %s: %s", self.service_name, error)
            self._look_at = time.monotonic() + LOOK_AGAIN
            return
        self._look_at = time.monotonic() + LOOK
        if before is not None and before != found:
            log.warning("the master of %s is now %s:%s", self.service_name, *found)
