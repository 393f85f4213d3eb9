"""Leases that a background thread renews, and the ledger that holds them for its claims."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from boyd import naming
from boyd.errors import StoreError, StoreUnavailable
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import (
    ActionResult,
    Claim,
    ClaimOutcome,
    ExecutionEntry,
    ExecutionRequest,
    Fence,
    ProcedureRecord,
)
from boyd.store import AgentStore

log = logging.getLogger("boyd.runtime")

#: Bytes of a result for which there is room in what a request takes of its storage budget.
SMALL = 2048
#: How often Redis keeps a result: in the ledger, and with the call or approval.
COPIES = 2

#: Intervals without a lease after which the thread ends.
IDLE = 30
#: Seconds until leases are renewed again if Redis did not answer: they are to hold before the
#: sweeper looks that could not reach it either.
SOON = 0.1


@dataclass
class _Lease:
    renew: Callable[[], bool]
    until: float


class Leases:
    """Renews leases from one background thread per process.

    Each lease is renewed for a limited time only, so that work that hangs loses it.
    """

    def __init__(self, interval: float) -> None:
        """Renew every *interval* seconds, well below the duration of a lease."""
        self._interval = interval
        self._leases: dict[int, _Lease] = {}
        self._lock = threading.Lock()
        self._process = 0
        self._fails = False

    @contextmanager
    def renewing(self, renew: Callable[[], bool], limit: float) -> Iterator[None]:
        """Call *renew* while the body runs, for at most *limit* seconds."""
        lease = _Lease(renew, time.monotonic() + limit)
        with self._lock:
            self._start()
            self._leases[id(lease)] = lease
        try:
            yield
        finally:
            with self._lock:
                self._leases.pop(id(lease), None)

    def _start(self) -> None:
        # After a fork there is no thread, and the leases belong to the parent.
        if self._process != os.getpid():
            self._process = os.getpid()
            self._leases.clear()
            threading.Thread(target=self._run, name="leases", daemon=True).start()

    def _run(self) -> None:
        idle = 0
        while True:
            failed, self._fails = self._fails, False
            time.sleep(min(SOON, self._interval) if failed else self._interval)
            with self._lock:
                leases = list(self._leases.items())
                idle = 0 if leases else idle + 1
                if idle > IDLE:
                    self._process = 0  # `renewing` starts a thread again
                    return
            for key, lease in leases:
                if time.monotonic() > lease.until or not self._renew(lease, failed):
                    with self._lock:
                        self._leases.pop(key, None)

    def _renew(self, lease: _Lease, again: bool) -> bool:
        try:
            return lease.renew()
        except Exception as error:  # noqa: BLE001 - if the thread ended, no lease would be renewed
            self._fails = True
            if not again:
                log.warning("a lease could not be renewed: %s", error or type(error).__name__)
            return True


#: Seconds beyond an action's time limit for which its claim is still renewed.
GRACE = 10.0
#: Seconds after another worker's claim lapses until the step is tried again.
PUT_BACK_MARGIN = 1.0
#: Seconds between attempts to reach Redis about a claim.
PAUSES = (0.1, 0.5, 1.0, 2.0, 3.0, 4.0)
#: Seconds for which a result that Redis does not take is kept, and between attempts to record it:
#: shorter than the time that a sweeper leaves to everybody after an outage.
KEPT = 600
KEEPING = (0.1, 0.5, *(1.0 for _ in range(KEPT)))

_T = TypeVar("_T")


class LeasedLedger:
    """Implements `phases.act.Ledger` on the store, for one execution.

    Claiming and finishing are idempotent and repeated while Redis does not answer; a result that
    only this worker knows for longer.
    """

    def __init__(
        self,
        store: AgentStore,
        leases: Leases,
        dispatcher: Dispatcher,
        has_room: Callable[[str, int], bool] = lambda principal, size: True,
    ) -> None:
        """*has_room* takes bytes from a principal's storage budget, if that many are left."""
        self._agent_id = store.agent_id
        self._dispatcher = dispatcher
        self._ledger = store.executions
        self._holds = store.holds
        self._in_flight = store.in_flight
        self._procedures = store.procedures
        self._leases = leases
        self._renewals = ExitStack()
        self._has_room = has_room

    def result(self, execution_id: str) -> ActionResult | None:
        """The result of that execution, if it has ended."""
        return self._ledger.result(execution_id)

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """The entry of that execution, if it was ever claimed."""
        return self._ledger.get(execution_id)

    def claim(self, execution: ExecutionRequest) -> Claim:
        """Claim the execution, and renew the claim while the action runs."""
        token = uuid.uuid4().hex
        claim = persistently(lambda: self._ledger.claim(execution, token))
        if claim.outcome is ClaimOutcome.HELD:
            return replace(claim, detail=self._obstacle(execution, claim.detail))
        if claim.outcome is ClaimOutcome.CLAIMED:
            renewal = self._leases.renewing(
                lambda: self._ledger.renew(execution.id, token), execution.timeout + GRACE
            )
            self._renewals.enter_context(renewal)
        return claim

    def forgo(self, execution_id: str, fence: Fence) -> Claim:
        """Give up an execution; the claim tells of an earlier attempt."""
        return persistently(lambda: self._ledger.forgo(execution_id, fence))

    def shorten(self, result: ActionResult, principal: str) -> ActionResult:
        """The result, without its output if the storage budget of *principal* has no room for it.

        Otherwise many large results could fill Redis and stop the deployment.
        """
        size = len(result.to_json())
        if size <= SMALL or self._has_room(principal, COPIES * size):
            return result
        note = (
            f"omitted: {size} characters exceed what is left of the storage budget of {principal}"
        )
        return result.patched({"output": note, "side_effects": None, "metrics": None})

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """Record the result and release the claim."""
        return self._hand_over(
            execution_id,
            token,
            lambda: self._ledger.finish(execution_id, token, result, self._send),
        )

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """Let a job go on with the claimed execution, and release the claim."""
        return self._hand_over(
            record.id, token, lambda: self._procedures.begin(token, record, result)
        )

    def _hand_over(self, execution_id: str, token: str, record: Callable[[], bool]) -> bool:
        """Record what came of the claimed execution; it stays claimed until Redis takes it."""
        self._renewals.close()
        with self._leases.renewing(lambda: self._ledger.renew(execution_id, token), KEPT):
            return persistently(record, StoreError, KEEPING)

    def _send(self, name: str, attempt: int, queue: str | None) -> None:
        """Send the job that has waited for this execution."""
        self._dispatcher.job(self._agent_id, name, attempt, queue)

    def _obstacle(self, execution: ExecutionRequest, other: str) -> str:
        """The hold or, if *other* names one, the execution in flight that refuses a claim."""
        action, target = execution.action, execution.target
        if not other:
            hold = self._holds.lasting(action, target)
            return hold.reason if hold else "It was held"
        hold = self._in_flight.find(action, target, other)
        if hold is None:
            return f"{naming.short(other)} was in the way"
        if hold.target == target:
            return hold.reason
        return (
            f"{action} on {target} waits until a verdict is there: {hold.course} on {hold.target}"
        )


def persistently(
    ask: Callable[[], _T],
    error: type[StoreError] = StoreUnavailable,
    pauses: Sequence[float] = (),
) -> _T:
    """Retry after every *error*, by default for about ten seconds; the last attempt raises it."""
    for pause in pauses or PAUSES:
        try:
            return ask()
        except error:
            time.sleep(pause)
    return ask()
