"""The storage budget: how much Redis keeps for each principal of what it asks for."""

from __future__ import annotations

import hashlib

from boyd.store.keys import DEPLOYMENT, Keys, storage_key
from boyd.store.server.scripts import Scripts

#: Seconds in which a used up budget is whole again: as long as calls and answers are kept.
DAY = 86_400.0


class StorageBudget:
    """The budgets of a deployment's principals, in bytes that refill steadily."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts.of(Keys(DEPLOYMENT))

    def take(self, principal: str, size: int, limit: int, refill: float = DAY) -> float:
        """Take *size* bytes of a budget of *limit*; 0, or the seconds until there is room.

        The budget refills within *refill* seconds; each such time has a budget of its own.
        """
        digest = hashlib.sha256(principal.encode()).hexdigest()[:32]
        wait = self._scripts.run(
            "take_storage",
            bucket=storage_key(f"{digest}:{refill:.0f}"),
            bytes=size,
            interval=refill * 1_000_000 / limit,
            room=limit,
        )
        return float(wait) / 1000
