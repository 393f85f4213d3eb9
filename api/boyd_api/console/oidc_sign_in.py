"""Signing in with the identity provider, which may also end sessions."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING

from flask import Response, redirect, request

from boyd.models import Actor
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import HOME, PageRequest, local_path
from boyd_api.console.session import LOGIN_STATE, cookie_value, delete_cookie, is_secure, set_cookie
from boyd_api.console.sign_in import open_session, show_form
from boyd_api.http.problems import HttpProblem
from boyd_api.oidc.identities import NoScopes, ProviderUnavailable, TokenRefused

if TYPE_CHECKING:
    from boyd_api.oidc.provider import IdentityProvider

pages = Pages()


@pages.get("/oidc/login", scope=None)
def begin_oidc(page: PageRequest) -> PageResult:
    """Send the browser to the provider, with a secret by which its return is recognized."""
    provider = _provider(page)
    secret = secrets.token_urlsafe(32)
    again = request.args.get("why") == "confirm"
    try:
        where = provider.login_url(secret, again=again)
    except ProviderUnavailable as error:
        return show_form(page, why=f"{provider.name}: {error}", status=503)
    response = redirect(where, 303)
    kept = json.dumps([secret, again, local_path(request.args.get("next", ""))])
    set_cookie(response, LOGIN_STATE, base64.urlsafe_b64encode(kept.encode()).decode(), is_secure())
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
        response = show_form(page, why=f"You are not signed in: {error}.", status=403, back=where)
    except ProviderUnavailable as error:
        response = show_form(page, why=f"You are not signed in: {error}.", status=503, back=where)
    delete_cookie(response, LOGIN_STATE)
    return response


@pages.post("/oidc/backchannel-logout", scope=None, signed=True)
def log_out_everywhere(page: PageRequest) -> PageResult:
    """Close all sessions of the person whom the provider has signed out."""
    provider = _provider(page)
    try:
        principal = provider.logged_out(request.form.get("logout_token", ""))
    except TokenRefused as error:
        raise HttpProblem("bad-request", str(error)) from None
    except ProviderUnavailable as error:
        raise HttpProblem("unavailable", str(error)) from None
    by = Actor(principal=principal, address=request.remote_addr)
    page.services.store.login_sessions.close_all(principal, by)
    return Response(status=200)


def _provider(page: PageRequest) -> IdentityProvider:
    if page.services.provider is None:
        raise HttpProblem("not-found", "no identity provider is set: see the settings oidc")
    return page.services.provider


def _login_state() -> tuple[str, bool, str]:
    """The secret, purpose and target of the login that this browser has begun."""
    try:
        kept = json.loads(base64.urlsafe_b64decode(cookie_value(LOGIN_STATE) or ""))
        secret, again, where = kept
        return str(secret), bool(again), local_path(str(where))
    except (ValueError, TypeError):
        # With a secret of its own, no answer fits.
        return secrets.token_urlsafe(32), False, HOME
