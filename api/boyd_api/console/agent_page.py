"""The page of one agent: what it does now, what it has done last, and what stops it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from flask import request

from boyd import naming
from boyd.models import ApprovalItem, ExecutionEntry, LoopResult, LoopStatus, Run, TrackRecord
from boyd.store import DEPLOYMENT, Record
from boyd.store.budgets import BudgetUse
from boyd.text.formatting import counted
from boyd_api.console import ring, strip
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.observer_rows import SHAPES, ObserverRow, observer_rows
from boyd_api.console.page_request import PageRequest
from boyd_api.console.parts import Part, read_part
from boyd_api.console.rendering import render_page
from boyd_api.console.vital_signs import read_vital_signs
from boyd_api.routes import agent_routes, autonomy_routes, loop_routes, run_routes

pages = Pages()

#: Iterations on the strip, and items that wait which are shown.
_STRIP = 60
_WAITING = 8
#: Held actions that are shown.
_HOLDS = 50
#: Track records that are shown.
_RECORDS = 20
#: Procedures that are shown.
_PROCEDURES = 5
#: The forms that a link can open.
_FORMS = ("pause", "freeze", "unfreeze", "revoke", "restore")


@dataclass(frozen=True)
class Waiting:
    """The first approvals and runs that wait."""

    approvals: Sequence[ApprovalItem]
    runs: Sequence[Run]


@pages.get("/agents/<agent>")
def agent(page: PageRequest) -> PageResult:
    """Show what the agent does now, and what it has done last."""
    entry, store = page.ctx.agent.entry, page.ctx.agent.store
    status = store.loop_control.status()
    last = read_part(lambda: loop_routes.last_result(store))
    freezes = page.services.store.freezes.all()
    asked = request.args.get("do", "")
    record = store.history.last() if status.phase != "idle" else None
    shown = _shown(page, record).value if record else last.value
    return render_page(
        page,
        "agent.html",
        entry=entry,
        status=status,
        last=last,
        ring=ring.ring(status.phase, shown),
        latest=shown,
        holder=_holder(status, record),
        marks=read_part(lambda: strip.strip(store.history.outlines(_STRIP).iterations)),
        observers=read_part(lambda: _observers(page, last.value)),
        waiting=read_part(lambda: _waiting(page)),
        budgets=read_part(lambda: _budgets(page)),
        execution=read_part(lambda: _execution(page, last.value)),
        procedures=read_part(lambda: store.procedures.all(_PROCEDURES)),
        holds=read_part(lambda: store.holds.all(_HOLDS)),
        records=read_part(lambda: _records(page)),
        limited=[
            one for one in entry.catalog.actions if one.windows or one.alone_when or one.earned
        ],
        vital=next(iter(read_vital_signs(page, [entry.id])), None),
        due=_due(page, status),
        own_freeze=freezes.get(entry.id),
        whole_freeze=freezes.get(DEPLOYMENT),
        asked=asked if asked in _FORMS and page.allows("admin") else "",
        reaches_all=page.key is None or not page.key.agents,
        strip=strip,
        SHAPES=SHAPES,
    )


def _shown(page: PageRequest, record: Record) -> Part[LoopResult]:
    """The iteration in flight, as far as it is."""
    return read_part(lambda: record.result(page.agent_id, _now(page)))


def _holder(status: LoopStatus, record: Record | None) -> str:
    """The worker that holds the phase in flight; batches of observe are held by several."""
    if status.worker:
        return f"on {status.worker}"
    if status.phase == "observe" and record is not None:
        done = len(record.seen) + len(record.observer_errors)
        return f"{done} of {counted(len(record.observers), 'observer run')} done"
    return "waits for a worker"


def _observers(page: PageRequest, last: LoopResult | None) -> list[ObserverRow]:
    found = agent_routes.show_observers(page.ctx).observers
    return observer_rows(found, last, _now(page))


def _waiting(page: PageRequest) -> Waiting:
    approvals = page.ctx.agent.store.approvals.page(_WAITING, history=False).pending
    pending = run_routes.runs(page.ctx, run_routes.RunsQuery(limit=_WAITING, status="pending"))
    return Waiting(approvals, pending.runs)


def _budgets(page: PageRequest) -> list[BudgetUse]:
    agent = page.ctx.agent
    return agent.store.budgets.uses(agent.entry.catalog.actions, _now(page))


def _records(page: PageRequest) -> list[TrackRecord]:
    return autonomy_routes.autonomy(page.ctx).records[:_RECORDS]


def _execution(page: PageRequest, last: LoopResult | None) -> ExecutionEntry | None:
    """The execution of the last iteration, if it has acted."""
    if last is None or not any(one.success for one in last.action_results):
        return None
    return page.ctx.agent.store.executions.get(
        naming.loop(last.id.removeprefix(f"{page.agent_id}:"))
    )


def _due(page: PageRequest, status: LoopStatus) -> datetime | None:
    """When it looks next by itself, if it does."""
    idle = status.phase == "idle" and status.paused is None
    return page.ctx.agent.entry.next_start(_now(page)) if idle else None


def _now(page: PageRequest) -> datetime:
    return page.ctx.now or page.ctx.agent.store.clock.now()
