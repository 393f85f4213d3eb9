"""The heartbeats of a process, and its turns at what one of several processes does for all.

A heartbeat is short while nothing changes. Every process asks for a turn as often as if it were
alone, by the way or with one small command. If the process that took turns dies, the next one to
ask takes over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from boyd.store.fleet import Fleet, WorkerInfo
from boyd.store.keys import turn
from boyd.store.server.scripts import KeyedScripts

#: The part of the interval during which a turn blocks others. Processes wait at least 0.8
#: intervals, so a single process always gets its turn; after a process dies, the next turn comes
#: within 0.75 + 1.2 intervals.
APART = 0.75
#: Seconds after which a process announces itself again, whatever it knows.
ANNOUNCE = 60.0


@dataclass(frozen=True)
class Beat:
    """The outcome of a heartbeat.

    Attributes:
        again: the agents that the process registered again.
        turn: whether it has the turn that it asked for.
    """

    again: list[str]
    turn: bool


class Turns:
    """The heartbeats of a process, and its turns among all processes that run the same agents."""

    def __init__(self, scripts: KeyedScripts, fleet: Fleet, agent_ids: Iterable[str]) -> None:
        names = " ".join(sorted(agent_ids))
        self._scripts = scripts
        self._fleet = fleet
        self._key = turn(hashlib.sha256(names.encode()).hexdigest()[:16])
        self._announced: WorkerInfo | None = None
        self._announced_at = 0.0

    def beat(self, info: WorkerInfo, every: float | None = None) -> Beat:
        """Record a heartbeat; with *every*, ask for a turn as `take` does.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: Redis answered with an error.
        """
        late = time.monotonic() > self._announced_at + ANNOUNCE
        renewed, turned = self._scripts.run(
            "renew_heartbeat",
            throttle=self._key,
            name=info.name,
            fleet="" if late or info != self._announced else self._fleet.compared,
            apart="" if every is None else _apart(every),
        )
        again = []
        if not renewed:
            again = self._fleet.beat(info)
            self._announced, self._announced_at = info, time.monotonic()
        return Beat(again, bool(turned))

    def take(self, every: float) -> bool:
        """Take a turn, one per *every* seconds for all processes; False when it is not due.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: Redis answered with an error.
        """
        return bool(self._scripts.run("pass_throttle", throttle=self._key, apart=_apart(every)))


def _apart(every: float) -> int:
    return max(1, int(every * APART * 1000))
