"""The fleet: processes, the queues that they serve, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from boyd.health.checks import SILENCE, UnservedQueue, may_refuse_writes, queues_without_worker
from boyd.health.reader import read_health
from boyd.health.server_checks import check_archive, check_traces
from boyd.health.snapshot import HealthSnapshot
from boyd.store.fleet import WorkerInfo
from boyd.text import queues
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.console.rendering import render_page

pages = Pages()

_HOSTS = f"{queues.HOST}."


@dataclass(frozen=True)
class FleetGap:
    """Something that an agent lacks: in words, and with the command that adds it.

    Attributes:
        queue: the queue that is not served, if that is it.
        where: the host on which to run the command; empty: on any.
    """

    agent_id: str
    text: str
    command: str
    queue: str = ""
    where: str = ""


@dataclass(frozen=True)
class QueueColumn:
    """A queue; `waiting` is the number of its messages, None if the broker does not answer."""

    queue: str
    is_served: bool
    waiting: int | None


@dataclass(frozen=True)
class ProcessRow:
    """A live process, and the columns of the queues that it serves."""

    process: WorkerInfo
    serves: frozenset[str]


@pages.get("/fleet")
def fleet(page: PageRequest) -> PageResult:
    """Show the processes, the queues that they serve, and what is missing."""
    whole = read_health(page.services.store.client, page.services.brokers)
    is_silent = may_refuse_writes(whole) and not whole.roster.live()
    health = _visible(page, whole)
    roster, gaps = health.roster, [] if is_silent else list(_gaps(health))
    live = sorted(
        roster.live(), key=lambda process: (process.role != "worker", process.host, process.name)
    )
    rows = [ProcessRow(process, frozenset(map(_column_of, process.queues))) for process in live]
    return render_page(
        page,
        "fleet.html",
        gaps=sorted(gaps, key=lambda gap: not gap.queue),
        columns=_columns(health, rows, gaps),
        rows=rows,
        lost=[] if is_silent else roster.silent(),
        silence=SILENCE if is_silent else "",
        unreadable=roster.unreadable,
        versions=sorted({process.version for process in live}),
        broker_error=health.broker_error,
        # An error of a database or collector may name its host.
        exports=[]
        if page.lacks("admin", everywhere=True)
        else [check_archive(health), *check_traces(health)],
    )


def _visible(page: PageRequest, health: HealthSnapshot) -> HealthSnapshot:
    """The health of what the reader may see."""
    visible = page.ctx.agents
    if page.key is None or not page.key.agents:
        return health
    limited = [
        process.patched({"agents": [name for name in process.agents if name in visible]})
        for process in health.roster.processes
    ]
    roster = replace(
        health.roster,
        agents={name: entry for name, entry in health.roster.agents.items() if name in visible},
        processes=[process for process in limited if process.agents],
        unreadable=[],
    )
    messages = {key: size for key, size in (health.messages or {}).items() if key[0] in visible}
    return replace(
        health,
        roster=roster,
        agents=[agent for agent in health.agents if agent.entry.id in visible],
        messages=None if health.messages is None else messages,
    )


def _gaps(health: HealthSnapshot) -> Iterator[FleetGap]:
    roster = health.roster
    for agent in health.agents:
        name = agent.entry.id
        if roster.is_retired(name):
            continue
        if not roster.live("worker", name):
            process = "worker" if roster.live("beat", name) else "process"
            yield FleetGap(name, f"no {process} runs it, so it does nothing", "boyd worker")
        else:
            yield from map(_queue_gap, queues_without_worker(health, agent))
        if agent.entry.needs_beat and not roster.live("beat", name):
            yield FleetGap(name, "no beat starts its iterations", "boyd beat")


def _queue_gap(missing: UnservedQueue) -> FleetGap:
    name, where = missing.queue, ""
    if name.startswith(_HOSTS):
        name, where = queues.HOST, name.removeprefix(_HOSTS)
    text = f"no live worker consumes it{missing.why}"
    return FleetGap(missing.agent_id, text, f"boyd worker -Q {name}", missing.queue, where)


def _columns(
    health: HealthSnapshot, rows: list[ProcessRow], gaps: list[FleetGap]
) -> list[QueueColumn]:
    """The queues: those that are not served first, then in their usual order."""
    missing = {_column_of(gap.queue) for gap in gaps if gap.queue}
    names = {queue for row in rows for queue in row.serves} | missing
    usual = {queue: number for number, queue in enumerate(queues.DEFAULT)}
    order = sorted(names, key=lambda name: (name not in missing, usual.get(name, len(usual)), name))
    return [QueueColumn(name, name not in missing, _waiting(health, name)) for name in order]


def _waiting(health: HealthSnapshot, column: str) -> int | None:
    if health.messages is None:
        return None
    return sum(size for (_, queue), size in health.messages.items() if _column_of(queue) == column)


def _column_of(queue: str) -> str:
    """The queues of all hosts are one column."""
    return queues.HOST if queue.startswith(_HOSTS) else queue
