"""Calls: requests of clients that a worker answers at once, and the answers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from boyd import naming
from boyd.models import Call, CallRequest
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated
from boyd.store.hashes import flatten, restore
from boyd.store.jobs import read_execution
from boyd.store.keys import Keys
from boyd.store.scripts import KeyedScripts
from boyd.store.timing import milliseconds

#: Seconds to keep a call and its answer.
KEEP = 86400.0
#: Seconds to keep a GET of an endpoint, which changes nothing.
KEEP_READ = 300.0


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
        """
        call_id = call_id or str(uuid.uuid4())
        reads = request.kind == "dry-run" or _is_get(request)
        new = self._scripts.run(
            "submit_call",
            call=self._keys.job(naming.call(call_id)),
            id=call_id,
            resend_after=self._resend_after,
            queue=queue,
            keep=milliseconds(kept(request)),
            kind=None if reads else request.kind,
            actor=actor_fields(request.actor),
            fields=flatten(request),
        )
        return call_id, bool(new)

    def get(self, call_id: str) -> Call | None:
        """One call."""
        with translated():
            fields = self._client.hgetall(self._keys.job(naming.call(call_id)))
        return read_call(fields) if fields else None


def kept(call: CallRequest) -> float:
    """Seconds to keep a call that has ended."""
    return KEEP_READ if _is_get(call) else KEEP


def _is_get(call: CallRequest) -> bool:
    return call.endpoint is not None and call.endpoint.method == "GET"


def read_call(fields: Mapping[str, str]) -> Call:
    """A call from its hash."""
    call = restore(Call, fields)
    execution = read_execution(fields)
    return call.patched({"execution": execution}) if execution else call
