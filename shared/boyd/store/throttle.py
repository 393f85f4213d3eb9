"""A throttle for periodic tasks that any of several processes can do.

Every process asks for a turn as often as if it were alone, which costs one small command. If the
process that took turns dies, the next one to ask takes over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from boyd.store.connection import Client, translated
from boyd.store.keys import DEPLOYMENT, Keys, turn
from boyd.store.scripts import Scripts

#: The tasks: sweeping overdue work, and sealing the audit.
Kind = Literal["sweep", "seal"]

#: The part of the interval during which a turn blocks others. Processes wait at least 0.8
#: intervals, so a single process always gets its turn; after a process dies, the next turn comes
#: within 0.75 + 1.2 intervals.
APART = 0.75


class Throttle:
    """The throttle of all processes that run the same agents."""

    def __init__(self, client: Client, scripts: Scripts, agent_ids: Iterable[str]) -> None:
        names = " ".join(sorted(agent_ids))
        self._client = client
        self._scripts = scripts.of(Keys(DEPLOYMENT))
        self._digest = hashlib.sha256(names.encode()).hexdigest()[:16]

    def take(self, kind: Kind, every: float) -> bool:
        """Take a turn, one per *every* seconds for all processes; False when it is not due.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: Redis answered with an error.
        """
        apart = max(1, int(every * APART * 1000))
        throttle = turn(kind, self._digest)
        return bool(self._scripts.run("pass_throttle", throttle=throttle, apart=apart))

    def give_back(self, kind: Kind) -> None:
        """Give the next process that asks a turn at once, because there is more work."""
        with translated():
            self._client.delete(turn(kind, self._digest))
