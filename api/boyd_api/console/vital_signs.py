"""Vital signs of agents: do they still look, and which command helps if they do not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from boyd.models import utc_now
from boyd.store import AgentEntry, Store
from boyd.store.fleet import WorkerInfo
from boyd.store.unreadable import readable
from boyd_api.console.page_request import PageRequest
from boyd_api.console.rendering import ago, span


@dataclass(frozen=True)
class VitalSign:
    """The activity of an agent in words, with the *command* that helps if it cannot look."""

    agent_id: str
    text: str
    command: str = ""


def read_vital_signs(page: PageRequest, agent_ids: list[str]) -> list[VitalSign]:
    """The vital signs of these agents."""
    entries, store = page.ctx.agents, page.services.store
    workers, now = store.fleet.workers(), page.ctx.now or utc_now()
    signs = [
        readable(f"the state of agent {name}", partial(_sign, store, workers, now), entries[name])
        for name in agent_ids
        if name in entries
    ]
    return [sign for sign in signs if sign is not None]


def _sign(whole: Store, processes: list[WorkerInfo], now: datetime, entry: AgentEntry) -> VitalSign:
    obstacle = entry.obstacle(processes)
    if obstacle is not None:
        return VitalSign(entry.id, obstacle.text, obstacle.command)
    store = whole.agent(entry.id)
    status = store.loop_control.status()
    if status.phase != "idle":
        return VitalSign(entry.id, f"looking now: iteration {status.iteration}, {status.phase}")
    if status.paused:
        return VitalSign(entry.id, f"paused: {status.paused}")
    last = store.history.last()
    return VitalSign(entry.id, _rhythm(entry, last.started_at if last else None, now))


def _rhythm(entry: AgentEntry, last: datetime | None, now: datetime) -> str:
    look = f"last look {ago(last, now)}" if last else "it has not looked yet"
    due = entry.next_start(now)
    if due is None:
        return f"{look}; it looks when something triggers it"
    return f"{look}, next in {span((due - now).total_seconds())}"
