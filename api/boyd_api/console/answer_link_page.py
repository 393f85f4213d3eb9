"""The page behind a signed link in a message: its addressee answers one approval without a login.

GET changes nothing, because mail scanners open links; only the form answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from flask import redirect, request

from boyd.models import ApprovalItem, awaits_outcome, describe_outcome
from boyd.models.approval_outcome import has_executed
from boyd.security.links import AnswerLink, LinkProblem, LinkSigner, login_reason
from boyd_api.console import rendering
from boyd_api.console.agent_page import vital_signs
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest, csrf_token, read_note, read_seconds
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.services import AgentAccess
from boyd_api.routes import approval_routes

pages = Pages()

#: The verdict of each button; a link cannot withdraw.
_LINK_VERDICTS: dict[str, Literal["approved", "denied"]] = {"approve": "approved", "deny": "denied"}
_FORGED = "this link is not one of this deployment, or was cut off on the way"
#: Why a link cannot answer, in the words of the page.
_PROBLEMS = {
    LinkProblem.EXPIRED: "The link has expired.",
    LinkProblem.USED: "This link can't be used again.",
    LinkProblem.NOT_PENDING: "You are too late: it does not wait any more.",
    LinkProblem.CHANGED: "The request has changed since the message was sent.",
}


@pages.get("/answer/<token>", scope=None)
def show(page: PageRequest, token: str) -> PageResult:
    """Show the approval, and the form to answer it."""
    link, agent = _read(page, token)
    return _page(page, link, agent)


@pages.post("/answer/<token>", scope=None)
def answer_by_link(page: PageRequest, token: str) -> PageResult:
    """Answer as the addressee of the link."""
    link, agent = _read(page, token)
    verb, note = request.form.get("verb", ""), read_note()
    if verb in ("acknowledge", "release"):
        return _acknowledge(link, agent, verb == "release")
    if verb not in _LINK_VERDICTS:
        raise HttpProblem("bad-request", "the form is not one of this page: open the link again")
    resolution = agent.resolver.answer_link(
        link, _LINK_VERDICTS[verb], note or None, request.remote_addr
    )
    if resolution.counts:
        return redirect(request.path, 303)
    refused = approval_routes.refusal_of(resolution) if resolution.item else ""
    return _page(page, link, agent, 409, refused=refused, note=note)


def _acknowledge(link: AnswerLink, agent: AgentAccess, release: bool) -> PageResult:
    """Take care of the approval as the addressee, or leave it to others; the link stays valid."""
    item, store = agent.approval(link.approval_id), agent.store.acknowledgements
    if link.problem(item, agent.store.clock.now()) is None:
        by = link.actor(request.remote_addr)
        if release:
            store.release_approval(link.approval_id, by)
        else:
            store.acknowledge_approval(link.approval_id, by, read_seconds())
    return redirect(request.path, 303)


class ProgressStep(NamedTuple):
    """A step of an approved action on its way to a verdict."""

    name: str
    is_current: bool


def _steps(agent: AgentAccess, item: ApprovalItem) -> list[ProgressStep]:
    """The steps to the outcome of an approved action; empty once that is there."""
    if not awaits_outcome(item, agent.store.clock.now()):
        return []
    actions = agent.entry.catalog.actions
    is_verified = any(info.id == item.action_id and info.verify for info in actions)
    names = ["queued", "running", *(["verifying", "verdict"] if is_verified else ["result"])]
    is_queued = item.execution is None or item.execution.state == "queued"
    current = "verifying" if has_executed(item) else "queued" if is_queued else "running"
    return [ProgressStep(name, name == current) for name in names]


def _refresh_seconds(item: ApprovalItem, now: datetime) -> int:
    """Seconds after which the page looks again; 0 once nothing more will come."""
    if item.status == "pending":
        return 10
    if not awaits_outcome(item, now):
        return 0
    age = now - (item.resolved_at or item.updated_at)
    return 2 if age < timedelta(minutes=5) else 30


def _read(page: PageRequest, token: str) -> tuple[AnswerLink, AgentAccess]:
    """The content of a link, and its agent."""
    secret = page.services.settings.approval_secret
    link = LinkSigner(secret.get_secret_value()).read(token) if secret is not None else None
    if link is None:
        raise not_found(_FORGED)
    return link, page.services.agent(link.agent_id, None)


def _page(
    page: PageRequest,
    link: AnswerLink,
    agent: AgentAccess,
    status: int = 200,
    refused: str = "",
    note: str = "",
) -> PageResult:
    item = agent.approval(link.approval_id)
    if item is None:
        raise not_found("the approval is no longer kept")
    now = agent.store.clock.now()
    problem, awaits = link.problem(item, now), _refresh_seconds(item, now)
    permission = page.services.rights.judge(link.to, "approve", item.action_id, item.target)
    login = f"Answering it needs a login, because {login_reason(item)}."
    why_not = "" if permission.allowed else f"You may not answer it: {permission.reason}."
    return rendering.render_public(
        "answer.html",
        page.nonce,
        status,
        item=item,
        link=link,
        now=now,
        csrf=csrf_token(),
        problem=_PROBLEMS.get(problem) or login if problem else why_not,
        signs=vital_signs(page.services.store.client, item.agent_id, now) if awaits else [],
        stop=page.services.store.freezes.stop_of(item.agent_id),
        is_used=problem is LinkProblem.USED,
        here=request.path,
        steps=_steps(agent, item),
        outcome=describe_outcome(item),
        has_executed=has_executed,
        awaits=awaits,
        refused=refused,
        note=note,
    )
