"""Overdue work: the deadlines that have passed, taken so that one process handles each."""

from __future__ import annotations

from collections.abc import Sequence

from boyd.errors import StoreError, StoreUnavailable
from boyd.store.server.connection import pairs
from boyd.store.server.scripts import KeyedScripts, ScriptCall, Scripts
from boyd.store.timing import Timing

#: The most overdue members to take at once.
MOST_DUE = 100


class Due:
    """The overdue work of one agent."""

    def __init__(self, scripts: KeyedScripts, timing: Timing) -> None:
        self._scripts = scripts
        self._lease = timing.lease_ms
        #: True after Redis did not answer: live workers could not renew either.
        self.was_away = False

    def take(self) -> dict[str, str]:
        """Take `phase`, `batch:<number>` and names of jobs, each with a proof of taking.

        `repair` is among them when the stored state is inconsistent, and `expire` when pending
        approvals have passed their deadline.
        """
        return pairs(self._scripts.run("take_due", **self._arguments()))

    def call(self) -> ScriptCall:
        """The call of `take`, to run together with those of other agents."""
        return self._scripts.call("take_due", **self._arguments())

    def _arguments(self) -> dict[str, int]:
        return {"lease": self._lease, "most": MOST_DUE, "away": int(self.was_away)}


def take_each(scripts: Scripts, each: Sequence[Due]) -> list[dict[str, str] | StoreError]:
    """Take the overdue work of several agents in one round trip.

    `MOST_DUE` of an agent are taken at most. An error stands for work that could not be taken.
    """
    calls = [due.call() for due in each]
    for due in each:
        due.was_away = True
    replies = scripts.run_each(calls)
    for due, reply in zip(each, replies, strict=True):
        due.was_away = isinstance(reply, StoreUnavailable)
    return [reply if isinstance(reply, StoreError) else pairs(reply) for reply in replies]
