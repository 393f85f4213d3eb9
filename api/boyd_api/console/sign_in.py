"""Signing in and out: with an API key, or with a one-time link."""

from __future__ import annotations

from flask import redirect, request

from boyd.models import ApiKey
from boyd.store.login_sessions import IDLE, LINK, LONGEST
from boyd_api import auth
from boyd_api.console import rendering
from boyd_api.console.pages import (
    HOME,
    PageRequest,
    PageResult,
    Pages,
    csrf_token,
    local_path,
)
from boyd_api.console.session import (
    SESSION,
    admit_session,
    delete_cookie,
    is_secure,
    set_cookie,
)
from boyd_api.problems import HttpProblem

pages = Pages()

_WHY = {
    "": "",
    "confirm": "This operation needs a login within the last five minutes. Sign in again.",
    "left": "You are signed out.",
}


@pages.get("/login", scope=None)
def login(page: PageRequest) -> PageResult:
    """Show the form to sign in."""
    return _form(page, why=_WHY.get(request.args.get("why", ""), ""))


@pages.post("/login", scope=None)
def sign_in(page: PageRequest) -> PageResult:
    """Open a session with an API key."""
    try:
        key = auth.admit_text(page.services, request.form.get("key", "").strip())
    except HttpProblem as problem:
        return _form(page, why=str(problem), status=problem.kind.status)
    return _opened(page, key, local_path(request.form.get("next", "")))


@pages.get("/open/<token>", scope=None)
def one_time(page: PageRequest, token: str) -> PageResult:
    """Show the button that uses a one-time link: programs that look at links do not press it."""
    return _plain(page, "open.html", token=token)


@pages.post("/open/<token>", scope=None)
def use_one_time(page: PageRequest, token: str) -> PageResult:
    """Open a session with a one-time link."""
    key = page.services.store.sessions.use_link(token)
    if key is None:
        age = f"older than {int(LINK / 60)} minutes"
        why = f"The link was used before, or is {age}: `boyd open` gives a new one."
        return _form(page, why=why, status=403)
    return _opened(page, key, HOME)


@pages.post("/logout", scope="read")
def sign_out(page: PageRequest) -> PageResult:
    """Close the session."""
    if page.session is not None:
        page.services.store.sessions.close(page.session.id, page.ctx.actor)
    response = redirect("/console/login?why=left", 303)
    delete_cookie(response)
    return response


def _opened(page: PageRequest, key: ApiKey, where: str) -> PageResult:
    """Open a session, which replaces the one that the browser had."""
    sessions = page.services.store.sessions
    before = admit_session(page.services)
    browser = request.headers.get("User-Agent", "")
    secret = sessions.open(key, address=request.remote_addr, browser=browser)
    if before is not None:
        sessions.close(before.id, key.actor(request.remote_addr))
    response = redirect(where, 303)
    set_cookie(response, SESSION, secret, is_secure())
    return response


def _form(page: PageRequest, why: str, status: int = 200) -> PageResult:
    return _plain(
        page,
        "login.html",
        status,
        why=why,
        next=local_path(request.values.get("next", "")),
        idle=int(IDLE / 60),
        longest=int(LONGEST / 3600),
    )


def _plain(page: PageRequest, template: str, status: int = 200, **values: object) -> PageResult:
    return rendering.plain(template, page.nonce, status, csrf=csrf_token(), **values)
