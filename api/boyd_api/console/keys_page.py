"""API keys, and the sessions of browsers: who can do what, and who is signed in."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from flask import request
from pydantic import ValidationError
from werkzeug.utils import redirect

from boyd.models import SCOPES, explain, responses
from boyd.store.login_sessions import OpenSession
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.console.pages import LOGIN
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.routes import administration_routes
from boyd_api.routes.administration_routes import KeyRequest

pages = Pages()

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


@pages.get("/keys")
def keys(page: PageRequest) -> PageResult:
    """Show the keys and sessions that the reader may see."""
    return _show(page)


@pages.post("/keys", scope="admin", fresh=True)
def create(page: PageRequest) -> PageResult:
    """Create a key, and show its text once."""
    _check(page)
    try:
        body = KeyRequest.model_validate(_read_form())
    except ValidationError as error:
        return _show(page, 400, problem=explain(error), open_form="create")
    key = administration_routes.create(page.ctx, body).body
    return render_page(page, "key_created.html", made=key)


@pages.post("/keys/<id>/revoke", scope="admin", fresh=True)
def revoke(page: PageRequest, id: str) -> PageResult:
    """Revoke a key."""
    _check(page)
    administration_routes.revoke(page.ctx, id)
    return redirect(_HERE, 303)


@pages.post("/sessions/<id>/close", scope="read")
def close(page: PageRequest, id: str) -> PageResult:
    """Close a session: one's own, or, with the scope `admin`, any."""
    if id not in {session.id for session in _sessions(page)}:
        raise not_found("no such session is open, or it is not yours")
    page.services.store.login_sessions.close(id, page.ctx.actor)
    return redirect(_HERE, 303)


def _show(
    page: PageRequest, status: int = 200, problem: str = "", open_form: str = ""
) -> PageResult:
    why_not = _why_not(page)
    keys = [] if why_not else administration_routes.show_keys(page.ctx).keys
    return render_page(
        page,
        "keys.html",
        status,
        why_not=why_not,
        keys=keys,
        revoked=_find(keys, request.args.get("revoke")),
        sessions=_sessions(page),
        asked=open_form or request.args.get("do", ""),
        problem=problem,
        form=request.form,
        must_sign_in=_sign_in_address(page),
        scopes=SCOPES,
        lifetimes=LIFETIMES,
        browser_name=browser_name,
    )


def _find(keys: list[responses.KeyInfo], id: str | None) -> responses.KeyInfo | None:
    return next((key for key in keys if key.id == id), None)


def _read_form() -> dict[str, object]:
    """The key that the form describes."""
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
    if not _why_not(page):
        return sessions
    return [
        session for session in sessions if page.key is not None and session.key_id == page.key.id
    ]


def _check(page: PageRequest) -> None:
    if _why_not(page):
        raise HttpProblem("forbidden", _why_not(page))


def _why_not(page: PageRequest) -> str:
    return page.lacks("admin", everywhere=True)


def browser_name(agent: str | None) -> str:
    """A browser and its system, from its header `User-Agent`."""
    text = agent or ""
    marks = ((name, mark.search(text)) for name, mark in _BROWSERS)
    name = next((f"{name} {match[1]}" for name, match in marks if match), "")
    system = next((candidate for candidate in _SYSTEMS if candidate in text), "")
    title = f"{name} on {system}" if name and system else name
    return title or text or "unknown"
