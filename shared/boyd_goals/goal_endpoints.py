"""The endpoints of goals below `/plugins/goals`."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Collection, Sequence
from typing import ParamSpec, TypeVar, get_args

from pydantic import ValidationError

from boyd.errors import PayloadTooLarge
from boyd.models import EndpointReply, EndpointRequest, Model, Place, Triple, explain
from boyd.plugin import Context, Endpoint, Graph, endpoint
from boyd.plugin.decorators import Declared
from boyd_goals import api_models as api
from boyd_goals import cycle, memory
from boyd_goals.goal_toolbox import ToolList
from boyd_goals.goal_tools import GoalTools
from boyd_goals.goal_tree import GoalError, add_goal, in_order, is_open, set_priority, set_status
from boyd_goals.knowledge import turtle
from boyd_goals.knowledge.association import find_mentions
from boyd_goals.sessions import Questions, SessionError, apply_answer
from boyd_goals.state import Goal, GoalSession, GoalStatus, Question

#: The default and greatest number of entries in a list.
USUAL, MOST = 50, 500
#: Defaults: recalled episodes, facts of a symbol, symbols found by a search, and similar symbols.
RECALLED, FACTS, FOUND, ALIKE = 5, 200, 20, 5
#: A part of an export ends after so many characters; facts are read in steps of so many.
CHARS, STEP = 500_000, 200
#: The most matching ids listed in an error.
_NAMED = 5

_P = ParamSpec("_P")
_M = TypeVar("_M", bound=Model)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def serve(
    method: str, path: str, *, status: int = 200, timeout: float = 10.0
) -> Callable[[Callable[_P, Model]], Declared[Endpoint]]:
    """Declare an endpoint that returns a model, and turn `Refused` and `GoalError` into errors."""

    def declare(handle: Callable[_P, Model]) -> Declared[Endpoint]:
        @functools.wraps(handle)
        def respond(*args: _P.args, **more: _P.kwargs) -> EndpointReply:
            try:
                return EndpointReply(status=status, body=handle(*args, **more).to_wire())
            except (Refused, GoalError) as error:
                code = error.status if isinstance(error, Refused) else 409
                return EndpointReply(status=code, body={"error": str(error)})

        return endpoint(method, path, timeout=timeout)(respond)

    return declare


def resolve_id(noun: str, written: str, ids: Collection[str]) -> str:
    """The id with that number or unambiguous prefix; `Refused` if none or several match."""
    prefixed = [id for id in ids if written and id.startswith(written)]
    numbered = [id for id in prefixed if id.partition("-")[0] == written]
    matching = [written] if written in ids else numbered if len(numbered) == 1 else prefixed
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise Refused(404, f"no {noun} {written!r}")
    some = ", ".join([*matching[:_NAMED], *(["…"] if len(matching) > _NAMED else [])])
    raise Refused(404, f"{len(matching)} {noun}s match {written!r}: {some}; add more characters")


def _body(kind: type[_M], request: EndpointRequest) -> _M:
    """The body of a request; defaults if it has none."""
    try:
        return kind.model_validate(request.body or {})
    except ValidationError as error:
        raise Refused(422, explain(error)) from None


def _limit(request: EndpointRequest, name: str = "limit", usual: int = USUAL) -> int:
    text = request.query.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST:
        raise Refused(422, f"{name}: {text!r} is not a number from 1 to {MOST}")
    return int(text)


def _status(request: EndpointRequest) -> str | None:
    status, every = request.query.get("status"), get_args(GoalStatus)
    if status not in (None, *every):
        raise Refused(422, f"status: {status!r} is none of {', '.join(every)}")
    return status


def _iteration(request: EndpointRequest) -> int | None:
    text = request.query.get("iteration")
    if text is not None and not (text.isascii() and text.isdigit()):
        raise Refused(422, f"iteration: {text!r} is not a number")
    return None if text is None else int(text)


def _query(request: EndpointRequest, purpose: str) -> str:
    query = request.query.get("query", "").strip()
    if not query:
        raise Refused(422, f"query: say what to {purpose}")
    return query


def _goal(session: GoalSession, request: EndpointRequest) -> Goal:
    return session.goals[resolve_id("goal", request.path["id"], session.goals)]


def _export_part(graph: Graph, after: str | None) -> api.Exported:
    """Export the part of the graph after a cursor, or the first part without one."""
    last = None if after is None else _place(after)
    text = [turtle.HEADER if last is None else turtle.PART]
    revision, facts = graph.revision(), list[Triple]()
    while facts := graph.page(last, STEP):
        text.append(turtle.statements(facts))
        last = facts[-1].place
        if sum(map(len, text)) >= CHARS:
            break
    following = None
    if last and facts and graph.page(last, 1):
        following = base64.urlsafe_b64encode(json.dumps(last).encode()).decode()
    return api.Exported(turtle="".join(text), next=following, revision=revision)


def _place(cursor: str) -> Place:
    try:
        subject, predicate, object_ = json.loads(base64.urlsafe_b64decode(cursor))
        return Triple(subject=subject, predicate=predicate, object=object_).place
    except (TypeError, ValueError):
        raise Refused(422, "after: not the start of a part") from None


def _add_facts(graph: Graph, facts: Sequence[Triple]) -> int:
    """Add facts; returns the number of new ones."""
    try:
        return graph.add(facts)
    except PayloadTooLarge as error:
        raise Refused(413, str(error)) from None
    except ValueError as error:
        raise Refused(422, str(error)) from None


class Endpoints(GoalTools):
    """The tools and the endpoints."""

    @serve("GET", "/session")
    def get_session(self, ctx: Context) -> api.SessionState:
        """Summarize the current session."""
        session = self.sessions(ctx).read()
        going_on = {None, *(goal.id for goal in session.goals.values() if is_open(goal))}
        return api.SessionState(
            id=session.id,
            cycle=session.cycle,
            max_cycles=self.config.max_cycles,
            focus=session.focus,
            goals=session.goal_counts,
            memory=api.MemoryState(
                size=len(session.memory),
                capacity=self.config.working_memory_capacity,
                pressure=memory.pressure(session, self.config),
            ),
            episodes=len(session.episodes),
            questions=[
                question for question in Questions(ctx.state).waiting() if question.goal in going_on
            ],
            approvals=cycle.waiting_tools(session, ctx.approvals),
            graph=api.GraphState(facts=self.graph(ctx).size()),
        )

    @serve("POST", "/session", status=201)
    def begin_session(self, request: EndpointRequest, ctx: Context) -> api.NewSession:
        """Start a new session or reopen an older one; the current one is kept."""
        body, sessions = _body(api.SessionRequest, request), self.sessions(ctx)
        if body.id is not None:
            try:
                return api.NewSession(id=sessions.reopen(body.id, self.config))
            except SessionError as error:
                raise Refused(404, str(error)) from None
        return api.NewSession(id=sessions.start(self.config) if body.fresh else sessions.current)

    @serve("GET", "/sessions")
    def list_sessions(self, ctx: Context) -> api.SessionList:
        """List the sessions, the current one first."""
        return api.SessionList(sessions=self.sessions(ctx).summaries())

    @serve("GET", "/psyche")
    def show_psyche(self, ctx: Context) -> api.PsycheState:
        """Show the psyche of the agent."""
        current, initial = self.sessions(ctx).read().psyche, self.options.psyche
        if current is None or initial is None:
            return api.PsycheState(psyche=initial)
        return api.PsycheState(psyche=current.patched({"shadow": initial.shadow}))

    @serve("GET", "/goals")
    def list_goals(self, request: EndpointRequest, ctx: Context) -> api.GoalList:
        """List the goals, most important first."""
        status, session = _status(request), self.sessions(ctx).read()
        fitting = [goal for goal in session.goals.values() if status in (None, goal.status)]
        return api.GoalList(goals=in_order(session, fitting))

    @serve("POST", "/goals", status=201)
    def make_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Create a goal."""
        body, new = _body(api.NewGoal, request), list[Goal]()

        def change(session: GoalSession) -> GoalSession:
            after, goal = add_goal(session, now=ctx.now(), config=self.config, **dict(body))
            new[:] = [goal]
            return after

        try:
            self.sessions(ctx).change(change)
        except GoalError as error:
            raise Refused(422, str(error)) from None
        return new[0]

    @serve("GET", "/goals/{id}")
    def get_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Show a goal, by its id, its number or any unambiguous prefix."""
        return _goal(self.sessions(ctx).read(), request)

    @serve("POST", "/goals/{id}/suspend")
    def suspend_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Suspend a goal."""
        return self._set_status(request, ctx, "Suspended")

    @serve("POST", "/goals/{id}/resume")
    def resume_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Resume a goal."""
        return self._set_status(request, ctx, "Active")

    @serve("POST", "/goals/{id}/fail")
    def fail_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Give up a goal."""
        return self._set_status(request, ctx, "Failed")

    @serve("POST", "/goals/{id}/priority")
    def set_goal_priority(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Change the priority of a goal."""
        priority, sessions = _body(api.Priority, request).priority, self.sessions(ctx)
        id = _goal(sessions.read(), request).id
        after = sessions.change(lambda session: set_priority(session, id, priority, ctx.now()))
        return after.goals[id]

    @serve("POST", "/focus")
    def set_focus(self, request: EndpointRequest, ctx: Context) -> api.GoalList:
        """Put goals and their sub-goals first."""
        names, sessions = _body(api.Focus, request).goals, self.sessions(ctx)
        goals = sessions.read().goals
        ids = [resolve_id("goal", name, goals) for name in names]
        focus = list(dict.fromkeys(ids))
        session = sessions.change(lambda current: current.model_copy(update={"focus": focus}))
        return api.GoalList(goals=[session.goals[id] for id in ids if id in session.goals])

    def _set_status(self, request: EndpointRequest, ctx: Context, status: GoalStatus) -> Goal:
        text, sessions = _body(api.GoalReason, request).reason, self.sessions(ctx)
        id = _goal(sessions.read(), request).id
        reason = text or f"requested by {request.actor.principal}"
        now = ctx.now()
        after = sessions.change(
            lambda current: set_status(current, id, status, now, self.config, reason=reason)
        )
        return after.goals[id]

    @serve("GET", "/goals/{id}/why")
    def why(self, request: EndpointRequest, ctx: Context) -> api.GoalExplanation:
        """Explain the decisions for a goal with their scores."""
        session = self.sessions(ctx).read()
        goal = _goal(session, request)
        return api.GoalExplanation(
            goal=goal,
            parent=session.goals.get(goal.parent or ""),
            children=[session.goals[id] for id in goal.children if id in session.goals],
            decisions=[decision for decision in session.decisions if decision.goal == goal.id],
            plan=session.plans.get(goal.id),
        )

    @serve("GET", "/cycles")
    def cycles(self, request: EndpointRequest, ctx: Context) -> api.DecisionList:
        """List the decisions of all cycles, newest first."""
        limit, iteration = _limit(request), _iteration(request)
        decisions = self.sessions(ctx).read().decisions[::-1]
        fitting = [decision for decision in decisions if iteration in (None, decision.iteration)]
        return api.DecisionList(cycles=fitting[:limit])

    @serve("GET", "/memory")
    def show_memory(self, request: EndpointRequest, ctx: Context) -> api.MemoryList:
        """List working memory, newest first."""
        limit = _limit(request)
        return api.MemoryList(entries=memory.newest(self.sessions(ctx).read(), limit))

    @serve("GET", "/episodes")
    def episodes(self, request: EndpointRequest, ctx: Context) -> api.EpisodeList:
        """List the episodes, newest first."""
        limit = _limit(request)
        return api.EpisodeList(episodes=self.sessions(ctx).read().episodes[::-1][:limit])

    @serve("GET", "/recall")
    def recall(self, request: EndpointRequest, ctx: Context) -> api.EpisodeList:
        """Recall the episodes that match a query."""
        query, most = _query(request, "recall"), _limit(request, "topK", RECALLED)
        terms = [part.strip() for part in query.split(",") if part.strip()]
        session = self.sessions(ctx).read()
        return api.EpisodeList(episodes=memory.recall(session.episodes, terms, most))

    @serve("POST", "/consolidate")
    def consolidate_now(self, ctx: Context) -> api.Consolidated:
        """Consolidate working memory."""
        consolidated, forgotten = self.consolidate_memory(ctx)
        pressure = memory.pressure(self.sessions(ctx).read(), self.config)
        return api.Consolidated(consolidated=consolidated, forgotten=forgotten, pressure=pressure)

    @serve("GET", "/questions")
    def questions(self, ctx: Context) -> api.QuestionList:
        """List the questions of the agent, newest last."""
        return api.QuestionList(questions=Questions(ctx.state).all())

    @serve("POST", "/questions/{id}/answer")
    def answer_question(self, request: EndpointRequest, ctx: Context) -> Question:
        """Answer a question; its goal continues with the answer."""
        text = _body(api.QuestionAnswer, request).text
        questions, now = Questions(ctx.state), ctx.now()
        id = resolve_id("question", request.path["id"], [item.id for item in questions.all()])
        question, counts = questions.answer(id, text, request.actor.principal, now)
        if question is None:
            raise Refused(404, f"question {id!r} was dropped in the meantime")
        if not counts:
            raise Refused(409, f"{question.answered_by} has already answered it: {question.answer}")
        self.sessions(ctx).change(lambda session: apply_answer(session, question, now, self.config))
        return question

    @serve("GET", "/graph")
    def facts(self, request: EndpointRequest, ctx: Context) -> api.Surroundings | api.GraphState:
        """Show the facts about a symbol or, without one, the size of the graph."""
        graph, name = self.graph(ctx), request.query.get("symbol")
        if name is None:
            return api.GraphState(facts=graph.size(), revision=graph.revision())
        most = _limit(request, usual=FACTS)
        out, into = graph.out(name)[:most], graph.into(name)[:most]
        alike = [] if out or into else find_mentions(graph, name, ALIKE)
        return api.Surroundings(symbol=name, out=out, into=into, alike=alike)

    @serve("GET", "/graph/search")
    def search_graph(self, request: EndpointRequest, ctx: Context) -> api.SymbolList:
        """Find the symbols that a text mentions, nearest first."""
        query, most = _query(request, "look for"), _limit(request, usual=FOUND)
        return api.SymbolList(symbols=find_mentions(self.graph(ctx), query, most))

    @serve("POST", "/graph/facts", timeout=120.0)
    def add_facts(self, request: EndpointRequest, ctx: Context) -> api.Imported:
        """Add facts."""
        facts = _body(api.Facts, request).facts
        return api.Imported(added=_add_facts(self.graph(ctx), facts))

    @serve("POST", "/graph/import", timeout=120.0)
    def import_facts(self, request: EndpointRequest, ctx: Context) -> api.Imported:
        """Import facts in Turtle."""
        body = _body(api.Import, request)
        try:
            result = turtle.read_apart(body.turtle, source=body.source)
        except turtle.TurtleError as error:
            raise Refused(422, f"turtle: {error}") from None
        added = _add_facts(self.graph(ctx), result.triples)
        return api.Imported(added=added, skipped=dict(result.skipped))

    @serve("GET", "/graph/export", timeout=120.0)
    def export_facts(self, request: EndpointRequest, ctx: Context) -> api.Exported:
        """Export the facts in Turtle, part by part, without those about the agent."""
        return _export_part(self.graph(ctx), request.query.get("after"))

    @serve("GET", "/tools")
    def tools(self) -> ToolList:
        """List the profiles of the tools."""
        return self.toolbox.tool_list
