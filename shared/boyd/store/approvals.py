"""Approvals: actions that wait for a person, in hashes with a deadline (A1-A9, A14)."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boyd.models import (
    ActionResult,
    ApprovalItem,
    ApprovalQueue,
    ApprovalStatus,
    Model,
    Proposal,
    RunResult,
    RunStatus,
    from_ms,
)
from boyd.store.client import Client, pairs, translated
from boyd.store.hashes import flatten, restore
from boyd.store.iterations import Timing
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts

#: How many items the script `purge` moves at once.
PURGED_AT_ONCE = 100


class Retention(Model):
    """How long items wait and are kept, and the runs that end with them.

    Times are in seconds; `ttl` None: they wait for ever.
    """

    ttl: float | None = 3600.0
    max_age: float = 30 * 86400.0
    max_count: int = 500
    runs_max_age: float = 86400.0
    runs_max_count: int = 500

    def of_items(self) -> list[int]:
        """Milliseconds and number that resolved items are kept."""
        return [int(self.max_age * 1000), self.max_count]

    def of_runs(self) -> list[int]:
        """The same for the runs that end with them."""
        return [int(self.runs_max_age * 1000), self.runs_max_count]


@dataclass(frozen=True)
class StuckExecution:
    """An execution to send again on *queue*, or one that *worker* was the last to lose."""

    attempt: int
    queue: str | None
    worker: str
    give_up: bool


class Approvals:
    """The approval queue of one agent."""

    def __init__(
        self, client: Client, scripts: Scripts, keys: Keys, agent_id: str, timing: Timing
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._agent_id = agent_id
        self._attempts = timing.attempts
        self._dispatch = int(timing.dispatch * 1000)
        self._lease = int(timing.lease * 1000)
        self._patience = int(timing.patience * 1000)

    def enqueue(
        self, proposal: Proposal, retention: Retention, proposed_by: str | None = None
    ) -> str:
        """Queue *proposal*, or raise `seen` on the pending item that is the same (A9); its id.

        *proposed_by* is the execution that it would be: proposed again by the same one, it is the
        same item, whatever has become of it.
        """
        keys = self._keys
        approval_id = self._id(proposed_by) if proposed_by else str(uuid.uuid4())
        fields = flatten(proposal.patched({"situation_summary": None}))
        ttl = "" if retention.ttl is None else int(retention.ttl * 1000)
        args = [
            *(approval_id, fingerprint(proposal), ttl, keys.approval_prefix),
            *(*retention.of_items(), keys.run_prefix, *retention.of_runs()),
            *(proposal.situation_summary or "", " ".join(proposal.run_ids)),
            *("agentId", self._agent_id, *fields),
        ]
        return str(self._scripts.run("propose", self._item_keys(approval_id), args))

    def proposed(self, proposed_by: str) -> str | None:
        """The item that an execution has proposed, if it has."""
        approval_id = self._id(proposed_by)
        with translated():
            fields = ["sameAs", "id"]
            same, own = self._client.hmget(self._keys.approval(approval_id), fields)
        found: str | None = same or own
        return found

    def resolve(
        self,
        approval_id: str,
        status: ApprovalStatus,
        retention: Retention,
        *,
        note: str | None = None,
        acted_by: str | None = None,
        result: ActionResult | None = None,
    ) -> ApprovalItem | None:
        """Resolve a pending item; None when it is not pending any more (A3).

        With `approved` its execution is due in the same step (A4).
        """
        keys = self._keys
        updates: dict[str, Any] = {"note": note, "actedBy": acted_by}
        flat = [item for key, value in updates.items() if value for item in (key, value)]
        if result is not None:
            flat += ["result", result.to_json()]
        args = [
            *(approval_id, status, keys.approval_prefix, *retention.of_items()),
            *(keys.run_prefix, *retention.of_runs(), self._dispatch, *flat),
        ]
        names = [*self._item_keys(approval_id), keys.due]
        if self._scripts.run("resolve", names, args) != "resolved":
            return None
        return self.get(approval_id)

    def purge(self, retention: Retention) -> list[ApprovalItem]:
        """Move what has passed its deadline to history; what expired (A2, L7)."""
        keys = self._keys
        args = [
            *(keys.approval_prefix, *retention.of_items()),
            *(keys.run_prefix, *retention.of_runs()),
        ]
        expired: list[str] = []
        while True:
            found = self._scripts.run("purge", self._item_keys("")[1:], args)
            expired += found
            if len(found) < PURGED_AT_ONCE:
                return self._read(expired)

    def enter(self, approval_id: str, attempt: int, worker: str) -> ApprovalItem | None:
        """Enter the execution of an approved item; None when it is not queued for us."""
        args = [approval_id, attempt, worker, self._lease]
        reply = self._scripts.run("enter_approval", self._execution_keys(approval_id), args)
        return _item(pairs(reply[1])) if reply[0] == "ok" else None

    def renew(self, approval_id: str, attempt: int, worker: str) -> bool:
        """Renew the lease of an execution; False when it is lost."""
        args = [approval_id, attempt, worker, self._lease, 0]
        names = self._execution_keys(approval_id)
        return bool(self._scripts.run("renew_approval", names, args))

    def put_back(self, approval_id: str, attempt: int, worker: str, seconds: float) -> bool:
        """Queue an execution again that cannot be worked on for so many *seconds*."""
        args = [approval_id, attempt, worker, int(seconds * 1000), 1]
        names = self._execution_keys(approval_id)
        return bool(self._scripts.run("renew_approval", names, args))

    def leave(
        self,
        approval_id: str,
        attempt: int,
        worker: str,
        result: ActionResult,
        runs: Sequence[tuple[str, RunStatus, RunResult]],
        retention: Retention,
    ) -> bool:
        """End an execution with its result, and the runs that waited; False when it was lost.

        An empty *worker* ends it for whoever had it.
        """
        keys = self._keys
        state = "unknown" if result.unknown else "succeeded" if result.success else "failed"
        ends = [item for run, status, what in runs for item in (run, status, what.to_json())]
        args = [
            *(approval_id, attempt, worker, state, result.to_json()),
            *(keys.run_prefix, *retention.of_runs(), retention.of_items()[0], *ends),
        ]
        names = [*(*self._execution_keys(approval_id), keys.events, keys.runs, keys.runs_finished)]
        return bool(self._scripts.run("leave_approval", names, args))

    def retry(self, approval_id: str, proof: str) -> StuckExecution | None:
        """Decide what becomes of an execution that passed its deadline; None when it moved on."""
        args = [approval_id, self._dispatch, self._attempts, self._patience, proof]
        names = self._execution_keys(approval_id)
        reply = self._scripts.run("retry_approval", names, args)
        if reply[0] == "none":
            return None
        return StuckExecution(int(reply[1]), reply[2] or None, reply[3], reply[0] == "give up")

    def get(self, approval_id: str) -> ApprovalItem | None:
        """One item."""
        found = self._read([approval_id])
        return found[0] if found else None

    def queue(self, history: int = 50) -> ApprovalQueue:
        """What waits, oldest deadline first, and the last *history* items that were resolved."""
        keys = self._keys
        with translated():
            pipe = self._client.pipeline()
            pipe.zrange(keys.approvals_pending, 0, -1)
            pipe.zrevrange(keys.approvals_history, 0, max(0, history - 1))
            pending, resolved = pipe.execute()
        waiting = [item for item in self._read(pending) if item.status == "pending"]
        return ApprovalQueue(pending=waiting, history=self._read(resolved if history else []))

    def _id(self, proposed_by: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"boyd:{self._agent_id}:{proposed_by}"))

    def _item_keys(self, approval_id: str) -> list[str]:
        keys = self._keys
        return [
            *(keys.approval(approval_id), keys.approvals_pending, keys.approvals_history),
            *(keys.approvals_fingerprints, keys.events, keys.runs, keys.runs_finished),
        ]

    def _execution_keys(self, approval_id: str) -> list[str]:
        return [self._keys.approval(approval_id), self._keys.due]

    def _read(self, ids: list[str]) -> list[ApprovalItem]:
        if not ids:
            return []
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for approval_id in ids:
                pipe.hgetall(self._keys.approval(approval_id))
            return [_item(fields) for fields in pipe.execute() if "status" in fields]


def _item(fields: Mapping[str, str]) -> ApprovalItem:
    item = restore(ApprovalItem, fields)
    if "executionState" not in fields:
        return item
    times = {
        name: from_ms(float(fields[key]))
        for name, key in (("started_at", "executionStartedAt"), ("ended_at", "executionEndedAt"))
        if key in fields
    }
    state = fields["executionState"]
    by = fields.get("executionBy", "") if state != "queued" else ""
    execution = {"state": state, "worker": by.partition("/")[0] or None, **times}
    return item.patched({"execution": execution})


def fingerprint(proposal: Proposal) -> str:
    """The digest of action id and canonical params: the same proposal has the same one."""
    canonical = json.dumps(proposal.params, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{proposal.action_id}\n{canonical}".encode()).hexdigest()
