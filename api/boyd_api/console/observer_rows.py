"""The vital signs of an agent, and its observers as rows: health, runs, why one does not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from boyd.models import LoopResult, NotDue, utc_now
from boyd.models.responses import ObserverState
from boyd.store import AgentEntry, Store
from boyd.store.fleet import WorkerInfo
from boyd.store.hashes import readable
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


#: The state of an observer; `quiet`: its interval has not passed yet.
ObserverStanding = Literal["backs off", "fails", "never ran", "not due", "ok"]
_ORDER: Sequence[ObserverStanding] = ("backs off", "fails", "never ran", "not due", "ok")
SHAPES: dict[ObserverStanding, str] = {
    "backs off": "off",
    "fails": "failed",
    "never ran": "unknown",
    "not due": "idle",
    "ok": "ok",
}
#: Hosts that a row names.
_HOSTS = 4


@dataclass(frozen=True)
class ObserverRow:
    """An observer.

    Attributes:
        until: when it runs again, if it is not due or backs off.
        hosts: where it ran in the latest iteration, in words.
        took: the longest of these runs, in milliseconds.
    """

    health: ObserverState
    standing: ObserverStanding
    until: datetime | None
    hosts: str
    took: float | None


def observer_rows(
    observers: Sequence[ObserverState], last: LoopResult | None, now: datetime
) -> list[ObserverRow]:
    """The rows, those first that need attention; *last* is the latest iteration that ended."""
    not_due = {observer.id: observer for observer in last.not_due} if last else {}
    rows = list(_rows(observers, not_due, last, now))
    return sorted(rows, key=lambda row: _ORDER.index(row.standing))


def _rows(
    observers: Sequence[ObserverState],
    not_due: dict[str, NotDue],
    last: LoopResult | None,
    now: datetime,
) -> Iterator[ObserverRow]:
    for observer in observers:
        runs = [run for run in last.observer_runs if run.id == observer.id] if last else []
        standing, until = _standing(observer, not_due.get(observer.id), now)
        took = max((run.duration for run in runs), default=None)
        yield ObserverRow(observer, standing, until, _hosts({run.host for run in runs}), took)


def _standing(
    observer: ObserverState, later: NotDue | None, now: datetime
) -> tuple[ObserverStanding, datetime | None]:
    if observer.backoff_until and observer.backoff_until > now:
        return "backs off", observer.backoff_until
    if observer.failures:
        return "fails", None
    if later:
        return "not due", later.due_at
    return ("ok", None) if observer.last_success_at else ("never ran", None)


def _hosts(names: set[str]) -> str:
    first = sorted(names)[:_HOSTS]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
