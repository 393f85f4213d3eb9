"""Budgets: how much of what an action may do without a person is used up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from boyd.models import ActionInfo, Budget, to_ms
from boyd.store.executions import ActionLedger, ExecutionFilter
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors

#: The most executions of an action whose targets are looked at.
_RECENT = 200


@dataclass(frozen=True)
class BudgetUse:
    """Executions of an action on one target that count against its budget now."""

    action: str
    target: str
    budget: Budget
    used: int


class BudgetBook:
    """The use of one agent's budgets."""

    def __init__(self, client: Client, keys: Keys, ledger: ActionLedger) -> None:
        self._client = client
        self._keys = keys
        self._ledger = ledger

    def uses(self, actions: Iterable[ActionInfo], now: datetime) -> list[BudgetUse]:
        """The use of each action's budget, by target; *now* is the Redis server's time.

        An action that was not executed within its window has one line, without a target.
        """
        places = [
            (action.id, target, action.budget)
            for action in actions
            if action.budget is not None
            for target in self._targets(action.id, now - timedelta(seconds=action.budget.window))
        ]
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for id, target, budget in places:
                oldest = to_ms(now) - round(budget.window * 1000)
                pipe.zcount(self._keys.budget(id, target), f"({oldest}", "+inf")
            counts = pipe.execute()
        used = zip(places, counts, strict=True)
        return [BudgetUse(id, target, budget, n) for (id, target, budget), n in used]

    def _targets(self, action: str, since: datetime) -> Iterator[str]:
        recent = self._ledger.page(
            _RECENT, filter=ExecutionFilter(action=action, since=since)
        ).executions
        return iter(dict.fromkeys(entry.target for entry in recent) or [""])
