"""The forms of an agent's page: those of the agent, its holds, grants and procedures."""

from __future__ import annotations

from flask import redirect, request

from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.http.problems import HttpProblem
from boyd_api.routes import action_routes, agent_routes, loop_routes, procedure_routes
from boyd_api.routes.agent_routes import ControlRequest

pages = Pages()

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
    procedure_routes.cancel(page.ctx, request.form.get("id", ""), None)
    return _back(page)


@pages.post("/agents/<agent>/procedures/resume", scope="approvals", fresh=True)
def resume_procedure(page: PageRequest) -> PageResult:
    """Let a stopped procedure go on."""
    asked = procedure_routes.ResumeRequest(repeat=request.form.get("how") == "repeat")
    procedure_routes.resume(page.ctx, request.form.get("id", ""), asked)
    return _back(page)


def _concerns_all(page: PageRequest) -> bool:
    """Tell whether the form concerns all agents. Raises `HttpProblem` if the key may not."""
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
