"""The pages of goals: the list with the questions to answer, and each goal with its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from flask import redirect, request

from boyd.models.base import JsonObject
from boyd_api.console.declared_pages import NavigationLink, PageResult, Pages
from boyd_api.console.forms import read_form
from boyd_api.console.page_request import PageRequest
from boyd_api.console.parts import Part, read_part
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_goals import api_models as api
from boyd_goals.console.goal_graph import NodeGraph, surroundings_of, tree_of
from boyd_goals.console.goal_reader import GoalReader
from boyd_goals.state import Goal, Question, ToolDecision

pages = Pages("boyd_goals.console", NavigationLink("Goals", "goals", "/goals"))

#: What may become of a goal, with its word.
VERBS = {"suspend": "Suspend", "resume": "Resume", "fail": "Give up"}
#: The latest decisions that are read for the list of goals.
_DECISIONS = "200"
#: The most symbols around a goal, and facts of each in either direction.
_SYMBOLS, _FACTS = 4, 8
#: The beginnings of symbols that are not knowledge.
_OWN = ("goal:", "desc:", "criteria:", "status:", "priority:")
#: The problems after which a change may still happen.
_UNSURE = ("timeout", "endpoint-lost")


@dataclass(frozen=True)
class GoalOverview:
    """The goals of a session.

    Attributes:
        open: those that are active or suspended, in order of precedence.
        ended: the others.
        latest: the last decision for each goal, by its id.
    """

    session: api.SessionState
    open: list[Goal]
    ended: list[Goal]
    latest: dict[str, ToolDecision]
    graph: NodeGraph


@dataclass(frozen=True)
class GoalStory:
    """A goal with its decisions, newest first, and what is known about it."""

    why: api.Why
    decisions: list[ToolDecision]
    facts: Part[list[api.Surroundings]]
    graph: NodeGraph


@pages.get("/agents/<agent>/goals")
def goals(page: PageRequest) -> PageResult:
    """Show the goals of the current session."""
    return _list(page, {})


@pages.post("/agents/<agent>/goals", scope="actions")
def add(page: PageRequest) -> PageResult:
    """Add a goal."""
    given = {name: request.form.get(name, "").strip() for name in api.NewGoal.model_fields}
    try:
        body = read_form(api.NewGoal, **given)
        made = GoalReader(page).change("/goals", Goal, body.to_wire())
    except HttpProblem as problem:
        return _list(page, given, problem)
    return redirect(f"{_address(page)}#goal-{made.id}", 303)


@pages.post("/agents/<agent>/questions/<id>/answer", scope="actions")
def answer(page: PageRequest, id: str) -> PageResult:
    """Answer a question of the agent."""
    text = request.form.get("text", "").strip()
    try:
        body = read_form(api.QuestionAnswer, text=text)
        path = f"/questions/{_part(id)}/answer"
        GoalReader(page).change(path, Question, body.to_wire())
    except HttpProblem as problem:
        return _list(page, {f"answer-{id}": text}, problem)
    return redirect(_address(page), 303)


@pages.get("/agents/<agent>/goals/<id>")
def goal(page: PageRequest, id: str) -> PageResult:
    """Show a goal, the decisions for it with their scores, and what is known about it."""
    return _show(page, id)


@pages.post("/agents/<agent>/goals/<id>/<verb>", scope="actions")
def change(page: PageRequest, id: str, verb: str) -> PageResult:
    """Suspend, resume or give up a goal, or change its priority."""
    try:
        GoalReader(page).change(f"/goals/{_part(id)}/{_part(verb)}", Goal, _wanted(verb))
    except HttpProblem as problem:
        return _show(page, id, problem)
    return redirect(f"{_address(page)}/{quote(id, safe='')}", 303)


def _wanted(verb: str) -> JsonObject:
    """The body that the form stands for."""
    if verb == "priority":
        return read_form(api.Priority, priority=request.form.get("priority", "")).to_wire()
    if verb not in VERBS:
        raise not_found(f"goals cannot be {verb!r}")
    return read_form(api.GoalReason, reason=request.form.get("reason", "").strip()).to_wire()


def _list(
    page: PageRequest, given: dict[str, str], problem: HttpProblem | None = None
) -> PageResult:
    reader = GoalReader(page)
    found = read_part(lambda: _read_list(reader)) if reader.is_used else None
    return render_page(
        page,
        "goals/list.html",
        problem.kind.status if problem else 200,
        found=found,
        reader=reader,
        given=given,
        problem=problem,
        is_unsure=problem is not None and problem.kind.name in _UNSURE,
    )


def _read_list(reader: GoalReader) -> GoalOverview:
    session = reader.ask("/session", api.SessionState)
    listed = reader.ask("/goals", api.GoalList)
    cycles = reader.ask("/cycles", api.DecisionList, limit=_DECISIONS)
    found = listed().goals
    going_on = [one for one in found if one.status in ("Active", "Suspended")]
    ended = [one for one in found if one.status not in ("Active", "Suspended")]
    latest: dict[str, ToolDecision] = {}
    for one in cycles().cycles:
        latest.setdefault(one.goal, one)
    return GoalOverview(session(), going_on, ended, latest, tree_of(found))


def _show(page: PageRequest, id: str, problem: HttpProblem | None = None) -> PageResult:
    reader = GoalReader(page)
    if not reader.is_used:
        return _list(page, {})
    found = _read_story(reader, id)
    return render_page(
        page,
        "goals/goal.html",
        problem.kind.status if problem else 200,
        found=found,
        id=id,
        reader=reader,
        verbs=VERBS,
        asked=request.args.get("do", ""),
        problem=problem,
        is_unsure=problem is not None and problem.kind.name in _UNSURE,
    )


def _read_story(reader: GoalReader, id: str) -> Part[GoalStory]:
    """The story of a goal. Raises `HttpProblem` if there is no such goal."""
    try:
        why = reader.ask(f"/goals/{_part(id)}/why", api.Why)()
    except HttpProblem as problem:
        if problem.kind.name == "not-found":
            raise
        return Part(None, str(problem))
    facts = read_part(lambda: _read_knowledge(reader, why.goal))
    around = [(one.symbol, one.out) for one in facts.value or []]
    graph = surroundings_of(why.goal, why.parent, around)
    return Part(GoalStory(why, why.decisions[::-1], facts, graph))


def _read_knowledge(reader: GoalReader, goal: Goal) -> list[api.Surroundings]:
    """The facts about the symbols that a goal mentions."""
    search = reader.ask(
        "/graph/search", api.SymbolList, query=goal.description, limit=str(_SYMBOLS)
    )
    # What the agent notes about its own goals is not knowledge.
    names = [one for one in search().symbols if not one.startswith(_OWN)]
    asked = [reader.ask("/graph", api.Surroundings, symbol=one, limit=str(_FACTS)) for one in names]
    return [answer() for answer in asked]


def _part(text: str) -> str:
    """A part of a path. Raises `HttpProblem` if it cannot be one."""
    if not text.strip(".") or "/" in text:
        raise not_found(f"no goal {text!r}")
    return text


def _address(page: PageRequest) -> str:
    return f"/console/agents/{page.agent_id}/goals"
