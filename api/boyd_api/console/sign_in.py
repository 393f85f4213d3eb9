"""Signing in and out: with an API key, or with a one-time link."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from flask import Response, redirect, request

from boyd.models import Actor, ApiKey
from boyd.store.login_sessions import IDLE, KIOSK, LINK, LONGEST
from boyd_api.console import rendering
from boyd_api.console.declared_pages import PageResult, Pages, load_guest_pages
from boyd_api.console.page_request import BASE, HOME, PageRequest, csrf_token, local_path
from boyd_api.console.session import (
    LOGIN_STATE,
    SESSION,
    admit_session,
    cookie_value,
    delete_cookie,
    is_secure,
    set_cookie,
)
from boyd_api.http import auth
from boyd_api.http.problems import HttpProblem
from boyd_api.oidc.identities import NoScopes, ProviderUnavailable, TokenRefused

if TYPE_CHECKING:
    from boyd_api.oidc.provider import IdentityProvider


pages = Pages()

_WHY = {
    "": "",
    "confirm": "This operation needs a login within the last five minutes. Sign in again.",
    "left": "You are signed out.",
}


@pages.get("/login", scope=None)
def login(page: PageRequest) -> PageResult:
    """Show the form to sign in."""
    return show_form(page, reason=_WHY.get(request.args.get("why", ""), ""))


@pages.post("/login", scope=None)
def sign_in(page: PageRequest) -> PageResult:
    """Open a session with an API key."""
    try:
        key = auth.admit_text(page.services, request.form.get("key", "").strip())
    except HttpProblem as problem:
        return show_form(page, reason=str(problem), status=problem.kind.status)
    return open_session(page, key, local_path(request.form.get("next", "")))


@pages.get("/open/<token>", scope=None)
def one_time(page: PageRequest, token: str) -> PageResult:
    """Show the button that uses a one-time link.

    A script presses it, also for a program that checks links and runs scripts, so no message has
    such a link. A page of another site that leads here might sign the reader in as somebody else.
    """
    is_direct = request.headers.get("Sec-Fetch-Site") == "none"
    return _plain(page, "open.html", token=token, is_direct=is_direct)


@pages.post("/open/<token>", scope=None)
def use_one_time(page: PageRequest, token: str) -> PageResult:
    """Open a session with a one-time link."""
    key = page.services.store.login_sessions.use_link(token)
    if key is None:
        age = f"older than {int(LINK / 60)} minutes"
        reason = f"The link was used before, or is {age}: `boyd open` gives a new one."
        return show_form(page, reason=reason, status=403)
    return open_session(page, key, HOME)


@pages.post("/logout", scope="read")
def sign_out(page: PageRequest) -> PageResult:
    """Close the session."""
    if page.session is not None:
        page.services.store.login_sessions.close(page.session.id, page.ctx.actor)
    response = _goodbye(page)
    delete_cookie(response)
    return response


def _goodbye(page: PageRequest) -> PageResult:
    """The page after signing out, which goes on to the provider if that vouched for the user.

    It is no redirect: browsers apply the policy of the form, `form-action`, to redirects as well.
    """
    provider, key = page.services.provider, page.key
    url = provider.logout_url() if provider and key and key.is_identity else None
    if provider is None or url is None:
        return redirect("/console/login?why=left", 303)
    response = _plain(page, "signed_out.html", url=url, name=provider.name)
    response.headers["Refresh"] = f"0; url={url}"
    return response


def open_session(page: PageRequest, key: ApiKey, where: str, age: float | None = 0.0) -> PageResult:
    """Open a session, which replaces the one that the browser had, and go to the page *where*.

    *age* is how many seconds ago the user proved who they are, if that is known.
    """
    sessions = page.services.store.login_sessions
    before = admit_session(page.services)
    browser = request.headers.get("User-Agent", "")
    secret = sessions.open(key, address=request.remote_addr, browser=browser, age=age)
    if before is not None:
        sessions.close(before.id, key.actor(request.remote_addr))
    response = redirect(f"{BASE}/kiosk" if key.is_kiosk else where, 303)
    set_cookie(response, SESSION, secret, is_secure(), KIOSK if key.is_kiosk else None)
    return response


def show_form(page: PageRequest, reason: str, status: int = 200, back: str = "") -> PageResult:
    """Show the form to sign in, which then leads *back*."""
    provider = page.services.provider
    where = back or local_path(request.values.get("next", ""))
    again = {"why": "confirm"} if request.args.get("why") == "confirm" else {}
    query = urlencode({"next": where, **again})
    return _plain(
        page,
        "login.html",
        status,
        reason=reason,
        next=where,
        provider=provider.name if provider else "",
        # At the public address, where the provider sends the browser back to.
        begin=f"{page.services.settings.api.url}{BASE}/oidc/login?{query}",
        idle=int(IDLE / 60),
        longest=int(LONGEST / 3600),
    )


def _plain(page: PageRequest, template: str, status: int = 200, **values: object) -> PageResult:
    return rendering.render_public(template, page.nonce, status, csrf=csrf_token(), **values)


@pages.get("/oidc/login", scope=None)
def begin_oidc(page: PageRequest) -> PageResult:
    """Send the browser to the provider, with a secret by which its return is recognized."""
    provider = _provider(page)
    secret = secrets.token_urlsafe(32)
    again = request.args.get("why") == "confirm"
    try:
        where = provider.login_url(secret, again=again)
    except ProviderUnavailable as error:
        return show_form(page, reason=f"{provider.name}: {error}", status=503)
    response = redirect(where, 303)
    state = json.dumps([secret, again, local_path(request.args.get("next", ""))])
    set_cookie(
        response, LOGIN_STATE, base64.urlsafe_b64encode(state.encode()).decode(), is_secure()
    )
    return response


@pages.get("/oidc/callback", scope=None)
def finish_oidc(page: PageRequest) -> PageResult:
    """Open a session for the person whom the provider names."""
    provider = _provider(page)
    secret, again, where = _login_state()
    try:
        login = provider.finish_login(secret, request.args)
        if again and login.age is None:
            raise TokenRefused(f"{provider.name} does not tell when you signed in ('auth_time')")
        response = open_session(page, login.identity, where, login.age)
    except (TokenRefused, NoScopes) as error:
        response = show_form(
            page, reason=f"You are not signed in: {error}.", status=403, back=where
        )
    except ProviderUnavailable as error:
        response = show_form(
            page, reason=f"You are not signed in: {error}.", status=503, back=where
        )
    delete_cookie(response, LOGIN_STATE)
    return response


@pages.post("/oidc/backchannel-logout", scope=None, signed=True)
def log_out_everywhere(page: PageRequest) -> PageResult:
    """Close all sessions of the person whom the provider has signed out."""
    provider = _provider(page)
    try:
        principal = provider.read_logout(request.form.get("logout_token", ""))
    except TokenRefused as error:
        raise HttpProblem("bad-request", str(error)) from None
    except ProviderUnavailable as error:
        raise HttpProblem("unavailable", str(error)) from None
    by = Actor(principal=principal, address=request.remote_addr)
    page.services.store.login_sessions.close_all(principal, by)
    for end in (end for pages in load_guest_pages().values() for end in pages.logouts):
        end(page.services, by)
    return Response(status=200)


def _provider(page: PageRequest) -> IdentityProvider:
    if page.services.provider is None:
        raise HttpProblem("not-found", "no identity provider is set: see the settings oidc")
    return page.services.provider


def _login_state() -> tuple[str, bool, str]:
    """The secret, purpose and target of the login that this browser has begun."""
    try:
        state = json.loads(base64.urlsafe_b64decode(cookie_value(LOGIN_STATE) or ""))
        secret, again, where = state
        return str(secret), bool(again), local_path(str(where))
    except (ValueError, TypeError):
        # With a secret of its own, no answer fits.
        return secrets.token_urlsafe(32), False, HOME
