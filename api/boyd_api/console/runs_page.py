"""The pages of runs: the list, the form to submit one, and each run with its callback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from flask import redirect, request

from boyd.models import LEVELS, ApprovalItem, Callback, Run, RunStatus
from boyd.models.responses import RunCreated
from boyd_api.console.agent_page import VitalSign, read_vital_signs
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest, Part, read_form, read_json_field, read_part
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem
from boyd_api.routes import investigation_routes, run_routes

pages = Pages()

#: The name that runs of this form have as their source.
SOURCE = "console"
_ENDED = ("completed", "failed", "cancelled")
_LISTED = 50


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run, and what it waits for.

    Attributes:
        approval: the one that it waits for, or waited for, as far as it is kept.
        health: whether the agent looks, until the run has ended.
    """

    approval: Part[ApprovalItem | None]
    health: VitalSign | None

    @property
    def waits(self) -> bool:
        """True while somebody has to answer its approval."""
        return self.approval.value is not None and self.approval.value.status == "pending"


@pages.get("/agents/<agent>/runs")
def runs(page: PageRequest) -> PageResult:
    """Show the runs of the agent, newest first."""
    args = request.args
    names = ("status", "priority", "source", "cursor")
    query = read_form(
        run_routes.RunsQuery, limit=_LISTED, **{name: args.get(name) for name in names}
    )
    listing = run_routes.runs(page.ctx, query)
    filters = {name: args[name] for name in names[:3] if args.get(name)}
    health = _health(page) if not listing.runs else None
    approval_ids = [run.approval_id for run in listing.runs if run.approval_id]
    return render_page(
        page,
        "runs.html",
        runs=listing,
        waiting=page.ctx.agent.store.approvals.pending_of(approval_ids) if approval_ids else set(),
        query=query,
        kept=filters,
        statuses=get_args(RunStatus),
        levels=LEVELS,
        health=health,
    )


@pages.get("/agents/<agent>/runs/new", scope="runs")
def new(page: PageRequest) -> PageResult:
    """Show the form to submit a run."""
    return _form(page, {})


@pages.post("/agents/<agent>/runs", scope="runs")
def submit(page: PageRequest) -> PageResult:
    """Submit a run."""
    form = request.form
    try:
        body = read_form(
            run_routes.SentRun,
            title=form.get("title", "").strip(),
            description=form.get("description", "").strip(),
            priority=form.get("priority"),
            kind=form.get("kind"),
            context=read_json_field("context", form.get("context", "")),
            callback_url=form.get("callbackUrl", "").strip(),
            source=SOURCE,
        )
        created = run_routes.submit(page.ctx, body).body
    except HttpProblem as problem:
        return _form(page, form.to_dict(), problem)
    assert isinstance(created, RunCreated)
    return redirect(_address(page, created.id), 303)


@pages.get("/agents/<agent>/runs/<id>")
def run(page: PageRequest, id: str) -> PageResult:
    """Show a run, its result, and its callback."""
    return _show(page, run_routes.show(page.ctx, id))


@pages.post("/agents/<agent>/runs/<id>/cancel", scope="runs")
def cancel(page: PageRequest, id: str) -> PageResult:
    """Cancel a run; if it has ended meanwhile, its page tells how."""
    reason = request.form.get("reason", "").strip()
    try:
        run_routes.cancel(page.ctx, id, read_form(run_routes.CancelRequest, reason=reason))
    except HttpProblem as problem:
        if problem.kind.name == "not-found":
            raise
        return _show(page, run_routes.show(page.ctx, id), problem)
    return redirect(_address(page, id), 303)


@pages.post("/agents/<agent>/runs/<id>/deliver", scope="runs")
def deliver(page: PageRequest, id: str) -> PageResult:
    """Deliver the callback of a run again."""
    run_routes.redeliver(page.ctx, id)
    return redirect(f"{_address(page, id)}#callback", 303)


def _form(
    page: PageRequest, fields: dict[str, str], problem: HttpProblem | None = None
) -> PageResult:
    return render_page(
        page,
        "new_run.html",
        problem.kind.status if problem else 200,
        given=fields,
        problem=problem,
        levels=LEVELS,
        model=page.ctx.agent.entry.model,
    )


def _show(page: PageRequest, run: Run, problem: HttpProblem | None = None) -> PageResult:
    return render_page(
        page,
        "run.html",
        problem.kind.status if problem else 200,
        run=run,
        progress=_progress(page, run),
        callback=_callback(page, run),
        investigation=_investigation(page, run),
        is_over=run.status in _ENDED,
        asked=request.args.get("do", ""),
        problem=problem,
    )


def _progress(page: PageRequest, run: Run) -> RunProgress:
    agent, id = page.ctx.agent, run.approval_id
    approval = read_part(lambda: agent.past_approval(id) if id else None)
    return RunProgress(approval, None if run.status in _ENDED else _health(page))


def _health(page: PageRequest) -> VitalSign | None:
    return next(iter(read_vital_signs(page, page.agent_id)), None)


def _callback(page: PageRequest, run: Run) -> Callback | None:
    is_due = run.callback_url and run.status in _ENDED
    return page.ctx.agent.store.runs.callback(run.id) if is_due else None


def _investigation(page: PageRequest, run: Run) -> str | None:
    """The id of the investigation that answers the run, if one does: it has the same id."""
    if run.kind != run_routes.INVESTIGATION:
        return None
    if investigation_routes.has_left_redis(page.ctx, run.id):
        archived = read_part(lambda: page.ctx.agent.past_work.investigation(run.id))
        return run.id if archived.value else None
    return run.id


def _address(page: PageRequest, id: str) -> str:
    return f"/console/agents/{page.agent_id}/runs/{id}"
