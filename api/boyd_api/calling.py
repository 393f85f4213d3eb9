"""Has something done by a worker, and waits for it as long as the request wants to."""

from __future__ import annotations

from boyd import queues
from boyd.models import Call, CallRequest
from boyd_api.problems import Problem
from boyd_api.serving import Ask


def ordered(ask: Ask, job: CallRequest, queue: str | None) -> str:
    """Job something of a worker; the id of the call.

    Raises:
        Problem: no live worker consumes the queue.
    """
    where = queue or queues.ACT
    if not ask.services.store.fleet.of(ask.agent.entry.id).serving(where):
        raise Problem("no-worker", f"no live worker consumes queue {where!r}")
    return ask.agent.launcher.call(job, queue, ask.idempotent_id())


def finished(ask: Ask, call_id: str) -> Call | None:
    """The call, once it has ended."""
    call = ask.agent.store.calls.get(call_id)
    over = call and call.execution and call.execution.state in ("succeeded", "failed", "unknown")
    return call if over else None
