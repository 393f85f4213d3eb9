"""The pages of goals: a list with the questions to answer, and each goal with its decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import quote

from flask import redirect, request
from pydantic import ValidationError

from boyd.models import EndpointReply, Model, Triple
from boyd.models.base import Json, JsonObject
from boyd.text import queues
from boyd_api.console.declared_pages import NavigationLink, PageResult, Pages
from boyd_api.console.page_request import PageRequest, Part, read_form, read_part
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.routes import plugin_routes
from boyd_goals import api_models as api
from boyd_goals.state import Goal, Question, ToolDecision

_M = TypeVar("_M", bound=Model)

#: The name of the plugin.
PLUGIN = "goals"
#: Seconds that a page waits for workers, and seconds that a change does.
_READ = 3.0
_CHANGE = 10.0


class GoalReader:
    """The endpoints of one agent; all questions of a page wait for workers at the same time."""

    def __init__(self, page: PageRequest) -> None:
        self._ctx = page.ctx
        self._deadline = time.monotonic() + _READ

    @property
    def is_used(self) -> bool:
        """True if the agent uses the plugin."""
        return any(
            endpoint.plugin == PLUGIN for endpoint in self._ctx.agent.entry.catalog.endpoints
        )

    @property
    def idle_queue(self) -> str:
        """The queue of the endpoints if no worker consumes it, otherwise empty."""
        served = self._ctx.agent.store.fleet.serving(queues.ACT)
        return "" if served else queues.ACT

    def ask(self, path: str, model: type[_M], **query: str) -> Callable[[], _M]:
        """Ask for *path* now; the function returned waits for the reply.

        It raises `HttpProblem` if there is none in time, or if it is a refusal.
        """
        # Each question is a call of its own, also in the request of a form that has an id.
        ctx = replace(self._ctx, idempotency_key=None)
        route = plugin_routes.find(ctx, PLUGIN, "GET", path)
        call = plugin_routes.begin(ctx, route, query)

        def reply() -> _M:
            line_end = max(0.0, self._deadline - time.monotonic())
            return _read(model, plugin_routes.await_reply(ctx, call, line_end))

        return reply

    def change(self, path: str, model: type[_M], body: Json) -> _M:
        """Change something, once per form. Raises `HttpProblem` if it is refused."""
        route = plugin_routes.find(self._ctx, PLUGIN, "POST", path)
        call = plugin_routes.begin(self._ctx, route, {}, body)
        return _read(model, plugin_routes.await_reply(self._ctx, call, _CHANGE))


def _read(model: type[_M], reply: EndpointReply) -> _M:
    if reply.status >= 400:
        message = reply.body.get("error") if isinstance(reply.body, dict) else None
        raise HttpProblem("not-found" if reply.status == 404 else "bad-request", str(message))
    try:
        return model.model_validate(reply.body, extra="ignore")
    except ValidationError as error:
        message = f"the worker's answer is not as expected: {error.error_count()} fields differ"
        raise HttpProblem("endpoint-failed", message) from None


#: The size of a node and of the gaps between nodes, in pixels.
WIDTH, HEIGHT = 210, 44
_RIGHT, _BELOW = 90, 14
#: The most nodes of a graph, and characters of a label.
_MOST = 60
_LABEL = 28
#: The state of nodes that are not goals.
SYMBOL = "symbol"

#: A symbol and the facts that begin with it.
Around = tuple[str, Sequence[Triple]]


@dataclass(frozen=True)
class GraphNode:
    """A goal or a symbol; `x` and `y` are its upper left corner, `full` its whole text."""

    id: str
    x: int
    y: int
    label: str
    full: str
    state: str

    @property
    def line_end(self) -> tuple[int, int]:
        """The point where lines to it end."""
        return self.x, self.y + HEIGHT // 2

    @property
    def line_start(self) -> tuple[int, int]:
        """The point where lines from it begin."""
        return self.x + WIDTH, self.y + HEIGHT // 2


@dataclass(frozen=True)
class GraphEdge:
    """A line between two nodes, from left to right; *label* is the predicate of a fact."""

    path: str
    label: str
    x: int
    y: int


@dataclass
class NodeGraph:
    """A graph in columns.

    Attributes:
        omitted: nodes that are not drawn, because there are too many.
    """

    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[GraphEdge] = field(default_factory=list)
    omitted: int = 0

    @property
    def width(self) -> int:
        """In pixels."""
        return max((node.x for node in self.nodes), default=0) + WIDTH + 4

    @property
    def height(self) -> int:
        """In pixels."""
        return max((node.y for node in self.nodes), default=0) + HEIGHT + 4

    def add(self, id: str, column: int, row: int, text: str, state: str) -> GraphNode:
        """Add a node."""
        short = text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
        x, y = 2 + column * (WIDTH + _RIGHT), 2 + row * (HEIGHT + _BELOW)
        self.nodes.append(GraphNode(id, x, y, short, text, state))
        return self.nodes[-1]

    def connect(self, source: GraphNode, target: GraphNode, label: str = "") -> None:
        """Draw a line from *source* to *target*, which is further right."""
        (x, y), (to_x, to_y) = source.line_start, target.line_end
        half = (x + to_x) // 2
        path = f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"
        self.edges.append(GraphEdge(path, label, to_x - 4, to_y - 5))


def tree_of(goals: Sequence[Goal]) -> NodeGraph:
    """The goals that have parts, with their parts: parents left, parts right."""
    goals_by_id = {goal.id: goal for goal in goals}
    roots = [goal for goal in goals if goal.parent not in goals_by_id and goal.children]
    graph = NodeGraph()
    row = 0
    for root in roots:
        row = _add_tree(graph, goals_by_id, root, 0, row, None)
    return graph


def _add_tree(
    graph: NodeGraph,
    goals_by_id: Mapping[str, Goal],
    goal: Goal,
    column: int,
    row: int,
    parent: GraphNode | None,
) -> int:
    """Add a goal with its parts from *row* on; returns the next free row."""
    if len(graph.nodes) >= _MOST:
        graph.omitted += 1
        return row
    node = graph.add(goal.id, column, row, goal.description, goal.status)
    if parent is not None:
        graph.connect(parent, node)
    after = row
    for id in goal.children:
        if id in goals_by_id:
            after = _add_tree(graph, goals_by_id, goals_by_id[id], column + 1, after, node)
    return max(after, row + 1)


def surroundings_of(goal: Goal, parent: Goal | None, around: Iterable[Around]) -> NodeGraph:
    """A goal between its parent, and symbols with the objects of their facts."""
    graph, column, row = NodeGraph(), int(parent is not None), 0
    centre = graph.add(goal.id, column, 0, goal.description, goal.status)
    if parent is not None:
        above = graph.add(parent.id, 0, 0, parent.description, parent.status)
        graph.connect(above, centre)
    for symbol, facts in around:
        node = graph.add(symbol, column + 1, row, symbol, SYMBOL)
        graph.connect(centre, node)
        for fact in facts:
            if len(graph.nodes) >= _MOST:
                graph.omitted += 1
                continue
            graph.connect(
                node, graph.add(fact.object, column + 2, row, fact.object, SYMBOL), fact.predicate
            )
            row += 1
        row += not facts
    return graph


pages = Pages("boyd_goals.console", NavigationLink("Goals", "goals", "/goals"))

#: The changes of a goal's status, with the labels of their buttons.
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
        closed: the others.
        latest: the last decision for each goal, by its id.
    """

    session: api.SessionState
    open: list[Goal]
    closed: list[Goal]
    latest: dict[str, ToolDecision]
    graph: NodeGraph


@dataclass(frozen=True)
class GoalStory:
    """A goal with its decisions, newest first, and what is known about it."""

    why: api.GoalExplanation
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
    values = {name: request.form.get(name, "").strip() for name in api.NewGoal.model_fields}
    try:
        body = read_form(api.NewGoal, **values)
        goal = GoalReader(page).change("/goals", Goal, body.to_wire())
    except HttpProblem as problem:
        return _list(page, values, problem)
    return redirect(f"{_address(page)}#goal-{goal.id}", 303)


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
        GoalReader(page).change(f"/goals/{_part(id)}/{_part(verb)}", Goal, _form_body(verb))
    except HttpProblem as problem:
        return _show(page, id, problem)
    return redirect(f"{_address(page)}/{quote(id, safe='')}", 303)


def _form_body(verb: str) -> JsonObject:
    """The request body of the form for *verb*. Raises `HttpProblem` if it is invalid."""
    if verb == "priority":
        return read_form(api.Priority, priority=request.form.get("priority", "")).to_wire()
    if verb not in VERBS:
        raise not_found(f"goals cannot be {verb!r}")
    return read_form(api.GoalReason, reason=request.form.get("reason", "").strip()).to_wire()


def _list(
    page: PageRequest, values: dict[str, str], problem: HttpProblem | None = None
) -> PageResult:
    reader = GoalReader(page)
    overview = read_part(lambda: _read_list(reader)) if reader.is_used else None
    return render_page(
        page,
        "goals/list.html",
        problem.kind.status if problem else 200,
        part=overview,
        reader=reader,
        values=values,
        problem=problem,
        is_unsure=problem is not None and problem.kind.name in _UNSURE,
    )


def _read_list(reader: GoalReader) -> GoalOverview:
    session = reader.ask("/session", api.SessionState)
    listed = reader.ask("/goals", api.GoalList)
    cycles = reader.ask("/cycles", api.DecisionList, limit=_DECISIONS)
    all_goals = listed().goals
    going_on = [goal for goal in all_goals if goal.status in ("Active", "Suspended")]
    closed = [goal for goal in all_goals if goal.status not in ("Active", "Suspended")]
    latest: dict[str, ToolDecision] = {}
    for decision in cycles().cycles:
        latest.setdefault(decision.goal, decision)
    return GoalOverview(session(), going_on, closed, latest, tree_of(all_goals))


def _show(page: PageRequest, id: str, problem: HttpProblem | None = None) -> PageResult:
    reader = GoalReader(page)
    if not reader.is_used:
        return _list(page, {})
    story = _read_story(reader, id)
    return render_page(
        page,
        "goals/goal.html",
        problem.kind.status if problem else 200,
        part=story,
        id=id,
        reader=reader,
        verbs=VERBS,
        verb=request.args.get("do", ""),
        problem=problem,
        is_unsure=problem is not None and problem.kind.name in _UNSURE,
    )


def _read_story(reader: GoalReader, id: str) -> Part[GoalStory]:
    """The story of a goal. Raises `HttpProblem` if there is no such goal."""
    try:
        explanation = reader.ask(f"/goals/{_part(id)}/why", api.GoalExplanation)()
    except HttpProblem as problem:
        if problem.kind.name == "not-found":
            raise
        return Part(None, str(problem))
    facts = read_part(lambda: _read_knowledge(reader, explanation.goal))
    around = [(item.symbol, item.out) for item in facts.value or []]
    graph = surroundings_of(explanation.goal, explanation.parent, around)
    return Part(GoalStory(explanation, explanation.decisions[::-1], facts, graph))


def _read_knowledge(reader: GoalReader, goal: Goal) -> list[api.Surroundings]:
    """The facts about the symbols that a goal mentions."""
    search = reader.ask(
        "/graph/search", api.SymbolList, query=goal.description, limit=str(_SYMBOLS)
    )
    # What the agent notes about its own goals is not knowledge.
    names = [symbol for symbol in search().symbols if not symbol.startswith(_OWN)]
    replies = [
        reader.ask("/graph", api.Surroundings, symbol=symbol, limit=str(_FACTS)) for symbol in names
    ]
    return [answer() for answer in replies]


def _part(text: str) -> str:
    """A part of a path. Raises `HttpProblem` if it cannot be one."""
    if not text.strip(".") or "/" in text:
        raise not_found(f"no goal {text!r}")
    return text


def _address(page: PageRequest) -> str:
    return f"/console/agents/{page.agent_id}/goals"
