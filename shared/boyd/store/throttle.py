"""Process heartbeats, and the throttle that elects one process for periodic work.

A heartbeat is short while nothing changes. Every process asks for the throttle as often as if it
were alone, with a heartbeat or one small command. If the process that acquired it dies, the next
one to ask takes over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from boyd.store.fleet import ALIVE, Fleet, WorkerInfo
from boyd.store.keys import throttle_key
from boyd.store.server.scripts import KeyedScripts, milliseconds

#: The part of the interval for which the throttle is closed. Processes wait at least 0.8 intervals,
#: so a single process always acquires it; after a process dies, another one does within 0.75 + 1.2
#: intervals.
CLOSED = 0.75
#: Seconds after which a process announces itself again, even if nothing has changed.
ANNOUNCE = 60.0
#: Seconds within which an answer of Redis says how much its clock differs.
_EXACT = 1.0


@dataclass(frozen=True)
class Beat:
    """The outcome of a heartbeat.

    Attributes:
        again: the agents that the process registered again.
        acquired: whether it acquired the throttle that it asked for.
        live: a digest of the live processes; empty when the process announced itself.
    """

    again: list[str]
    acquired: bool
    live: str


class Throttle:
    """The heartbeats of a process, and the throttle of all processes that run the same agents."""

    def __init__(self, scripts: KeyedScripts, fleet: Fleet, agent_ids: Iterable[str]) -> None:
        names = " ".join(sorted(agent_ids))
        self._scripts = scripts
        self._fleet = fleet
        self._key = throttle_key(hashlib.sha256(names.encode()).hexdigest()[:16])
        self._announced: WorkerInfo | None = None
        self._announced_at = 0.0
        #: Whole seconds by which the clock of Redis is ahead: what changes is announced.
        self._skew = 0.0

    def beat(self, info: WorkerInfo, every: float | None = None) -> Beat:
        """Record a heartbeat; with *every*, try to `acquire` the throttle in the same round trip.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: Redis answered with an error.
        """
        info = info.patched({"clock_skew": self._skew})
        late = time.monotonic() > self._announced_at + ANNOUNCE
        asked_at = time.time()
        renewed, acquired, live, now = self._scripts.run(
            "renew_heartbeat",
            throttle=self._key,
            name=info.name,
            fleet="" if late or info != self._announced else self._fleet.compared,
            alive=milliseconds(ALIVE),
            interval="" if every is None else _interval(every),
        )
        answered_at = time.time()
        skew = now / 1000 - (asked_at + answered_at) / 2
        # A clock that is half a second off must not be announced with every heartbeat.
        if answered_at - asked_at < _EXACT and abs(skew - self._skew) > 0.75:
            self._skew = float(round(skew))
        again = []
        if not renewed:
            again = self._fleet.beat(info)
            self._announced, self._announced_at = info, time.monotonic()
        return Beat(again, bool(acquired), live)

    def acquire(self, every: float) -> bool:
        """Acquire the throttle, which opens for one process about every *every* seconds.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: Redis answered with an error.
        """
        return bool(
            self._scripts.run("acquire_throttle", throttle=self._key, interval=_interval(every))
        )


def _interval(every: float) -> int:
    return max(1, int(every * CLOSED * 1000))
