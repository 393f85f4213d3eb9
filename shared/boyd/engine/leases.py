"""Keeps what this process works on from being given to somebody else."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from boyd.errors import StoreError

log = logging.getLogger("boyd.engine")

#: Intervals without a lease after which the thread ends.
IDLE = 30


@dataclass
class _Held:
    renew: Callable[[], bool]
    until: float


class Leases:
    """Renews leases from a thread of its own, one for the process.

    Work that is done before the first renewal costs nothing. A lease is renewed for a limited time
    only: what hangs loses it.
    """

    def __init__(self, interval: float) -> None:
        """Renew every *interval* seconds, which must be well below the lease."""
        self._interval = interval
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._process = 0

    @contextmanager
    def hold(self, renew: Callable[[], bool], limit: float) -> Iterator[None]:
        """Call *renew* while the body runs, for at most *limit* seconds."""
        held = _Held(renew, time.monotonic() + limit)
        with self._lock:
            self._start()
            self._held[id(held)] = held
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(id(held), None)

    def _start(self) -> None:
        # After a fork the thread is gone and what the parent held is the parent's.
        if self._process != os.getpid():
            self._process = os.getpid()
            self._held.clear()
            threading.Thread(target=self._run, name="leases", daemon=True).start()

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(self._interval)
            with self._lock:
                held = list(self._held.items())
                idle = 0 if held else idle + 1
                if idle > IDLE:
                    self._process = 0  # the next one that holds starts a thread again
                    return
            for key, lease in held:
                if time.monotonic() > lease.until or not self._renewed(lease):
                    with self._lock:
                        self._held.pop(key, None)

    def _renewed(self, lease: _Held) -> bool:
        try:
            return lease.renew()
        except StoreError as error:
            log.warning("a lease could not be renewed: %s", error)
            return True
