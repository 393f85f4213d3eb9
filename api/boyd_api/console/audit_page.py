"""The audit trails: of the deployment, and of each agent."""

from __future__ import annotations

from flask import request

from boyd.models import AuditPage, Verification
from boyd.store import Audit
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.forms import Part, read_filter, read_part
from boyd_api.console.page_request import PageRequest
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem
from boyd_api.routes import administration_routes
from boyd_api.routes.administration_routes import AuditPageQuery, ExportQuery, VerifyQuery

pages = Pages()

#: Entries on one page.
_SHOWN = "100"
#: The most entries of a trail that is verified each time it is shown; others on request.
_AT_ONCE = 2000


@pages.get("/audit")
def deployment(page: PageRequest) -> PageResult:
    """Show the trail of the deployment: keys, sessions, and what concerns all agents."""
    return _show(page)


@pages.get("/agents/<agent>/audit")
def of_agent(page: PageRequest) -> PageResult:
    """Show the trail of an agent."""
    return _show(page)


@pages.get("/audit/export")
def export_deployment(page: PageRequest) -> PageResult:
    """Download the entries of the deployment's trail, oldest first."""
    return _export(page)


@pages.get("/agents/<agent>/audit/export")
def export_of_agent(page: PageRequest) -> PageResult:
    """Download the entries of an agent's trail, oldest first."""
    return _export(page)


def _show(page: PageRequest) -> PageResult:
    filter = read_filter(page, AuditPageQuery, limit=_SHOWN)
    why_not, query, part = _why_not(page), filter.query, Part[AuditPage](None)
    verified, is_requested = None, "verify" in request.args
    if not why_not:
        if query is not None:
            part = read_part(lambda: administration_routes.show(page.ctx, query))
        verified = _verify(page, is_requested)
    return render_page(
        page,
        "audit.html",
        filter=filter,
        why_not=why_not,
        problem=filter.problem or part.why,
        found=part.value,
        verified=verified,
        asked=is_requested,
        is_first="cursor" not in request.args,
    )


def _verify(page: PageRequest, is_requested: bool) -> Verification | None:
    """The verification of the trail, if it is short or *is_requested* for."""
    head = _trail(page).head()
    size = min(head.seq if head else 0, page.services.settings.audit_keep)
    if size > _AT_ONCE and not is_requested:
        return None
    return administration_routes.verify(page.ctx, VerifyQuery())


def _export(page: PageRequest) -> PageResult:
    why_not, filter = _why_not(page), read_filter(page, ExportQuery)
    if why_not:
        raise HttpProblem("forbidden", why_not)
    if filter.query is None:
        raise HttpProblem("bad-request", filter.problem)
    response = administration_routes.export(page.ctx, filter.query)
    name = f"audit-{page.agent_id or 'deployment'}.ndjson"
    response.headers.set("Content-Disposition", "attachment", filename=name)
    return response


def _why_not(page: PageRequest) -> str:
    return page.lacks("admin", everywhere=not page.agent_id)


def _trail(page: PageRequest) -> Audit:
    return page.ctx.agent.store.audit_trail if page.agent_id else page.services.store.audit_trail
