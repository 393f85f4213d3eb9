"""The first argument of every view: who asks for which page."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from flask import g, request

from boyd.models import ApiKey, ApprovalItem, Scope
from boyd_api.console.session import VISITOR, BrowserSession, cookie_value
from boyd_api.http.request_context import RequestContext
from boyd_api.http.services import Services

#: The path of the console, and its first page.
BASE = "/console"
HOME = f"{BASE}/"


def new_nonce() -> str:
    """A number that is used once, which marks the scripts and styles of one response as ours."""
    return secrets.token_urlsafe(16)


@dataclass(frozen=True)
class PageRequest:
    """An admitted request for a page: the first argument of every view.

    Attributes:
        ctx: the same as a route of the API receives, so that pages can call the routes' functions.
        session: the session of the browser; None where none is needed.
    """

    ctx: RequestContext
    session: BrowserSession | None
    nonce: str = field(default_factory=new_nonce)

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

    def needs_login(self, item: ApprovalItem, verb: str) -> bool:
        """True for the approval of a risky item by a login that is no longer recent."""
        return verb == "approve" and item.is_risky and item.status == "pending" and self.is_stale

    @property
    def is_live(self) -> bool:
        """True when the page refreshes itself, so that only its changing part is sent."""
        return "HX-Request" in request.headers

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        return request.full_path.rstrip("?") if request.method == "GET" else referring_page()

    @property
    def agent_id(self) -> str:
        """The id of the agent in the page's path; empty on pages about all agents."""
        return self.ctx.chosen.entry.id if self.ctx.chosen else ""

    @property
    def section(self) -> str:
        """The navigation entry to highlight: the first word of the view's module."""
        return (request.endpoint or "").partition(".")[2].partition("_")[0]

    @property
    def once(self) -> str:
        """An id by which a form that is sent twice is answered once."""
        return secrets.token_hex(16)

    @cached_property
    def csrf(self) -> str:
        """The token that each form on the page must send back."""
        return csrf_token()

    def allows(self, scope: Scope) -> bool:
        """Check that the reader has *scope*."""
        return self.key is None or self.key.allows(scope)

    def lacks(self, scope: Scope, *, everywhere: bool = False) -> str:
        """The reason for denying the reader *scope*, also *everywhere*; empty if they have it."""
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
        """Copy the request for a page about an agent. Raises `UnknownAgent`."""
        ctx = self.ctx
        chosen = self.services.agent(agent_id, ctx.key)
        return PageRequest(
            RequestContext(
                ctx.services, ctx.actor, ctx.key, chosen, ctx.idempotency_key, ctx.now, ctx.is_gone
            ),
            self.session,
            self.nonce,
        )


def csrf_token() -> str:
    """The token of this browser: it follows from the secret in its cookie."""
    secret = cookie_value() or g.get("visitor") or cookie_value(VISITOR)
    if not secret:
        secret = g.visitor = secrets.token_urlsafe(32)
    return hmac.new(secret.encode(), b"csrf", sha256).hexdigest()


def referring_page() -> str:
    """The page whose form was sent: its hidden field names it."""
    return local_path(request.form.get("page", ""))


def local_path(path: str) -> str:
    """*path* if it is one of the console's own, else its first page."""
    is_own = path.startswith(HOME) and path.isprintable() and "\\" not in path
    return path if is_own else HOME
