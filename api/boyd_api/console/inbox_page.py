"""The inbox: approvals that wait for the reader or for others, those answered, and bulk answers."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge

from flask import request

from boyd.models import ApprovalItem
from boyd.store import Verdict
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.forms import read_note, read_version
from boyd_api.console.frame import LISTED
from boyd_api.console.observer_rows import read_vital_signs
from boyd_api.console.page_request import HOME, PageRequest
from boyd_api.console.pages import to_login
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem
from boyd_api.routes import approval_routes

pages = Pages()

#: The verdict of each button.
VERDICTS: dict[str, Verdict] = {"approve": "approved", "deny": "denied", "withdraw": "withdrawn"}


#: Answered approvals of an agent on one page.
_PAST = 50


@dataclass(frozen=True)
class Answered:
    """The outcome of an answer to one of several approvals."""

    item: ApprovalItem | None
    id: str
    counts: bool
    text: str


@pages.get("/")
def inbox(page: PageRequest) -> PageResult:
    """Show the approvals that wait."""
    health = read_vital_signs(
        page, [name for name, entry in page.ctx.agents.items() if not entry.retired_at]
    )
    return render_page(page, "inbox.html", tab=request.args.get("tab", "mine"), health=health)


@pages.get("/answered")
def show_answered(page: PageRequest) -> PageResult:
    """Show the approvals that were answered, newest first."""
    agent_id, cursor = request.args.get("agent"), request.args.get("cursor")
    names = [agent_id] if agent_id else list(page.ctx.agents)
    agents = [page.of(name).ctx.agent for name in names]
    queues = [agent.past_work.approvals(_PAST, cursor if agent_id else None) for agent in agents]
    # Each agent's items stay in their order, although an execution has changed some of them since.
    past = merge(*(queue.history for queue in queues), key=lambda i: i.updated_at, reverse=True)
    # Older ones of one agent follow its own page; several agents have no common position.
    after = queues[0].next_cursor if len(queues) == 1 else None
    older = f"/console/answered?agent={names[0]}&cursor={after}" if after else ""
    missing = next((queue.missing for queue in queues if queue.missing), None)
    return render_page(
        page, "answered.html", items=list(past), older=older, names=names, missing=missing
    )


@pages.post("/answer-several", scope="approvals")
def answer_several(page: PageRequest) -> PageResult:
    """Confirm, then answer, the ticked approvals of one action."""
    verb = request.form.get("verb", "")
    if verb not in VERDICTS:
        raise HttpProblem("bad-request", f"{verb!r} is no answer")
    chosen = [_parse_choice(text) for text in request.form.getlist("chosen")[:LISTED]]
    if not chosen:
        raise HttpProblem("bad-request", "no approval was ticked: go back, and tick some")
    if "confirmed" not in request.form:
        items = [_item(page, agent, id) for agent, id, _ in chosen]
        pending = [item for item in items if item is not None and item.status == "pending"]
        if any(page.needs_login(item, verb) for item in pending):
            return to_login("confirm", HOME)
        if len({item.title for item in pending}) > 1:
            raise HttpProblem("bad-request", "the ticked approvals are for different actions")
        return render_page(
            page, "confirm_several.html", verb=verb, items=pending, gone=len(items) - len(pending)
        )
    note = read_note() or None
    done = [_answer(page, agent, id, verb, note, version) for agent, id, version in chosen]
    return render_page(page, "answered_several.html", verb=verb, results=done)


def _parse_choice(text: str) -> tuple[str, str, int]:
    agent, _, rest = text.partition("/")
    id, _, version = rest.partition("/")
    number = read_version(version)
    if number is None:
        raise HttpProblem("bad-request", "the form is not one of the console")
    return agent, id, number


def _item(page: PageRequest, agent: str, id: str) -> ApprovalItem | None:
    """The approval; None if the reader may see none of that name."""
    if agent not in page.ctx.agents:
        return None
    return page.of(agent).ctx.agent.approval(id)


def _answer(
    page: PageRequest, agent: str, id: str, verb: str, note: str | None, version: int
) -> Answered:
    item = _item(page, agent, id)
    if item is None:
        return Answered(None, id, False, "no longer known")
    if page.needs_login(item, verb):
        return Answered(item, id, False, "it is risky: open it, and sign in again")
    resolution = approval_routes.answer(page.of(agent).ctx, id, VERDICTS[verb], note, version)
    text = resolution.outcome.value
    if not resolution.counts:
        text = (
            approval_routes.refusal_text(resolution.outcome, resolution.item)
            if resolution.item
            else "no longer known"
        )
    return Answered(resolution.item, id, resolution.counts, text)
