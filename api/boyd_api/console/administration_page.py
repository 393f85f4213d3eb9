"""The pages of administrators: audit trails, API keys, and the sessions of browsers."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from flask import request
from pydantic import ValidationError
from werkzeug.utils import redirect

from boyd.models import SCOPES, AuditPage, Verification, explain, responses
from boyd.store import Audit
from boyd.store.login_sessions import OpenSession
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest, Part, read_filter, read_part
from boyd_api.console.pages import LOGIN
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.routes import administration_routes
from boyd_api.routes.administration_routes import (
    AuditPageQuery,
    ExportQuery,
    KeyRequest,
    VerifyQuery,
)

audit_pages = Pages(section="audit")
key_pages = Pages(section="keys")

#: Entries on one page.
_SHOWN = "100"
#: The most entries of a trail that is verified each time it is shown; others on request.
_AT_ONCE = 2000


@audit_pages.get("/audit")
def deployment(page: PageRequest) -> PageResult:
    """Show the trail of the deployment: keys, sessions, and what concerns all agents."""
    return _show_trail(page)


@audit_pages.get("/agents/<agent>/audit")
def of_agent(page: PageRequest) -> PageResult:
    """Show the trail of an agent."""
    return _show_trail(page)


@audit_pages.get("/audit/export")
def export_deployment(page: PageRequest) -> PageResult:
    """Download the entries of the deployment's trail, oldest first."""
    return _export(page)


@audit_pages.get("/agents/<agent>/audit/export")
def export_of_agent(page: PageRequest) -> PageResult:
    """Download the entries of an agent's trail, oldest first."""
    return _export(page)


def _show_trail(page: PageRequest) -> PageResult:
    filter = read_filter(page, AuditPageQuery, limit=_SHOWN)
    why_not, query, part = _trail_refusal(page), filter.query, Part[AuditPage](None)
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
    why_not, filter = _trail_refusal(page), read_filter(page, ExportQuery)
    if why_not:
        raise HttpProblem("forbidden", why_not)
    if filter.query is None:
        raise HttpProblem("bad-request", filter.problem)
    response = administration_routes.export(page.ctx, filter.query)
    name = f"audit-{page.agent_id or 'deployment'}.ndjson"
    response.headers.set("Content-Disposition", "attachment", filename=name)
    return response


def _trail_refusal(page: PageRequest) -> str:
    return page.lacks("admin", everywhere=not page.agent_id)


def _trail(page: PageRequest) -> Audit:
    return page.ctx.agent.store.audit_trail if page.agent_id else page.services.store.audit_trail


_HERE = "/console/keys"
_DAY = 86_400.0
#: Lifetimes that the form offers, in days; 0: no end.
LIFETIMES = (1, 7, 30, 90, 365, 0)
#: Names of browsers by their mark in `User-Agent`; most carry the marks of the later ones, too.
_BROWSERS = (
    ("Firefox", re.compile(r"Firefox/(\d+)")),
    ("Edge", re.compile(r"Edg/(\d+)")),
    ("Opera", re.compile(r"OPR/(\d+)")),
    ("Chrome", re.compile(r"Chrome/(\d+)")),
    ("Safari", re.compile(r"Version/(\d+)")),
)
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")


@key_pages.get("/keys")
def keys(page: PageRequest) -> PageResult:
    """Show the keys and sessions that the reader may see."""
    return _show_keys(page)


@key_pages.post("/keys", scope="admin", fresh=True)
def create(page: PageRequest) -> PageResult:
    """Create a key, and show its text once."""
    _check_keys(page)
    try:
        body = KeyRequest.model_validate(_read_form())
    except ValidationError as error:
        return _show_keys(page, 400, problem=explain(error), open_form="create")
    key = administration_routes.create(page.ctx, body).body
    return render_page(page, "key_created.html", made=key)


@key_pages.post("/keys/<id>/revoke", scope="admin", fresh=True)
def revoke(page: PageRequest, id: str) -> PageResult:
    """Revoke a key."""
    _check_keys(page)
    administration_routes.revoke(page.ctx, id)
    return redirect(_HERE, 303)


@key_pages.post("/sessions/<id>/close", scope="read")
def close(page: PageRequest, id: str) -> PageResult:
    """Close a session: one's own, or, with the scope `admin`, any."""
    if id not in {session.id for session in _sessions(page)}:
        raise not_found("no such session is open, or it is not yours")
    page.services.store.login_sessions.close(id, page.ctx.actor)
    return redirect(_HERE, 303)


def _show_keys(
    page: PageRequest, status: int = 200, problem: str = "", open_form: str = ""
) -> PageResult:
    why_not = _key_refusal(page)
    keys = [] if why_not else administration_routes.show_keys(page.ctx).keys
    return render_page(
        page,
        "keys.html",
        status,
        why_not=why_not,
        keys=keys,
        revoked=_find_key(keys, request.args.get("revoke")),
        sessions=_sessions(page),
        asked=open_form or request.args.get("do", ""),
        problem=problem,
        form=request.form,
        must_sign_in=_sign_in_address(page),
        scopes=SCOPES,
        lifetimes=LIFETIMES,
        browser_name=browser_name,
    )


def _find_key(keys: list[responses.KeyInfo], id: str | None) -> responses.KeyInfo | None:
    return next((key for key in keys if key.id == id), None)


def _read_form() -> dict[str, object]:
    """Read the fields of a new key."""
    form = request.form
    days = form.get("days", type=int, default=-1)
    if days not in LIFETIMES:
        raise HttpProblem("bad-request", "the form is not one of this page: open it again")
    return {
        "name": form.get("name", "").strip(),
        "principal": form.get("principal", "").strip(),
        "person": "person" in form,
        "scopes": form.getlist("scopes"),
        "groups": [word for word in re.split(r"[\s,]+", form.get("groups", "")) if word],
        "agents": form.getlist("agents"),
        "may": [line.strip() for line in form.get("may", "").splitlines() if line.strip()],
        "expiresIn": days * _DAY or None,
    }


def _sign_in_address(page: PageRequest) -> str:
    """The address to sign in again before keys can be changed; empty if that was just done."""
    if not page.is_stale:
        return ""
    return f"{LOGIN}?{urlencode({'why': 'confirm', 'next': page.here})}"


def _sessions(page: PageRequest) -> list[OpenSession]:
    """The open sessions: all for who may see keys, else those of the reader's key."""
    sessions = page.services.store.login_sessions.all()
    if not _key_refusal(page):
        return sessions
    return [
        session for session in sessions if page.key is not None and session.key_id == page.key.id
    ]


def _check_keys(page: PageRequest) -> None:
    if _key_refusal(page):
        raise HttpProblem("forbidden", _key_refusal(page))


def _key_refusal(page: PageRequest) -> str:
    return page.lacks("admin", everywhere=True)


def browser_name(agent: str | None) -> str:
    """A browser and its system, from its header `User-Agent`."""
    text = agent or ""
    marks = ((name, mark.search(text)) for name, mark in _BROWSERS)
    name = next((f"{name} {match[1]}" for name, match in marks if match), "")
    system = next((candidate for candidate in _SYSTEMS if candidate in text), "")
    title = f"{name} on {system}" if name and system else name
    return title or text or "unknown"
