"""Admits and answers each request to a page of the console.

A page reads with `page.ctx`: from the store and the archive, or by calling functions of the routes.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from flask import Blueprint, Flask, Response, g, redirect, request

from boyd.models import agent_of
from boyd_api.console import rendering
from boyd_api.console.declared_pages import Page, PageResult, Pages
from boyd_api.console.page_request import BASE, HOME, PageRequest, csrf_token, referring_page
from boyd_api.console.session import VISITOR, admit_session, is_secure, set_cookie
from boyd_api.http import auth
from boyd_api.http.event_streams import MEDIA_TYPE as EVENT_STREAM
from boyd_api.http.problems import HttpProblem, problem_of
from boyd_api.http.request_context import RequestContext, read_disconnection
from boyd_api.http.services import Services

#: The name of the blueprint.
CONSOLE = "console"
LOGIN = f"{BASE}/login"
#: The most bytes of a form.
_FORM = 262_144

_STALE_FORM = "the form is out of date: open the page again, and repeat what you did"
#: Browsers keep cookies that are marked as secure only from HTTPS, and from the host itself.
_NO_COOKIE = (
    "your browser has kept no cookie: open the console over HTTPS, or on its own host as 127.0.0.1"
)


def mount(app: Flask, services: Services, modules: Iterable[Pages]) -> None:
    """Serve the pages of these modules with *app*."""
    blueprint = Blueprint(CONSOLE, __name__)
    for page in (page for module in modules for page in module.all):
        view = partial(_serve, services, page)
        blueprint.add_url_rule(BASE + page.path, page.endpoint, view, methods=[page.method])
    blueprint.add_url_rule(f"{BASE}/<path:rest>", "unknown", _no_page)
    blueprint.before_request(_limit_form)
    blueprint.register_error_handler(Exception, _show_error)
    blueprint.after_request(_keep_visitor)
    rendering.serve_static(blueprint)
    app.register_blueprint(blueprint)


def _limit_form() -> None:
    request.max_content_length = request.max_form_memory_size = _FORM
    if request.method == "POST":
        request.get_data()  # kept: a form that is sent again is known by its content


def _serve(services: Services, page: Page, **parts: Any) -> PageResult:
    opened = open_page(services, page)
    if not isinstance(opened, PageRequest):
        return opened
    if page.method == "POST" and not page.signed:
        check_origin(services)
        _check_csrf()
        if page.fresh and opened.is_stale:
            return to_login("confirm", referring_page())
    agent_id = parts.pop("agent", None)
    if agent_id is not None:
        opened = opened.of(agent_id)
    return page.view(opened, **parts)


def open_page(services: Services, page: Page) -> PageRequest | PageResult:
    """The admitted request; or, without a session, a redirect to the login."""
    is_gone = read_disconnection()
    if page.scope is None:
        caller = auth.anonymous()
        return PageRequest(
            RequestContext(services, caller.actor, None, None, None, None, is_gone), None
        )
    session = admit_session(services)
    if session is None:
        if not services.settings.api.allow_unauthenticated:
            return to_login("", request.full_path.rstrip("?") if request.method == "GET" else HOME)
        caller = auth.admit_anonymous(services)
    else:
        caller = auth.Caller(session.key.actor(request.remote_addr), session.key)
    g.caller = caller
    if caller.key is not None and not caller.key.allows(page.scope):
        detail = f"the key {caller.key.name!r} lacks the scope {page.scope!r}"
        raise HttpProblem("forbidden", detail, scope=page.scope)
    if caller.key is not None and agent_of(caller.key.principal) is not None:
        raise HttpProblem("forbidden", f"{caller.key.principal} is an agent: it uses the API")
    once = request.form.get("request") if request.method == "POST" else None
    ctx = RequestContext(services, caller.actor, caller.key, None, once, g.get("now"), is_gone)
    return PageRequest(ctx, session)


def to_login(reason: str, back: str, **query: str) -> PageResult:
    """Redirect to the login, and from there *back*, with that *query*."""
    joint = "&" if "?" in back else "?"
    target = f"{back}{joint}{urlencode(query)}" if any(query.values()) else back
    where = f"{LOGIN}?{urlencode({'next': target, 'why': reason})}"
    if "HX-Request" in request.headers:
        # A page that refreshes itself cannot show the login in its place.
        return Response(status=401, headers={"HX-Redirect": where})
    if request.accept_mimetypes.best == EVENT_STREAM:
        return Response(status=401)
    return redirect(where, 303)


def check_origin(services: Services) -> None:
    """Raise `HttpProblem` unless the form was sent by a page of this console.

    A browser sends `Origin: null` with a form of a page without a referrer, as ours are, but tells
    in `Sec-Fetch-Site` that the page is of the same origin. Pages cannot set either.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        allowed = site == "same-origin"
    else:
        public = urlsplit(services.settings.api.url).netloc
        allowed = (origin or "").partition("://")[2] in {request.host, public} - {""}
    if not allowed:
        raise HttpProblem("forbidden", "the form was not sent by a page of this console")


def _check_csrf() -> None:
    sent = request.form.get("csrf", "")
    if not hmac.compare_digest(sent.encode(), csrf_token().encode()):
        raise HttpProblem("forbidden", _STALE_FORM if request.cookies else _NO_COOKIE)


def _no_page(rest: str) -> PageResult:
    raise HttpProblem("not-found", f"the console has no page /console/{rest}")


def _show_error(error: Exception) -> PageResult:
    """The page that tells what went wrong."""
    problem = problem_of(error)
    g.problem = problem
    response = rendering.problem(problem)
    response.headers.extend(problem.headers)
    return response


def _keep_visitor(response: PageResult) -> PageResult:
    """Give a browser without a session the secret that its forms depend on."""
    if "visitor" in g:
        set_cookie(response, VISITOR, g.visitor, is_secure())
    return response
