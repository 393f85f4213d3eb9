"""What has passed its deadline: phases, units of observe, orders."""

from __future__ import annotations

from collections.abc import Sequence

from boyd.errors import StoreError
from boyd.store.client import pairs
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts
from boyd.store.timing import Timing

#: How much of what is due is taken at once.
MOST_DUE = 100


class Due:
    """What of one agent has passed its deadline."""

    def __init__(self, scripts: Scripts, keys: Keys, timing: Timing) -> None:
        self._scripts = scripts
        self._keys = keys
        self._lease = timing.lease_ms

    def take(self) -> dict[str, str]:
        """`phase`, `unit:<number>` and names of orders, each with a proof of taking.

        `mend` is among them when what is stored does not fit together.
        """
        return pairs(self._scripts.run("take_due", *self.call()))

    def call(self) -> tuple[list[str], list[int]]:
        """Keys and arguments of the script `take_due`."""
        names = [self._keys.due, self._keys.loop, self._keys.orders]
        return names, [self._lease, MOST_DUE]


def take_each(scripts: Scripts, each: Sequence[Due]) -> list[dict[str, str] | StoreError]:
    """What has passed its deadline, of several agents, in one round trip.

    Of one agent it is `MOST_DUE` at most: when it is as much, there may be more. An error stands
    for an agent whose work could not be taken.
    """
    replies = scripts.run_each("take_due", [due.call() for due in each])
    return [reply if isinstance(reply, StoreError) else pairs(reply) for reply in replies]
