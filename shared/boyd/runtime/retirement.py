"""Retires an agent that nobody runs any more: nothing waits for it, and nobody misses it."""

from __future__ import annotations

from collections.abc import Iterator

from boyd.errors import AgentRuns
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import Actor, ApprovalItem, Run, RunStatus
from boyd.models.responses import Retired
from boyd.runtime.ending import Abandoner
from boyd.runtime.resolver import Resolver
from boyd.store import AgentEntry, AgentStore, Store

#: How many items are read at once.
_PAGE = 200
_NOTE = "the agent was retired"


def retire(
    store: Store, entry: AgentEntry, dispatcher: Dispatcher, actor: Actor, reason: str | None = None
) -> Retired:
    """Take an agent out of service.

    Its pending approvals are withdrawn, its runs that have not ended are cancelled, and its
    iteration in flight is abandoned; none follows it. Observations that wait are kept for the
    time when the agent is started again. Its history and its audit trail stay. A process that
    starts the agent, or turns out to run it, puts it back into service.

    Raises:
        AgentRuns: a live process runs the agent.
    """
    running = sorted(w.name for w in store.fleet.workers() if entry.id in w.agents)
    if running:
        names = ", ".join(running)
        raise AgentRuns(f"agent {entry.id!r} is run by {names}: stop these processes first")
    agent = store.agent(entry.id)
    store.fleet.retire(entry, store.clock.now())
    agent.audit.append("agent.retired", actor, before="in service", after="retired", note=reason)
    resolver = Resolver(agent, dispatcher, entry.retention)
    withdrawn = [
        resolver.answer(item.id, "withdrawn", actor, _NOTE).done for item in _pending(agent)
    ]
    cancelled = [
        agent.runs.cancel(run.id, actor, entry.retention, _NOTE).outcome == "resolved"
        for run in _open_runs(agent)
    ]
    Abandoner(agent, dispatcher, entry.retention).abandon(_NOTE, actor, last=True)
    return Retired(agent_id=entry.id, approvals=sum(withdrawn), runs=sum(cancelled))


def _pending(agent: AgentStore) -> Iterator[ApprovalItem]:
    cursor = None
    while True:
        page = agent.approvals.page(_PAGE, cursor, history=False)
        yield from page.pending
        cursor = page.next_cursor
        if cursor is None:
            return


def _open_runs(agent: AgentStore) -> Iterator[Run]:
    states: tuple[RunStatus, ...] = ("pending", "investigating")
    for status in states:
        cursor = None
        while True:
            page = agent.runs.page(_PAGE, cursor, status=status)
            yield from page.runs
            cursor = page.next_cursor
            if cursor is None:
                break
