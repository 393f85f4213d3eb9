"""The ledger: every execution of an action, claimed before it starts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from boyd import naming
from boyd.errors import StoreError
from boyd.models import (
    ActionResult,
    Claim,
    ClaimOutcome,
    Compensation,
    EffectVerification,
    ExecutionEntry,
    ExecutionPage,
    ExecutionRequest,
    ExecutionTerms,
    Fence,
    JsonObject,
    from_ms,
    to_ms,
)
from boyd.store.freezes import FreezeCopy
from boyd.store.hashes import Listing, Position, Search, load_cursor, reading, restore
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, flat, milliseconds

#: Seconds to keep an execution: longer than any message about it can be delayed.
KEEP = 7 * 86400.0
#: The fields of an execution in a list.
_LISTED = (
    *("id", "state", "action", "params", "target", "by"),
    *("host", "worker", "startedAt", "endedAt"),
    *("progress", "verdict", "verifyUntil", "verifiedAt", "evidence", "checks", "compensation"),
)
#: Sorts before the name of every execution, so that a page from a time on has nothing of that time.
_BEFORE = "\0"
#: Seconds after which a heartbeat has registered a lost agent again.
HEARTBEAT = 2.0


class StillRunning(StoreError):
    """A live worker still holds the execution's claim, for `seconds` unless it renews it."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class WaitsForTurn(StillRunning):
    """Another execution of the action is in flight on the same target: `other`."""

    def __init__(self, execution_id: str, other: str, seconds: float) -> None:
        super().__init__(f"execution {execution_id} waits until {other} has ended", seconds)
        self.other = other


class HeldOut(StillRunning):
    """The case of an approved execution waits first, to learn whether it ends by itself."""


class Stale(StoreError):
    """The phase or job of the execution belongs to another worker now."""


@dataclass(frozen=True)
class ExecutionFilter:
    """A filter for executions; absent fields match anything.

    `since` and `until` bound the time of the claim.
    """

    host: str | None = None
    worker: str | None = None
    action: str | None = None
    state: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The fields to match, without the times."""
        names = ("host", "worker", "action", "state", "target")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


ANY_EXECUTION = ExecutionFilter()


class ActionLedger:
    """The ledger of one agent's executions."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, worker: str, lease: float
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._worker = worker
        self._lease = milliseconds(lease)
        self._search = Search(client, scripts, keys.executions, "execution", "action")
        self._freezes = FreezeCopy(client, scripts)

    def result(self, execution_id: str) -> ActionResult | None:
        """The result of an execution; None while it has not ended."""
        with translate_errors():
            names = ["result", "state", "action", "lost"]
            values = self._client.hmget(self._keys.execution(execution_id), names)
        with reading(f"execution {execution_id}"):
            return _result(*values)

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """The ledger's entry for an execution; `loop:12` names that of iteration 12."""
        whole = self.whole(execution_id)
        with translate_errors():
            fields = self._client.hgetall(self._keys.execution(whole))
        if "action" not in fields:
            return None
        with reading(f"execution {whole}"):
            return read_ledger_entry(whole, fields)

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        filter: ExecutionFilter = ANY_EXECUTION,
    ) -> ExecutionPage:
        """Matching executions without their results, latest claim first.

        A page may hold fewer than *limit* and still have a next cursor.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        listing = self.listing(limit, load_cursor(cursor, 1)[0], filter)
        return ExecutionPage(executions=listing.records, next_cursor=listing.next_cursor)

    def listing(
        self, limit: int, position: Position, filter: ExecutionFilter
    ) -> Listing[ExecutionEntry]:
        """The same page, from *position* on, with the place of each execution."""
        if position is None and filter.until is not None:
            position = (_BEFORE, to_ms(filter.until))
        oldest = to_ms(filter.since) if filter.since is not None else -math.inf
        page = self._search.page(limit, position, filter.fields, fields=_LISTED, oldest=oldest)
        return page.map(_read_listed)

    def whole(self, execution_id: str) -> str:
        """The full name of an execution; `loop:12` is short for that of iteration 12."""
        undoes = naming.is_rollback(execution_id)
        done = naming.parts(execution_id)[1] if undoes else execution_id
        number = naming.loop_number(done)
        if number is None:  # also for a roll-back of a roll-back, which does not exist
            return execution_id
        name = self.of_iteration(number)
        return naming.rollback(name) if undoes else name

    def of_iteration(self, number: int) -> str:
        """The name of the execution of an iteration, in flight or in history."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hmget(self._keys.iteration, "iteration", "timeline")
            pipe.hget(self._keys.past_iteration(number), "timeline")
            (current, timeline), archived = pipe.execute()
        run_timeline = timeline if current == str(number) else archived
        return naming.iteration_execution(naming.iteration(number, run_timeline or ""))

    def settle(self, execution_id: str, origin: int | str | None = None) -> ActionResult | None:
        """Return an execution's result; if its worker was lost, the outcome becomes unknown.

        Args:
            execution_id: the execution.
            origin: the iteration or job that would run it again, as in a `Fence`; it is due again
                when the claim expires. None: nothing will, so the execution is always settled.

        Returns:
            None when it has not begun, or may run again.

        Raises:
            StillRunning: its worker is alive.
        """
        keys = self._keys
        outcome, *rest = self._scripts.run(
            "settle_execution",
            execution=keys.execution(execution_id),
            origin=keys.job(origin) if isinstance(origin, str) else keys.iteration,
            anyway=origin is None,
            member={int: "phase", str: origin}.get(type(origin), ""),
        )
        if outcome == "running":
            raise _still_running(execution_id, *rest)
        return self.result(execution_id) if outcome == "over" else None

    def claim(self, execution: ExecutionRequest, token: str) -> Claim:
        """Claim the right to execute once; claiming again with the same token changes nothing.

        Raises:
            StillRunning: another live worker executes it; or Redis has lost data and the agent is
                not registered again yet.
            WaitsForTurn: another execution of the action is in flight on the target.
            HeldOut: its case waits first.
            Stale: the phase or job of its fence was taken away.
        """
        keys = self._keys
        options = {
            "lease": self._lease,
            "keep": milliseconds(KEEP),
            "agent": keys.agent_id,
            **_options(execution),
        }
        fields = flat(_fields(execution))
        where = {
            "execution": keys.execution(execution.id),
            "budget": keys.budget(execution.action, execution.target),
            "origin": self._origin(execution.fence),
        }
        reply = self._claim(where, token, options, fields)
        if reply[0] == "unconfirmed":
            registered, _ = self._freezes.compare()
            more = {} if registered else {"unregistered": True}
            reply = self._claim(where, token, options | more, fields)
        return self._read(execution.id, reply, token)

    def _claim(
        self, keys: Mapping[str, str], token: str, options: JsonObject, fields: list[Any]
    ) -> Sequence[Any]:
        reply: Sequence[Any] = self._scripts.run(
            "claim_execution",
            **keys,
            worker=self._worker,
            token=token,
            options=options,
            fields=fields,
        )
        return reply

    def forgo(self, execution_id: str, fence: Fence) -> Claim:
        """Give up an execution that must not begin now; the claim tells of an earlier attempt.

        Raises:
            StillRunning: another live worker executes it.
            Stale: the phase or job of *fence* was taken away.
        """
        reply = self._scripts.run(
            "forgo_execution",
            execution=self._keys.execution(execution_id),
            origin=self._origin(fence),
            n=fence.origin if isinstance(fence.origin, int) else "",
            attempt=fence.token,
            entered=fence.entered,
        )
        if reply[0] == "over":
            return Claim(ClaimOutcome.DONE, result=self.result(execution_id))
        return self._read(execution_id, reply)

    def _read(self, execution_id: str, reply: Sequence[Any], token: str = "") -> Claim:
        outcome, *rest = reply
        if outcome == "stale":
            raise Stale(f"execution {execution_id} belongs to another worker now")
        if outcome == "running":
            raise _still_running(execution_id, *rest)
        if outcome == "waits":
            other, wait = rest
            raise WaitsForTurn(execution_id, str(other), int(wait) / 1000)
        if outcome == "held out":
            raise HeldOut(f"the case of execution {execution_id} waits first", int(rest[0]) / 1000)
        if outcome in ("unregistered", "unconfirmed"):
            message = f"execution {execution_id} waits: Redis has lost data of its agent"
            raise StillRunning(message, HEARTBEAT)
        detail = str(rest[0]) if rest else ""
        match ClaimOutcome(outcome):
            case ClaimOutcome.CLAIMED | ClaimOutcome.OVER_BUDGET as counted:
                return Claim(counted, token, used=int(detail) if detail else None)
            case ClaimOutcome.DONE as done:
                return Claim(done, result=ActionResult.from_json(detail))
            case refused:
                return Claim(refused, detail=detail)

    def _origin(self, fence: Fence | None) -> str:
        if fence is not None and isinstance(fence.origin, str):
            return self._keys.job(fence.origin)
        return self._keys.iteration

    def renew(self, execution_id: str, token: str) -> bool:
        """Renew the lease of a claim; False when the claim is lost."""
        execution = self._keys.execution(execution_id)
        renewed = self._scripts.run(
            "renew_execution", execution=execution, token=token, lease=self._lease
        )
        return bool(renewed)

    def finish(
        self,
        execution_id: str,
        token: str,
        result: ActionResult,
        send: Callable[[str, int, str | None], None] | None = None,
    ) -> bool:
        """Record the result; False when the claim was lost.

        *send* gets the name, the attempt and the queue of the job that has waited for this end, if
        there is one; otherwise the sweeper sends it.
        """
        violation = result.violation
        recorded, *following = self._scripts.run(
            "finish_execution",
            execution=self._keys.execution(execution_id),
            token=token,
            state=result.state,
            result=result.to_json(),
            violation=f"{violation.limit}: {violation.detail}" if violation else "",
        )
        if following and send is not None:
            name, attempt, queue = following
            send(name, int(attempt), queue or None)
        return bool(recorded)


def _still_running(execution_id: str, worker: str, left: int) -> StillRunning:
    return StillRunning(f"execution {execution_id} is still running on {worker}", left / 1000)


def _read_listed(fields: Mapping[str, str]) -> ExecutionEntry:
    entry = restore(ExecutionEntry, fields)
    return entry.patched({"verification": read_verification(fields)})


def read_ledger_entry(name: str, fields: Mapping[str, str]) -> ExecutionEntry:
    """An execution from its hash."""
    entry = restore(ExecutionEntry, {**fields, "id": name})
    counting = json.loads(fields["track"]) if "track" in fields else {}
    more = {
        "result": result_of(fields),
        "verification": read_verification(fields),
        "counted_in": counting.get("class"),
        "approval_id": fields.get("approvalId") or naming.approval_in(name),
    }
    return entry.patched(more)


def read_verification(fields: Mapping[str, str]) -> EffectVerification | None:
    """The verification of an execution from its hash, if its action can be verified."""
    verdict = fields.get("verdict")
    if verdict is None:
        return None
    ended_at, compensation = fields.get("verifiedAt"), fields.get("compensation")
    return EffectVerification.model_validate(
        {
            "verdict": None if verdict == "open" else verdict,
            "evidence": fields.get("evidence") or None,
            "until": from_ms(float(fields["verifyUntil"])),
            "checks": int(fields.get("checks", 0)),
            "ended_at": from_ms(float(ended_at)) if ended_at else None,
            "compensation": Compensation.from_json(compensation) if compensation else None,
        }
    )


def result_of(fields: Mapping[str, str]) -> ActionResult | None:
    """The result of an execution from its hash; None while it has not ended."""
    return _result(*(fields.get(name) for name in ("result", "state", "action", "lost")))


def _result(
    result: str | None, state: str | None, action: str | None, lost: str | None
) -> ActionResult | None:
    """The result of an execution from its fields in the ledger."""
    if result:
        return ActionResult.from_json(result)
    if state != "unknown":
        return None
    error = f"Outcome unknown: {lost}" if lost else "Outcome unknown"
    return ActionResult(
        action=action or "unknown", success=False, error=error, duration=0.0, unknown=True
    )


def _options(execution: ExecutionRequest) -> JsonObject:
    """The terms that the script `claim_execution` checks."""
    terms, budget = execution.terms, execution.terms.budget
    options: JsonObject = {
        "idempotent": execution.idempotent,
        "held": terms.held,
        "situation": terms.situation,
        "within": terms.within,
        **_fence(execution.fence),
    }
    if budget:
        options |= {"limit": budget.limit, "window": milliseconds(budget.window)}
    if terms.read_only:
        options["read_only"] = True
    if terms.concurrency:
        options["in_flight"] = {
            name: value for name, value in asdict(terms.concurrency).items() if value is not None
        }
    if terms.ordered_at:
        options["ordered"] = to_ms(terms.ordered_at)
    if terms.decided_at:
        options["decided"] = to_ms(terms.decided_at)
    if terms.grant is not None:
        options["grant"] = terms.grant
    if terms.trial is not None:
        options["trial"] = terms.trial
    return options


def _fields(execution: ExecutionRequest) -> dict[str, str | int]:
    """The fields that the ledger stores of a claimed execution."""
    terms = execution.terms
    plans = {"verify": _verification(terms), "sandbox": _violations(terms)}
    if terms.counting is not None:
        plans["track"] = {**terms.counting, "queue": terms.queue or ""}
    kind, approval_id = naming.parts(str(execution.fence.origin if execution.fence else ""))
    return {
        "id": execution.id,
        "action": execution.action,
        "params": json.dumps(execution.params),
        "target": execution.target,
        "by": execution.by,
        "host": execution.host,
        "idempotent": int(execution.idempotent),
        "situation": terms.situation,
        **({"grant": terms.grant} if terms.grant is not None else {}),
        **({"approvalId": approval_id} if kind == "approval" else {}),
        **{name: json.dumps(plan) for name, plan in plans.items() if plan is not None},
    }


def _verification(terms: ExecutionTerms) -> JsonObject | None:
    """The verification, in milliseconds, as the end of the execution begins it."""
    plan = terms.verification
    if plan is None:
        return None
    return {
        "within": milliseconds(plan.within),
        "every": milliseconds(min(plan.every, plan.within)),
        "hold": plan.hold,
        "inFlight": plan.in_flight,
        "queue": terms.queue or "",
    }


def _violations(terms: ExecutionTerms) -> JsonObject | None:
    """The violations of the sandbox, in a window in milliseconds, that suspend the action."""
    sandbox = terms.sandbox
    if sandbox is None:
        return None
    return {
        "violations": sandbox.violations,
        "window": milliseconds(sandbox.window),
        "queue": terms.queue or "",
    }


def _fence(fence: Fence | None) -> JsonObject:
    """A fence as options of the script `claim_execution`."""
    if fence is None:
        return {}
    token = str(fence.token)
    if isinstance(fence.origin, str):
        job: JsonObject = {"job": fence.origin, "attempt": token, "entered": fence.entered}
        return {"origin": "job", **job}
    n = str(fence.origin)
    return {"origin": "iteration", "n": n, "epoch": token, "entered": fence.entered}
