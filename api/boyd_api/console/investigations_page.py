"""The pages of investigations: the list, each with its transcript, and each call in full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from flask import redirect, request

from boyd.models import ApprovalItem
from boyd.models.investigation import Investigation, InvestigationRequest, Wanted
from boyd_api.console.agent_page import read_vital_signs
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest, read_form
from boyd_api.console.rendering import render_page
from boyd_api.console.transcript_part import TranscriptTurn, end_calls, find_call, read_part
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import PageQuery
from boyd_api.routes import investigation_routes

pages = Pages()

_LISTED = 50
_PLACE = re.compile(r"[0-9]{1,19}-[0-9]{1,19}", re.ASCII)
#: Endings that are answers.
ANSWERED = ("final_answer", "final_synthesis")
#: Characters of a question that tell it from others of the same title.
_HINT = 160


@pages.get("/agents/<agent>/investigations")
def investigations(page: PageRequest) -> PageResult:
    """Show the investigations of the agent, newest first, and the form to ask."""
    return _list(page)


@pages.post("/agents/<agent>/investigations", scope="runs")
def ask(page: PageRequest) -> PageResult:
    """Ask the agent's model."""
    question = request.form.get("question", "").strip()
    try:
        body = read_form(InvestigationRequest, question=question)
        answer = investigation_routes.ask(page.ctx, body)
    except HttpProblem as problem:
        return _list(page, question, problem)
    assert isinstance(answer.body, Investigation)
    return redirect(_address(page, answer.body.id), 303)


@pages.get("/agents/<agent>/investigations/<id>")
def investigation(page: PageRequest, id: str) -> PageResult:
    """Show an investigation with its transcript."""
    return _show(page, id)


@pages.post("/agents/<agent>/investigations/<id>/messages", scope="runs")
def ask_on(page: PageRequest, id: str) -> PageResult:
    """Continue after the answer."""
    text = request.form.get("text", "").strip()
    try:
        body = read_form(investigation_routes.FollowUpMessage, text=text)
        investigation_routes.say(page.ctx, id, body)
    except HttpProblem as problem:
        return _show(page, id, text, problem)
    return redirect(f"{_address(page, id)}#latest", 303)


@pages.post("/agents/<agent>/investigations/<id>/cancel", scope="runs")
def cancel(page: PageRequest, id: str) -> PageResult:
    """Cancel; if it has ended meanwhile, its page tells how."""
    try:
        investigation_routes.cancel(page.ctx, id)
    except HttpProblem as problem:
        return _show(page, id, problem=problem)
    return redirect(_address(page, id), 303)


@pages.get("/agents/<agent>/investigations/<id>/calls/<int:number>")
def call(page: PageRequest, id: str, number: int) -> PageResult:
    """Show a call with its arguments and its output in full."""
    investigation = investigation_routes.show(page.ctx, id)
    log = investigation_routes.open_log(page.ctx, id)
    view = find_call(log, id, number, _place("at") or "0-0")
    if view is None:
        raise not_found(f"investigation {id} has no call #{number} that is kept")
    if investigation.status == "ended" and view.seen is None:
        view.state = "no result"
    return render_page(page, "investigation_call.html", found=investigation, call=view)


def _list(page: PageRequest, question: str = "", problem: HttpProblem | None = None) -> PageResult:
    query = read_form(PageQuery, limit=_LISTED, cursor=request.args.get("cursor"))
    listing = investigation_routes.investigations(page.ctx, query)
    return render_page(
        page,
        "investigations.html",
        problem.kind.status if problem else 200,
        items=listing.investigations,
        hints=distinctions(listing.investigations),
        work_began=work_began,
        older=listing.next_cursor,
        missing=listing.missing,
        is_first=not query.cursor,
        model=page.ctx.agent.entry.model,
        question=question,
        problem=problem,
        answered=ANSWERED,
    )


def _show(
    page: PageRequest, id: str, text: str = "", problem: HttpProblem | None = None
) -> PageResult:
    investigation = investigation_routes.show(page.ctx, id)
    before, log = _place("before"), investigation_routes.open_log(page.ctx, id)
    part = read_part(log, id, before)
    if investigation.status == "ended":
        end_calls(part.turns)
    return render_page(
        page,
        "investigation.html",
        problem.kind.status if problem else 200,
        found=investigation,
        part=part,
        is_latest=before is None,
        is_only_archived=isinstance(log, investigation_routes.ArchivedLog),
        began=_last_question_time(part.turns) if before is None else None,
        work_began=work_began,
        approval=_approval(page, investigation),
        signs=read_vital_signs(page, page.agent_id) if investigation.status != "ended" else [],
        model=page.ctx.agent.entry.model,
        limits=investigation.limits,
        no_limits=Wanted(),
        answered=ANSWERED,
        asked=request.args.get("do", ""),
        text=text,
        problem=problem,
    )


def _approval(page: PageRequest, investigation: Investigation) -> ApprovalItem | None:
    approvals = page.ctx.agent.store.approvals
    item = approvals.get(investigation.approval_id) if investigation.approval_id else None
    return item if item is not None and item.status == "pending" else None


def distinctions(investigations: Sequence[Investigation]) -> dict[str, str]:
    """Texts that tell those of equal titles apart, by id: where their questions differ."""
    alike: dict[str, list[Investigation]] = {}
    for investigation in investigations:
        alike.setdefault(investigation.name, []).append(investigation)
    hints = {}
    for group in (group for group in alike.values() if len(group) > 1):
        for investigation in group:
            begin = _difference(investigation.question, [other.question for other in group])
            hints[investigation.id] = " ".join(
                investigation.question[begin : begin + _HINT].split()
            )
    return hints


def _difference(text: str, others: Sequence[str]) -> int:
    """The start of the line in which *text* first differs from most of the others."""
    firsts = [_common(text, other) for other in others if other != text]
    at = max(firsts, default=len(text))
    return text.rfind("\n", 0, at) + 1


def _common(text: str, other: str) -> int:
    """The length of their common beginning."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(text), len(other)))


def work_began(investigation: Investigation, began: datetime | None = None) -> datetime:
    """Shift the time of the last question back by the work on earlier ones.

    What counts on from there shows the work on all. *began*: the time of the question, if known.
    """
    counters = investigation.counters
    since = began or (investigation.updated_at if counters.seconds else investigation.created_at)
    return since - timedelta(seconds=counters.seconds)


def _last_question_time(turns: Sequence[TranscriptTurn]) -> datetime | None:
    return next((turn.at for turn in reversed(turns) if turn.kind == "asked"), None)


def _place(name: str) -> str | None:
    """A position in a log, from the query."""
    place = request.args.get(name)
    if place is not None and not _PLACE.fullmatch(place):
        raise HttpProblem("bad-request", f"{name} is no position in a log")
    return place


def _address(page: PageRequest, id: str) -> str:
    return f"/console/agents/{page.agent_id}/investigations/{id}"
