"""The admitted request for a page, which every view receives."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256

from flask import g, request

from boyd.models import ApiKey, ApprovalItem, ApprovalQueue, Scope
from boyd.store import DEPLOYMENT, Store
from boyd.store.freezes import Stop
from boyd.store.hashes import readable
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
        """The same request, concerning that agent. Raises `UnknownAgent`."""
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


#: The most approvals that one list shows.
LISTED = 200


@dataclass(frozen=True)
class AgentLink:
    """An agent in the switch, and what stops it."""

    id: str
    name: str
    paused: Stop | None
    frozen: Stop | None
    revoked: Stop | None


@dataclass(frozen=True)
class Inbox:
    """The first approvals that wait, by deadline; the badge and the list show the same.

    Attributes:
        mine: those that the reader may approve.
        others: those that wait for other people.
        more: True if further ones wait.
    """

    mine: list[ApprovalItem]
    others: list[ApprovalItem]
    more: bool

    @property
    def badge(self) -> str:
        """The number that wait for the reader."""
        return f"{len(self.mine)}+" if self.more else str(len(self.mine))


@dataclass(frozen=True)
class Frame:
    """The state of the deployment, as each page shows it.

    Attributes:
        agents: those in service that the reader may see.
        agent: the id of the agent that links lead to: that of the page, else the default one.
        frozen: the deployment-wide freeze.
    """

    page: PageRequest
    agents: list[AgentLink]
    agent: str | None
    frozen: Stop | None

    @property
    def inactive_agents(self) -> list[AgentLink]:
        """The agents that are paused or revoked, or frozen by themselves."""
        return [link for link in self.agents if link.paused or link.frozen or link.revoked]

    @cached_property
    def inbox(self) -> Inbox:
        """The approvals that wait."""
        return read_inbox(self.page, [agent.id for agent in self.agents])


def read_frame(page: PageRequest) -> Frame:
    """Read the frame for a page."""
    store, entries = page.services.store, page.ctx.agents
    serving = {name: entry for name, entry in entries.items() if entry.retired_at is None}
    freezes, paused = store.freezes.all(), store.fleet.pauses(list(serving))
    revoked = store.freezes.revocations()
    links = [
        AgentLink(name, entry.name, paused.get(name), freezes.get(name), revoked.get(name))
        for name, entry in serving.items()
    ]
    return Frame(page, links, _agent(page, serving), freezes.get(DEPLOYMENT))


def _agent(page: PageRequest, serving: Mapping[str, object]) -> str | None:
    if page.ctx.chosen is not None:
        return page.ctx.chosen.entry.id
    default = page.services.settings.agent
    return default if default in serving else next(iter(serving), None)


def read_inbox(page: PageRequest, agents: list[str]) -> Inbox:
    """The approvals of these agents that wait, sorted by who may answer."""
    store = page.services.store
    read = [
        readable(f"the approvals of agent {name}", partial(_waiting, store), name)
        for name in agents
    ]
    queues = [queue for queue in read if queue is not None]
    waiting = [item for queue in queues for item in queue.pending]
    waiting.sort(key=lambda item: (item.expires_at is None, item.expires_at or item.created_at))
    listed = waiting[:LISTED]
    mine: list[ApprovalItem] = []
    others: list[ApprovalItem] = []
    for item in listed:
        (mine if may_answer(page, item) else others).append(item)
    more = len(waiting) > LISTED or any(queue.next_cursor for queue in queues)
    return Inbox(mine, others, more)


def _waiting(store: Store, agent_id: str) -> ApprovalQueue:
    return store.agent(agent_id).approvals.page(LISTED, history=False)


def may_answer(page: PageRequest, item: ApprovalItem) -> bool:
    """Check that the reader's answer to *item* would count now."""
    return page.allows("approvals") and item.refusal(page.ctx.actor) is None
