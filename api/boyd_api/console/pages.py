"""Pages of the console: their declaration, and how each request to one is admitted and answered.

    pages = Pages()

    @pages.get("/fleet", scope="read")
    def fleet(page: PageRequest) -> Response:
        \"\"\"Show the workers and their queues.\"\"\"
        return page.render("fleet.html", workers=…)

A page reads what the API's routes read, by calling their functions with `page.ctx`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode, urlsplit

from flask import Blueprint, Flask, Response, g, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from boyd.models import ApiKey, Scope, agent_of
from boyd_api import auth
from boyd_api.console import rendering
from boyd_api.console.session import (
    VISITOR,
    BrowserSession,
    admit_session,
    cookie_value,
    is_secure,
    set_cookie,
)
from boyd_api.event_streams import MEDIA_TYPE as EVENT_STREAM
from boyd_api.problems import HttpProblem, problem_of
from boyd_api.request_context import RequestContext
from boyd_api.services import Services

#: The name of the blueprint.
CONSOLE = "console"
#: The path of the console, and its first page.
BASE = "/console"
HOME = f"{BASE}/"
LOGIN = f"{BASE}/login"
#: The most bytes of a form.
_FORM = 262_144

_STALE_FORM = "the form is out of date: open the page again, and repeat what you did"
#: Browsers keep cookies that are marked as secure only from HTTPS, and from the host itself.
_NO_COOKIE = (
    "your browser has kept no cookie: open the console over HTTPS, or on its own host as 127.0.0.1"
)

PageResult = Response | AnyResponse
_V = TypeVar("_V", bound=Callable[..., PageResult])


@dataclass(frozen=True)
class Page:
    """A declared page.

    Attributes:
        path: below `BASE`; a page of one agent has `<agent>` in it.
        scope: the scope that its reader needs; None: it is open to all.
        fresh: it needs a recent login.
        signed: a program sends it, with a signature that the view checks, not a form.
    """

    method: Literal["GET", "POST"]
    path: str
    view: Callable[..., PageResult]
    scope: Scope | None
    fresh: bool = False
    signed: bool = False

    @property
    def endpoint(self) -> str:
        """Its name in the blueprint."""
        module = self.view.__module__.rpartition(".")[2]
        return f"{module}_{self.view.__name__}"


class Pages:
    """The pages of one module."""

    def __init__(self) -> None:
        self.all: list[Page] = []

    def get(self, path: str, scope: Scope | None = "read") -> Callable[[_V], _V]:
        """Declare a page that shows something, and changes nothing."""
        return self._add("GET", path, scope)

    def post(
        self, path: str, scope: Scope | None, *, fresh: bool = False, signed: bool = False
    ) -> Callable[[_V], _V]:
        """Declare the receiver of a form, or of a signed message."""
        return self._add("POST", path, scope, fresh, signed)

    def _add(
        self,
        method: Literal["GET", "POST"],
        path: str,
        scope: Scope | None,
        fresh: bool = False,
        signed: bool = False,
    ) -> Callable[[_V], _V]:
        def declare(view: _V) -> _V:
            self.all.append(Page(method, path, view, scope, fresh, signed))
            return view

        return declare


@dataclass(frozen=True)
class PageRequest:
    """An admitted request for a page: the first argument of every view.

    Attributes:
        ctx: the same as a route of the API receives, so that pages can call the routes' functions.
        session: the session of the browser; None where none is needed.
    """

    ctx: RequestContext
    session: BrowserSession | None
    nonce: str = field(default_factory=rendering.new_nonce)

    @property
    def services(self) -> Services:
        """The services of this process."""
        return self.ctx.services

    @property
    def key(self) -> ApiKey | None:
        """The identity of the reader; None where none is needed."""
        return self.ctx.key

    @property
    def is_stale(self) -> bool:
        """True if the last login is too long ago for what is dangerous."""
        return self.session is not None and not self.session.is_fresh

    @property
    def is_live(self) -> bool:
        """True when the page refreshes itself, so that only its changing part is sent."""
        return "HX-Request" in request.headers

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        return request.full_path.rstrip("?") if request.method == "GET" else _referring_page()

    @property
    def agent_id(self) -> str:
        """The agent that the page concerns; empty if it concerns several."""
        return self.ctx.chosen.entry.id if self.ctx.chosen else ""

    @property
    def section(self) -> str:
        """The entry of the navigation that the page belongs to."""
        return (request.endpoint or "").partition(".")[2].partition("_")[0]

    @property
    def once(self) -> str:
        """An id by which a form that is sent twice is answered once."""
        return secrets.token_hex(16)

    @cached_property
    def csrf(self) -> str:
        """The token that forms of this browser carry."""
        return csrf_token()

    def allows(self, scope: Scope) -> bool:
        """Tell whether the reader has *scope*."""
        return self.key is None or self.key.allows(scope)

    def lacks(self, scope: Scope, *, everywhere: bool = False) -> str:
        """The reason why the reader may not use *scope*, or not *everywhere*; empty: they may."""
        key = self.key
        if key is None:
            return ""
        if not key.allows(scope):
            return f"your key {key.name!r} lacks the scope {scope!r}"
        if everywhere and key.agents:
            limit = ", ".join(key.agents)
            return f"it concerns all agents, and your key {key.name!r} is limited to {limit}"
        return ""

    def of(self, agent_id: str) -> PageRequest:
        """The same request, concerning that agent. Raises `UnknownAgent`."""
        ctx = self.ctx
        chosen = self.services.agent(agent_id, ctx.key)
        return PageRequest(
            RequestContext(
                ctx.services, ctx.actor, ctx.key, chosen, ctx.idempotency_key, ctx.now, ctx.gone
            ),
            self.session,
            self.nonce,
        )

    def render(self, template: str, code: int = 200, **values: Any) -> Response:
        """Respond with a template, whose frame shows the state of the deployment."""
        return rendering.page(self, template, code, **values)


def mount(app: Flask, services: Services, modules: Iterable[Pages]) -> None:
    """Serve the pages of these modules with *app*."""
    blueprint = Blueprint(CONSOLE, __name__)
    for page in (page for module in modules for page in module.all):
        view = partial(_serve, services, page)
        blueprint.add_url_rule(BASE + page.path, page.endpoint, view, methods=[page.method])
    blueprint.add_url_rule(f"{BASE}/<path:rest>", "unknown", _unknown)
    blueprint.before_request(_limit_form)
    blueprint.register_error_handler(Exception, _failed)
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
            return to_login("confirm", _referring_page())
    agent_id = parts.pop("agent", None)
    if agent_id is not None:
        opened = opened.of(agent_id)
    return page.view(opened, **parts)


def open_page(services: Services, page: Page) -> PageRequest | PageResult:
    """The admitted request; or, without a session, a redirect to the login."""
    gone = request.environ.get("waitress.client_disconnected", lambda: False)
    if page.scope is None:
        caller = auth.anonymous()
        return PageRequest(
            RequestContext(services, caller.actor, None, None, None, None, gone), None
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
    ctx = RequestContext(services, caller.actor, caller.key, None, once, g.get("now"), gone)
    return PageRequest(ctx, session)


def to_login(why: str, back: str, **query: str) -> PageResult:
    """Redirect to the login, and from there *back*, with that *query*."""
    joint = "&" if "?" in back else "?"
    target = f"{back}{joint}{urlencode(query)}" if any(query.values()) else back
    where = f"{LOGIN}?{urlencode({'next': target, 'why': why})}"
    if "HX-Request" in request.headers:
        # A page that refreshes itself cannot show the login in its place.
        return Response(status=401, headers={"HX-Redirect": where})
    if request.accept_mimetypes.best == EVENT_STREAM:
        return Response(status=401)
    return redirect(where, 303)


def _referring_page() -> str:
    """The page whose form was sent: its hidden field names it."""
    return local_path(request.form.get("page", ""))


def local_path(path: str) -> str:
    """*path* if it is one of the console's own, else its first page."""
    is_own = path.startswith(HOME) and path.isprintable() and "\\" not in path
    return path if is_own else HOME


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


def csrf_token() -> str:
    """The token of this browser: it follows from the secret in its cookie."""
    secret = cookie_value() or g.get("visitor") or cookie_value(VISITOR)
    if not secret:
        secret = g.visitor = secrets.token_urlsafe(32)
    return hmac.new(secret.encode(), b"csrf", sha256).hexdigest()


def _check_csrf() -> None:
    sent = request.form.get("csrf", "")
    if not hmac.compare_digest(sent.encode(), csrf_token().encode()):
        raise HttpProblem("forbidden", _STALE_FORM if request.cookies else _NO_COOKIE)


def _unknown(rest: str) -> PageResult:
    raise HttpProblem("not-found", f"the console has no page /console/{rest}")


def _failed(error: Exception) -> PageResult:
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
