"""Calls: requests of clients that a worker answers at once, and the answers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from boyd import naming
from boyd.errors import RollbackRefused
from boyd.models import ActionResult, Actor, Call, CallRequest
from boyd.store.hashes import flatten, restore
from boyd.store.jobs import read_execution
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds

#: Seconds to keep a call and its answer.
KEEP = 86400.0
#: Seconds to keep a GET of an endpoint, which changes nothing.
KEEP_READ = 300.0
#: Characters of an execution's name in an error.
_SHOWN = 200
#: What became of an earlier rollback, by its state.
_ROLLED_BACK = {
    "running": "is being rolled back already",
    "succeeded": "has been rolled back already",
    "failed": "has been rolled back before, which failed; a failed rollback is not repeated",
    "unknown": "has been rolled back before, with unknown outcome; check by hand what it did",
}


@dataclass(frozen=True)
class CallCancellation:
    """The outcome of cancelling a call; `detail` is its state or the approval it waits for."""

    outcome: Literal["cancelled", "started", "waits", "over", "unknown"]
    detail: str = ""


class Calls:
    """The calls to one agent's workers."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, resend_after: float
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._resend_after = milliseconds(resend_after)

    def submit(
        self, request: CallRequest, queue: str | None, call_id: str | None = None
    ) -> tuple[str, bool]:
        """Queue a call; return its id and whether it is new.

        Submitting the same *call_id* again changes nothing.

        Raises:
            RollbackRefused: it would roll back what cannot be rolled back now.
        """
        call_id = call_id or str(uuid.uuid4())
        reads = request.kind == "dry-run" or _is_get(request)
        reply = self._scripts.run(
            "submit_call",
            call=self._keys.job(naming.call(call_id)),
            id=call_id,
            resend_after=self._resend_after,
            queue=queue,
            keep=milliseconds(seconds_to_keep(request)),
            kind=None if reads else request.kind,
            actor=actor_fields(request.actor),
            fields=flatten(request),
        )
        if isinstance(reply, list):
            raise RollbackRefused(_refusal(request.undoes or "", *reply[1:]))
        return call_id, bool(reply)

    def cancel(self, call: Call, approval_id: str, by: Actor, note: str = "") -> CallCancellation:
        """Cancel a call unless it has started; once cancelled it never starts.

        *approval_id* is the item that it proposes, if it has to ask a person.
        """
        error = f"Not executed: cancelled by {by.principal}" + (f": {note}" if note else "")
        result = ActionResult(
            action=call.action, success=False, duration=0.0, error=error, prevented="cancelled"
        )
        outcome, *detail = self._scripts.run(
            "cancel_call",
            call=self._keys.job(naming.call(call.id)),
            id=call.id,
            approval=approval_id,
            result=result.to_json(),
            keep=milliseconds(KEEP),
            note=note,
            actor=actor_fields(by),
        )
        return CallCancellation(outcome, *detail)

    def get(self, call_id: str) -> Call | None:
        """One call."""
        with translate_errors():
            fields = self._client.hgetall(self._keys.job(naming.call(call_id)))
        return read_call(fields) if fields else None


def seconds_to_keep(call: CallRequest) -> float:
    """Seconds to keep a call that has ended."""
    return KEEP_READ if _is_get(call) else KEEP


def _refusal(execution: str, reason: str, obstacle: str) -> str:
    """Explain why an execution cannot be rolled back, from the reply of the script."""
    name = naming.short(execution)[:_SHOWN]
    if reason == "rollback":
        return f"{name} is a rollback, and a rollback cannot be rolled back"
    if reason == "state":
        state = f"is {obstacle}" if obstacle else "was never executed"
        return f"{name} {state}; only a successful execution can be rolled back"
    if reason == "requested":
        return f"{name} is being rolled back already, by {naming.short(obstacle)}"
    if reason == "asked":
        return f"the rollback of {name} waits for approval {naming.short(obstacle)} already"
    if reason == "compensating":
        return f"{name} made it worse, and Boyd is compensating it already"
    return f"{name} {_ROLLED_BACK.get(obstacle, _ROLLED_BACK['succeeded'])}"


def _is_get(call: CallRequest) -> bool:
    return call.endpoint is not None and call.endpoint.method == "GET"


def read_call(fields: Mapping[str, str]) -> Call:
    """A call from its hash."""
    call = restore(Call, fields)
    execution = read_execution(fields)
    return call.patched({"execution": execution}) if execution else call
