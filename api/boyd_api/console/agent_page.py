"""An overview of all agents, and the page of one: what is wrong, what it does, what stops it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Literal, get_args

from flask import redirect, request

from boyd import naming
from boyd.health.agent_condition import condition_of
from boyd.health.agent_health import AgentHealth
from boyd.health.reader import read_agents
from boyd.models import (
    ApprovalItem,
    ExecutionEntry,
    LoopResult,
    LoopStatus,
    NotDue,
    Run,
    TrackRecord,
    from_ms,
    responses,
    utc_now,
)
from boyd.models.responses import ConditionName, ObserverState
from boyd.store import DEPLOYMENT, Record
from boyd.store.budgets import BudgetUse
from boyd.store.server.connection import Client
from boyd.text.formatting import counted
from boyd_api.console import charts
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.inbox_list import ReadProcedure, read_stops
from boyd_api.console.page_request import PageRequest, Part, read_part, read_seconds
from boyd_api.console.rendering import render_page, render_public
from boyd_api.http.problems import HttpProblem
from boyd_api.http.request_context import unreadable_names
from boyd_api.routes import (
    action_routes,
    agent_routes,
    approval_routes,
    loop_routes,
    run_routes,
)
from boyd_api.routes.agent_routes import ControlRequest

list_pages = Pages(section="agents")
kiosk_pages = Pages(section="kiosk")
pages = Pages(section="agent")

#: Agents that a display has room for.
_WALL = 6
#: Iterations on the strip, and items that wait which are shown.
_STRIP = 60
_WAITING = 8
#: Executions that are shown.
_EXECUTIONS = 3
#: Held actions that are shown.
_HOLDS = 50
#: Track records that are shown.
_RECORDS = 20
#: Procedures that are shown.
_PROCEDURES = 5
#: The forms that a link can open.
_FORMS = ("pause", "freeze", "unfreeze", "revoke", "restore")


#: The conditions in which an agent needs nobody, so that they are folded.
_FOLDED: Sequence[ConditionName] = ("quiet", "retired")


@dataclass(frozen=True)
class ConditionGroup:
    """The agents in one condition: those with the worst anomalies first, then the oldest ones."""

    name: ConditionName
    agents: Sequence[responses.AgentState]

    @property
    def is_folded(self) -> bool:
        """True if their lines are hidden until somebody asks for them."""
        return self.name in _FOLDED

    @property
    def title(self) -> str:
        """Their number and condition, such as `9 quiet`."""
        if self.name == "waits for you":
            return counted(len(self.agents), "waits for a person", "wait for a person")
        if self.name == "open incident":
            return counted(len(self.agents), self.name)
        return f"{len(self.agents)} {self.name}"


@list_pages.get("/agents")
def agents(page: PageRequest) -> PageResult:
    """Show an overview of all agents, the one that most needs a person first."""
    groups = _by_condition(agent_routes.show(page.ctx, agent_routes.AgentsQuery(retired=True)))
    return render_page(page, "agents.html", groups=groups, headline=_headline(groups))


def _by_condition(listing: responses.AgentList) -> list[ConditionGroup]:
    urgent_first = sorted(listing.agents, key=lambda agent: agent.urgency)
    by_condition = groupby(urgent_first, key=lambda agent: agent.condition.name)
    return [ConditionGroup(name, list(members)) for name, members in by_condition]


def _headline(groups: Sequence[ConditionGroup]) -> str:
    return ", ".join(group.title for group in groups if group.name != "retired") or "none"


@kiosk_pages.get("/kiosk", scope="kiosk")
def kiosk(page: PageRequest) -> PageResult:
    """Show the overview on a display that nobody touches."""
    listing = agent_routes.show(page.ctx, agent_routes.AgentsQuery())
    groups = _by_condition(listing)
    urgent = [agent for group in groups if not group.is_folded for agent in group.agents]
    unreadable = unreadable_names(page.key)
    room = _WALL - bool(listing.frozen) - bool(unreadable)
    return render_public(
        "kiosk.html",
        page.nonce,
        page=page,
        now=page.ctx.now or utc_now(),
        headline=_headline(groups),
        agents=urgent[:room],
        more=len(urgent) - room,
        frozen=listing.frozen,
        unreadable=unreadable,
    )


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
    form = request.args.get("do", "")
    record = store.history.last() if status.phase != "idle" else None
    result = _current_result(page, record).value if record else last.value
    return render_page(
        page,
        "agent.html",
        entry=entry,
        status=status,
        last=last,
        ring=charts.ring(status.phase, result),
        latest=result,
        holder=_holder(status, record),
        tiles=read_part(lambda: charts.strip(store.history.summaries(_STRIP).iterations)),
        observers=read_part(lambda: _observers(page, last.value)),
        state=read_part(lambda: agent_routes.agent_state(page.ctx)),
        waiting=read_part(lambda: _waiting(page)),
        executions=read_part(lambda: store.executions.page(_EXECUTIONS).executions),
        budgets=read_part(lambda: _budgets(page)),
        execution=read_part(lambda: _execution(page, last.value)),
        procedures=read_part(lambda: _procedures(page)),
        holds=read_part(lambda: store.holds.all(_HOLDS)),
        records=read_part(lambda: _records(page)),
        limited=[
            action
            for action in entry.catalog.actions
            if action.windows or action.alone_when or action.earned
        ],
        due=_due(page, status),
        own_freeze=freezes.get(entry.id),
        whole_freeze=freezes.get(DEPLOYMENT),
        asked=form if form in _FORMS and page.allows("admin") else "",
        reaches_all=page.key is None or not page.key.agents,
        outcome_words=charts.WORDS,
        outcome_shapes=charts.SHAPES,
        SHAPES=SHAPES,
    )


def _current_result(page: PageRequest, record: Record) -> Part[LoopResult]:
    """The iteration in flight, as far as it is."""
    return read_part(lambda: record.result(page.agent_id, _now(page)))


def _procedures(page: PageRequest) -> list[ReadProcedure]:
    """List the latest procedures, then older stopped ones, those for the reader first."""
    latest = page.ctx.agent.store.procedures.all(_PROCEDURES)
    stops = sorted(read_stops(page, page.agent_id), key=lambda stop: stop.no_resume != "")
    rows = [*(ReadProcedure.of(page, record) for record in latest), *stops[:_PROCEDURES]]
    return list({it.record.id: it for it in rows}.values())


def _holder(status: LoopStatus, record: Record | None) -> str:
    """The worker that holds the phase in flight; batches of observe are held by several."""
    if status.worker:
        return f"on {status.worker}"
    if status.phase == "observe" and record is not None:
        done = len(record.observation_texts) + len(record.observer_errors)
        return f"{done} of {counted(len(record.observers), 'observer run')} done"
    return "waits for a worker"


def _observers(page: PageRequest, last: LoopResult | None) -> list[ObserverRow]:
    states = agent_routes.show_observers(page.ctx).observers
    return observer_rows(states, last, _now(page))


def _waiting(page: PageRequest) -> Waiting:
    approvals = page.ctx.agent.store.approvals.page(_WAITING, history=False).pending
    pending = run_routes.runs(page.ctx, run_routes.RunsQuery(limit=_WAITING, status="pending"))
    return Waiting(approvals, pending.runs)


def _budgets(page: PageRequest) -> list[BudgetUse]:
    agent = page.ctx.agent
    return agent.store.budgets.uses(agent.entry.catalog.actions, _now(page))


def _records(page: PageRequest) -> list[TrackRecord]:
    return approval_routes.autonomy(page.ctx).records[:_RECORDS]


def _execution(page: PageRequest, last: LoopResult | None) -> ExecutionEntry | None:
    """The execution of the last iteration, if it has acted."""
    if last is None or not any(result.success for result in last.action_results):
        return None
    return page.ctx.agent.store.executions.get(
        naming.iteration_execution(last.id.removeprefix(f"{page.agent_id}:"))
    )


def _due(page: PageRequest, status: LoopStatus) -> datetime | None:
    """When it looks next by itself, if it does."""
    idle = status.phase == "idle" and status.paused is None
    return page.ctx.agent.entry.next_start(_now(page)) if idle else None


def _now(page: PageRequest) -> datetime:
    return page.ctx.now or page.ctx.agent.store.clock.now()


#: The most characters of a reason.
_REASON = 1000


@pages.post("/agents/<agent>/trigger", scope="trigger")
def trigger(page: PageRequest) -> PageResult:
    """Start an iteration, or join the one in flight."""
    loop_routes.trigger(page.ctx, loop_routes.TriggerRequest(async_=True))
    return _back(page)


@pages.post("/agents/<agent>/pause", scope="admin")
def pause(page: PageRequest) -> PageResult:
    """Pause the agent."""
    agent_routes.pause(page.ctx, _reason())
    return _back(page)


@pages.post("/agents/<agent>/resume", scope="admin")
def resume(page: PageRequest) -> PageResult:
    """Resume the agent."""
    agent_routes.resume(page.ctx)
    return _back(page)


@pages.post("/agents/<agent>/freeze", scope="admin")
def freeze(page: PageRequest) -> PageResult:
    """Freeze the agent, or all agents."""
    if _concerns_all(page):
        agent_routes.freeze_all(page.ctx, _reason())
    else:
        agent_routes.freeze(page.ctx, _reason())
    return _back(page)


@pages.post("/agents/<agent>/unfreeze", scope="admin", fresh=True)
def unfreeze(page: PageRequest) -> PageResult:
    """Lift the freeze of the agent, or that of all agents."""
    if _concerns_all(page):
        agent_routes.unfreeze_all(page.ctx)
    else:
        agent_routes.unfreeze(page.ctx)
    return _back(page)


@pages.post("/agents/<agent>/revoke", scope="admin")
def revoke(page: PageRequest) -> PageResult:
    """Revoke the agent's right to act."""
    agent_routes.revoke(page.ctx, _reason())
    return _back(page)


@pages.post("/agents/<agent>/restore", scope="admin", fresh=True)
def restore(page: PageRequest) -> PageResult:
    """Give the agent the right to act again."""
    agent_routes.restore(page.ctx)
    return _back(page)


@pages.post("/agents/<agent>/lift", scope="admin", fresh=True)
def lift(page: PageRequest) -> PageResult:
    """Lift the hold of an action; it stays lifted if somebody else was faster."""
    form = request.form
    page.ctx.agent.store.holds.lift(
        form.get("action", ""), form.get("target", ""), page.ctx.actor, form.get("note", "")[:1000]
    )
    return _back(page)


@pages.post("/agents/<agent>/anomalies/acknowledge", scope="approvals")
def acknowledge_anomaly(page: PageRequest) -> PageResult:
    """Take care of an open anomaly, or leave it to others; nothing happens to one that is over."""
    store, id = page.ctx.agent.store.acknowledgements, request.form.get("id", "")
    for anomaly in store.anomalies():
        if anomaly.id == id and request.form.get("verb") == "release":
            store.release_anomaly(anomaly, page.ctx.actor)
        elif anomaly.id == id:
            store.acknowledge_anomaly(anomaly, page.ctx.actor, read_seconds())
    return _back(page)


@pages.post("/agents/<agent>/executions/cancel", scope="actions")
def cancel_execution(page: PageRequest) -> PageResult:
    """Cancel an execution that waits for its turn."""
    action_routes.cancel(page.ctx, request.form.get("id", ""), None)
    return _back(page)


@pages.post("/agents/<agent>/revoke-grant", scope="admin")
def revoke_grant(page: PageRequest) -> PageResult:
    """Revoke the right of an action to run alone; it stays revoked if somebody else was faster."""
    form = request.form
    action, situation = form.get("action", ""), form.get("situation", "")
    page.ctx.agent.store.track_records.revoke(action, situation, page.ctx.actor)
    return _back(page)


@pages.post("/agents/<agent>/procedures/cancel", scope="approvals", fresh=True)
def cancel_procedure(page: PageRequest) -> PageResult:
    """Cancel a procedure."""
    action_routes.cancel_procedure(page.ctx, request.form.get("id", ""), None)
    return _back(page)


@pages.post("/agents/<agent>/procedures/resume", scope="approvals", fresh=True)
def resume_procedure(page: PageRequest) -> PageResult:
    """Let a stopped procedure go on."""
    body = action_routes.ResumeRequest(repeat=request.form.get("how") == "repeat")
    action_routes.resume_procedure(page.ctx, request.form.get("id", ""), body)
    return _back(page)


def _concerns_all(page: PageRequest) -> bool:
    """True for a form about all agents. Raises `HttpProblem` if the key is limited to some."""
    scope = request.form.get("scope", "")
    if scope not in ("agent", "all"):
        raise HttpProblem("bad-request", "the form names no scope: open the page again")
    if scope == "all" and page.key is not None and page.key.agents:
        limit = f"the key {page.key.name!r} is limited to {', '.join(page.key.agents)}"
        raise HttpProblem("forbidden", f"this concerns all agents, but {limit}")
    return scope == "all"


def _reason() -> ControlRequest:
    text = request.form.get("reason", "").strip()
    return ControlRequest(reason=text[:_REASON] or None)


def _back(page: PageRequest) -> PageResult:
    return redirect(f"/console/agents/{page.agent_id}", 303)


@dataclass(frozen=True)
class VitalSign:
    """The activity of an agent in words; if it does not watch, with a *command* that may help.

    Without a *text* it is idle: it has *looked* then, and is *due* when it looks by itself.
    """

    agent_id: str
    text: str = ""
    watches: bool = True
    command: str = ""
    looked: datetime | None = None
    due: datetime | None = None
    has_stops: bool = False


def read_vital_signs(page: PageRequest, agent_id: str | None = None) -> list[VitalSign]:
    """The vital signs of the agents in service that the reader may see, or of one."""
    signs = vital_signs(page.services.store.client, agent_id, page.ctx.now or utc_now())
    return [sign for sign in signs if sign.agent_id in page.ctx.agents]


def vital_signs(client: Client, agent_id: str | None, now: datetime) -> list[VitalSign]:
    """The vital signs of all agents in service, or of one."""
    roster, agents = read_agents(client, agent_id)
    return [
        _sign(condition_of(roster, agent), agent, now)
        for agent in agents
        if agent.entry.retired_at is None
    ]


def _sign(condition: responses.AgentCondition, agent: AgentHealth, now: datetime) -> VitalSign:
    name, progress = agent.entry.id, agent.progress
    sign = partial(VitalSign, name, has_stops=agent.backlog.stopped > 0)
    if condition.name == "not watching":
        return sign(condition.reason, False, condition.command)
    if progress.phase != "idle":
        return sign(f"looking now: iteration {progress.iterations}, {progress.phase}")
    if agent.stops.paused:
        return sign(f"paused: {agent.stops.paused}")
    looked = from_ms(progress.observed * 1000) if progress.observed is not None else None
    return sign(looked=looked, due=agent.entry.next_start(now))


#: The state of an observer; the one that most needs attention first.
ObserverStanding = Literal["backs off", "fails", "never ran", "not due", "ok"]
_ORDER: Sequence[ObserverStanding] = get_args(ObserverStanding)
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
    """Build the rows and put those that need attention first.

    *last* is the latest iteration that ended.
    """
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
