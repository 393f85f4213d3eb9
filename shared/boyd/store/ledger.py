"""The ledger: every execution of an action, claimed before it starts (L32, L34)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from boyd.errors import StoreError
from boyd.models import ActionResult, Budget, ExecutionEntry, JsonObject
from boyd.store.client import Client, translated
from boyd.store.hashes import restore
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts
from boyd.store.timing import milliseconds

#: Seconds the ledger remembers an execution: longer than any message of it can come late.
KEEP = 7 * 86400.0


class StillRunning(StoreError):
    """The execution is still claimed by a worker that lives, for `seconds` unless renewed."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Stale(StoreError):
    """The act phase belongs to another worker now."""


@dataclass(frozen=True)
class Fence:
    """Where an execution comes from, as a worker entered it: while that holds, it may be claimed.

    `origin` is an iteration's number, whose act phase has an epoch, or the name of an order, which
    has an attempt.
    """

    origin: int | str
    token: int
    entered: str


@dataclass(frozen=True)
class Reply:
    """What the ledger says to a claim: `outcome` and what belongs to it."""

    outcome: str
    detail: str = ""


class Ledger:
    """The executions of one agent."""

    def __init__(
        self, client: Client, scripts: Scripts, keys: Keys, worker: str, lease: float
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._worker = worker
        self._lease = milliseconds(lease)

    def find(self, execution_id: str) -> ActionResult | None:
        """How that execution ended, if it did."""
        with translated():
            text = self._client.hget(self._keys.execution(execution_id), "result")
        return ActionResult.from_json(text) if text else None

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """The ledger's entry of that execution."""
        with translated():
            fields = self._client.hgetall(self._keys.execution(execution_id))
        if "action" not in fields:
            return None
        return restore(ExecutionEntry, {**fields, "id": execution_id})

    def knows(self, execution_id: str) -> bool:
        """Whether that execution was ever claimed."""
        with translated():
            return bool(self._client.exists(self._keys.execution(execution_id)))

    def claim(
        self,
        execution_id: str,
        token: str,
        action: str,
        params: JsonObject,
        target: str,
        idempotent: bool,
        budget: Budget | None,
        fence: Fence | None = None,
        by: str = "",
    ) -> Reply:
        """Take the right to execute once; claimed again with the same token, it stays claimed.

        *by* is who wants it, for the audit.

        Returns:
            `claimed`, `cancelled`, `frozen` and why, `over` (budget), `done` with the result as
            JSON, `unknown` and the worker that lost it, `restarted` (Redis may have forgotten an
            execution).

        Raises:
            StillRunning: another worker executes it and lives.
            Stale: the phase that it comes from was taken away.
        """
        keys = self._keys
        args = [
            *(self._worker, token, self._lease, int(idempotent)),
            *((budget.limit, milliseconds(budget.window)) if budget else ("", 0)),
            *(milliseconds(KEEP), *(_fence(fence))),
            *("id", execution_id, "action", action, "params", json.dumps(params)),
            *("target", target, "by", by),
        ]
        names = [
            *(keys.execution(execution_id), keys.budget(action, target)),
            *(keys.loop, self._origin(fence), keys.audit_open),
        ]
        outcome, *rest = self._scripts.run("claim", names, args)
        if outcome == "stale":
            raise Stale(f"execution {execution_id} belongs to another worker now")
        if outcome == "running":
            message = f"execution {execution_id} is still running on {rest[0]}"
            raise StillRunning(message, int(rest[1]) / 1000)
        return Reply(outcome, str(rest[0]) if rest else "")

    def _origin(self, fence: Fence | None) -> str:
        if fence is not None and isinstance(fence.origin, str):
            return self._keys.order(fence.origin)
        return self._keys.iteration

    def renew(self, execution_id: str, token: str) -> bool:
        """Renew a claim; False when it is lost."""
        args = [token, self._lease]
        return bool(self._scripts.run("renew_claim", [self._keys.execution(execution_id)], args))

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the outcome; False when the claim was lost meanwhile."""
        args = [token, result.state, result.to_json()]
        names = [self._keys.execution(execution_id), self._keys.audit_open]
        return bool(self._scripts.run("finish_claim", names, args))


def _fence(fence: Fence | None) -> tuple[Any, ...]:
    if fence is None:
        return ("", "", "")
    origin = fence.origin if isinstance(fence.origin, int) else "order"
    return (origin, fence.token, fence.entered)
