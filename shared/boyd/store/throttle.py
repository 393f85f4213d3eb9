"""Turns: what any of several processes has to do now and then, one of them does.

Every process asks as often as if it were alone, which is one small command. So it makes no
difference who dies: the next one to ask finds that nobody has taken a turn, and takes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from boyd.store.connection import Client, translated
from boyd.store.keys import DEPLOYMENT, Keys, turn
from boyd.store.scripts import Scripts

#: Looking after what is overdue, and sealing the audit.
Kind = Literal["sweep", "seal"]

#: The part of a process's interval for which somebody else's turn counts as its own. Processes wait
#: at least four fifths, so one that is alone always takes its turn; and when one dies after it took
#: one, the next comes within 0.75 + 1.2 intervals.
APART = 0.75


class Throttle:
    """The turns of all processes that run the same agents."""

    def __init__(self, client: Client, scripts: Scripts, agent_ids: Iterable[str]) -> None:
        names = " ".join(sorted(agent_ids))
        self._client = client
        self._scripts = scripts.of(Keys(DEPLOYMENT))
        self._digest = hashlib.sha256(names.encode()).hexdigest()[:16]

    def take(self, kind: Kind, every: float) -> bool:
        """Whether it is this process's turn, which does it every so many seconds when alone.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: it answered with an error.
        """
        apart = max(1, int(every * APART * 1000))
        throttle = turn(kind, self._digest)
        return bool(self._scripts.run("pass_throttle", throttle=throttle, apart=apart))

    def give_back(self, kind: Kind) -> None:
        """Let the next one that asks take a turn at once: more has to be done than one can do."""
        with translated():
            self._client.delete(turn(kind, self._digest))
