"""What people see and do of goals over HTTP, below `/plugins/goals` (M16)."""

from __future__ import annotations

import base64
import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import ParamSpec, TypeVar

from pydantic import ValidationError

from boyd.errors import PayloadTooLarge
from boyd.models import EndpointReply, EndpointRequest, JsonObject, Model, Triple, explain
from boyd.models.situation import Place
from boyd.plugin import Context, Graph, endpoint
from boyd.plugins.goals import api_models, cycle, memory
from boyd.plugins.goals.api_models import Exported
from boyd.plugins.goals.goal_tree import (
    GoalError,
    add_goal,
    focused,
    in_order,
    is_open,
    set_priority,
    set_status,
)
from boyd.plugins.goals.knowledge import turtle
from boyd.plugins.goals.knowledge.similarity import mentioned
from boyd.plugins.goals.sessions import SessionError
from boyd.plugins.goals.state import Goal, GoalSession, GoalStatus, Question
from boyd.plugins.goals.tools.goal_tools import GoalTools
from boyd.plugins.goals.tools.questions import Questions, taken_in
from boyd.plugins.goals.tools.registry import ToolList

#: How many entries a list has unless its reader says, and at most.
USUAL, MOST = 50, 500

_P = ParamSpec("_P")
_M = TypeVar("_M", bound=Model)


class Refused(Exception):
    """A request cannot be granted."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def answering(
    handle: Callable[_P, Model | EndpointReply],
) -> Callable[_P, JsonObject | EndpointReply]:
    """Let an endpoint return a model, and raise what it refuses."""

    @functools.wraps(handle)
    def answered(*args: _P.args, **more: _P.kwargs) -> JsonObject | EndpointReply:
        try:
            answer = handle(*args, **more)
        except Refused as refused:
            return _error(refused.status, refused)
        except GoalError as error:
            return _error(409, error)
        return answer if isinstance(answer, EndpointReply) else answer.to_wire()

    return answered


def made(what: Model) -> EndpointReply:
    """The answer that something is there now that was not."""
    return EndpointReply(status=201, body=what.to_wire())


def body(kind: type[_M], request: EndpointRequest) -> _M:
    """What a request holds; without a body, the defaults.

    Raises:
        Refused: it does not fit.
    """
    try:
        return kind.model_validate(request.body or {})
    except ValidationError as error:
        raise Refused(422, explain(error)) from None


def number(request: EndpointRequest, name: str, usual: int = USUAL) -> int:
    """How many entries are asked for.

    Raises:
        Refused: it is no number, or too great.
    """
    text = request.query.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST:
        raise Refused(422, f"{name}: {text!r} is no number from 1 to {MOST}")
    return int(text)


def _error(status: int, error: Exception) -> EndpointReply:
    return EndpointReply(status=status, body={"error": str(error)})


#: A part ends when it has so many characters, and facts are read in steps of so many.
CHARS, STEP = 500_000, 200


def exported(graph: Graph, after: str | None) -> Exported:
    """The part of the graph that begins *after* a place; None: the first one.

    Raises:
        Refused: no part begins there.
    """
    last = None if after is None else _place(after)
    text = [turtle.HEADER if last is None else turtle.PART]
    revision, found = graph.revision(), list[Triple]()
    while found := graph.page(last, STEP):
        text.append(turtle.statements(found))
        last = found[-1].place
        if sum(map(len, text)) >= CHARS:
            break
    following = _cursor(last) if last and found and graph.page(last, 1) else None
    return Exported(turtle="".join(text), next=following, revision=revision)


def _cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(cursor: str) -> Place:
    try:
        subject, predicate, object_ = json.loads(base64.urlsafe_b64decode(cursor))
        return Triple(subject=subject, predicate=predicate, object=object_).place
    except (TypeError, ValueError):
        raise Refused(422, "after: no part begins there") from None


#: How many of the ids that fit are named.
_NAMED = 5


def unambiguous(noun: str, written: str, ids: Collection[str]) -> str:
    """The id that is *written*; what is an id or its number is not taken for a beginning.

    Raises:
        Refused: there is none, or several.
    """
    numbered = [one for one in ids if written and one.partition("-")[0] == written]
    begun = [one for one in ids if written and one.startswith(written)]
    fitting = [written] if written in ids else numbered if len(numbered) == 1 else begun
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise Refused(404, f"there is no {noun} {written!r}")
    more = ", …" if len(fitting) > _NAMED else ""
    some = ", ".join(fitting[:_NAMED]) + more
    raise Refused(404, f"{len(fitting)} {noun}s begin with {written!r}: {some}; write more of one")


#: Episodes that are recalled, and facts of a symbol that are told, unless their reader says.
RECALLED, FACTS = 5, 200
#: Symbols that a search finds, unless its reader says, and that are told in place of one of which
#: nothing is known.
FOUND, ALIKE = 20, 5


class Endpoints(GoalTools):
    """The tools, and what HTTP needs of them."""

    @endpoint("GET", "/session")
    @answering
    def get_session(self, ctx: Context) -> api_models.SessionState:
        """What the agent works on, what its goals wait for, and how full its memory is."""
        session = self.sessions(ctx).read()
        going_on = {None, *(goal.id for goal in session.goals.values() if is_open(goal))}
        return api_models.SessionState(
            id=session.id,
            cycle=session.cycle,
            max_cycles=self.config.max_cycles,
            focus=session.focus,
            goals=dict(Counter(goal.status for goal in session.goals.values())),
            memory=api_models.MemoryState(
                size=len(session.memory),
                capacity=self.config.working_memory_capacity,
                pressure=memory.pressure(session, self.config),
            ),
            episodes=len(session.episodes),
            questions=[one for one in Questions(ctx.state).waiting() if one.goal in going_on],
            approvals=cycle.waiting(session, ctx.approvals),
            graph=api_models.GraphState(facts=self.graph(ctx).size()),
        )

    @endpoint("POST", "/session")
    @answering
    def begin_session(self, request: EndpointRequest, ctx: Context) -> EndpointReply:
        """Begin a new session or go on with an older one; the one before is kept."""
        wanted, sessions = body(api_models.SessionWanted, request), self.sessions(ctx)
        if wanted.id is not None:
            try:
                return made(api_models.NewSession(id=sessions.reopen(wanted.id, self.config)))
            except SessionError as error:
                raise Refused(404, str(error)) from None
        id = sessions.fresh(self.config) if wanted.fresh else sessions.current
        return made(api_models.NewSession(id=id))

    @endpoint("GET", "/sessions")
    @answering
    def list_sessions(self, ctx: Context) -> api_models.SessionList:
        """The sessions that are kept, the one that is worked in first."""
        return api_models.SessionList(sessions=self.sessions(ctx).known())

    @endpoint("GET", "/psyche")
    @answering
    def show_psyche(self, ctx: Context) -> api_models.PsycheState:
        """What the agent leans to, and what its shadow forbids."""
        now, begun = self.sessions(ctx).read().psyche, self.options.psyche
        if now is None or begun is None:
            return api_models.PsycheState(psyche=begun)
        return api_models.PsycheState(psyche=now.patched({"shadow": begun.shadow}))

    @endpoint("GET", "/goals")
    @answering
    def list_goals(self, request: EndpointRequest, ctx: Context) -> api_models.GoalList:
        """The goals, the most important first."""
        wanted = request.query.get("status")
        session = self.sessions(ctx).read()
        fitting = [goal for goal in session.goals.values() if wanted in (None, goal.status)]
        return api_models.GoalList(goals=in_order(session, fitting))

    @endpoint("POST", "/goals")
    @answering
    def make_goal(self, request: EndpointRequest, ctx: Context) -> EndpointReply:
        """Make a goal."""
        wanted = body(api_models.NewGoal, request)
        new: list[Goal] = []

        def change(session: GoalSession) -> GoalSession:
            after, goal = add_goal(
                session,
                wanted.description,
                ctx.now(),
                self.config,
                criteria=wanted.criteria,
                priority=wanted.priority,
                stall_threshold=wanted.stall_threshold,
            )
            new[:] = [goal]
            return after

        try:
            self.sessions(ctx).change(change)
        except GoalError as error:
            raise Refused(422, str(error)) from None
        return made(new[0])

    @endpoint("GET", "/goals/{id}")
    @answering
    def get_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """One goal; a prefix of its id will do."""
        return _goal(self.sessions(ctx).read(), request)

    @endpoint("POST", "/goals/{id}/suspend")
    @answering
    def suspend_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Put a goal off."""
        return self._set(request, ctx, "Suspended")

    @endpoint("POST", "/goals/{id}/resume")
    @answering
    def resume_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Go on with a goal."""
        return self._set(request, ctx, "Active")

    @endpoint("POST", "/goals/{id}/fail")
    @answering
    def fail_goal(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Give a goal up."""
        return self._set(request, ctx, "Failed")

    @endpoint("POST", "/goals/{id}/priority")
    @answering
    def set_goal_priority(self, request: EndpointRequest, ctx: Context) -> Goal:
        """Change how important a goal is."""
        priority, sessions = body(api_models.Priority, request).priority, self.sessions(ctx)
        id = _goal(sessions.read(), request).id

        def change(session: GoalSession) -> GoalSession:
            return set_priority(session, id, priority, ctx.now())

        return sessions.change(change).goals[id]

    @endpoint("POST", "/focus")
    @answering
    def set_focus(self, request: EndpointRequest, ctx: Context) -> api_models.GoalList:
        """Let some goals come first, with all that they are split into."""
        wanted, sessions = body(api_models.Focus, request).goals, self.sessions(ctx)
        known = sessions.read().goals
        ids = [unambiguous("goal", one, known) for one in wanted]
        session = sessions.change(lambda current: focused(current, ids))
        return api_models.GoalList(goals=[session.goals[id] for id in ids if id in session.goals])

    def _set(self, request: EndpointRequest, ctx: Context, status: GoalStatus) -> Goal:
        given, sessions = body(api_models.GoalReason, request).reason, self.sessions(ctx)
        id = _goal(sessions.read(), request).id
        reason = given or f"{request.actor.principal} has asked for it"

        def change(session: GoalSession) -> GoalSession:
            return set_status(session, id, status, ctx.now(), self.config, reason=reason)

        return sessions.change(change).goals[id]

    @endpoint("GET", "/goals/{id}/why")
    @answering
    def why(self, request: EndpointRequest, ctx: Context) -> api_models.Why:
        """What was decided for a goal, when, and on which scores."""
        session = self.sessions(ctx).read()
        goal = _goal(session, request)
        return api_models.Why(
            goal=goal,
            parent=session.goals.get(goal.parent or ""),
            children=[session.goals[id] for id in goal.children if id in session.goals],
            decisions=[one for one in session.decisions if one.goal == goal.id],
            plan=session.plans.get(goal.id),
        )

    @endpoint("GET", "/cycles")
    @answering
    def cycles(self, request: EndpointRequest, ctx: Context) -> api_models.DecisionList:
        """What was decided in each cycle, the last one first."""
        limit, iteration = number(request, "limit"), request.query.get("iteration")
        decisions = self.sessions(ctx).read().decisions[::-1]
        fitting = [one for one in decisions if iteration in (None, str(one.iteration))]
        return api_models.DecisionList(cycles=fitting[:limit])

    @endpoint("GET", "/memory")
    @answering
    def show_memory(self, request: EndpointRequest, ctx: Context) -> api_models.MemoryList:
        """Working memory, the newest first."""
        limit = number(request, "limit")
        return api_models.MemoryList(entries=memory.newest(self.sessions(ctx).read(), limit))

    @endpoint("GET", "/episodes")
    @answering
    def episodes(self, request: EndpointRequest, ctx: Context) -> api_models.EpisodeList:
        """What was worth keeping, the newest first."""
        limit = number(request, "limit")
        return api_models.EpisodeList(episodes=self.sessions(ctx).read().episodes[::-1][:limit])

    @endpoint("GET", "/recall")
    @answering
    def recall(self, request: EndpointRequest, ctx: Context) -> api_models.EpisodeList:
        """The episodes that a query brings back."""
        query, most = request.query.get("query", "").strip(), number(request, "topK", RECALLED)
        if not query:
            raise Refused(422, "query: say what to recall")
        terms = [part.strip() for part in query.split(",") if part.strip()]
        session = self.sessions(ctx).read()
        return api_models.EpisodeList(episodes=memory.recall(session.episodes, terms, most))

    @endpoint("POST", "/consolidate")
    @answering
    def consolidate_now(self, ctx: Context) -> api_models.Consolidated:
        """Consolidate working memory."""
        kept, gone = self.consolidated(ctx)
        pressure = memory.pressure(self.sessions(ctx).read(), self.config)
        return api_models.Consolidated(consolidated=kept, forgotten=gone, pressure=pressure)

    @endpoint("GET", "/questions")
    @answering
    def questions(self, ctx: Context) -> api_models.QuestionList:
        """What the agent has asked people, the last one last."""
        return api_models.QuestionList(questions=Questions(ctx.state).all())

    @endpoint("POST", "/questions/{id}/answer")
    @answering
    def answer_question(self, request: EndpointRequest, ctx: Context) -> Question:
        """Answer a question; the goal that it is for goes on with the answer."""
        text, questions, now = (
            body(api_models.QuestionAnswer, request).text,
            Questions(ctx.state),
            ctx.now(),
        )
        id = unambiguous("question", request.path["id"], [one.id for one in questions.all()])
        question, counts = questions.answer(id, text, request.actor.principal, now)
        if question is None:
            raise Refused(404, f"question {id!r} has been forgotten meanwhile")
        if not counts:
            raise Refused(409, f"{question.answered_by} has answered it: {question.answer}")
        self.sessions(ctx).change(lambda session: taken_in(session, question, now, self.config))
        return question

    @endpoint("GET", "/graph")
    @answering
    def facts(
        self, request: EndpointRequest, ctx: Context
    ) -> api_models.Surroundings | api_models.GraphState:
        """What the graph knows about a symbol, or how much it knows."""
        graph, name = self.graph(ctx), request.query.get("symbol")
        if name is None:
            return api_models.GraphState(facts=graph.size(), revision=graph.revision())
        most = number(request, "limit", FACTS)
        out, into = graph.out(name)[:most], graph.into(name)[:most]
        alike = [] if out or into else mentioned(graph, name, ALIKE)
        return api_models.Surroundings(symbol=name, out=out, into=into, alike=alike)

    @endpoint("GET", "/graph/search")
    @answering
    def search_graph(self, request: EndpointRequest, ctx: Context) -> api_models.SymbolList:
        """The symbols that a text speaks of, the nearest to its words first."""
        query, most = request.query.get("query", "").strip(), number(request, "limit", FOUND)
        if not query:
            raise Refused(422, "query: say what to look for")
        return api_models.SymbolList(symbols=mentioned(self.graph(ctx), query, most))

    @endpoint("POST", "/graph/facts", timeout=120.0)
    @answering
    def add_facts(self, request: EndpointRequest, ctx: Context) -> api_models.Imported:
        """Add facts."""
        return api_models.Imported(
            added=_added(self.graph(ctx), body(api_models.Facts, request).facts)
        )

    @endpoint("POST", "/graph/import", timeout=120.0)
    @answering
    def import_facts(self, request: EndpointRequest, ctx: Context) -> api_models.Imported:
        """Add facts in Turtle."""
        wanted = body(api_models.Import, request)
        try:
            found = turtle.read_apart(wanted.turtle, source=wanted.source)
        except turtle.TurtleError as error:
            raise Refused(422, f"turtle: {error}") from None
        added = _added(self.graph(ctx), found.triples)
        return api_models.Imported(added=added, skipped=dict(found.skipped))

    @endpoint("GET", "/graph/export", timeout=120.0)
    @answering
    def export_facts(self, request: EndpointRequest, ctx: Context) -> api_models.Exported:
        """The facts in Turtle, part by part, without what is about the agent."""
        return exported(self.graph(ctx), request.query.get("after"))

    @endpoint("GET", "/tools")
    @answering
    def tools(self) -> ToolList:
        """What scoring knows of each tool."""
        return self.toolbox.listed


def _goal(session: GoalSession, request: EndpointRequest) -> Goal:
    """The goal that a request names.

    Raises:
        Refused: there is none, or several.
    """
    return session.goals[unambiguous("goal", request.path["id"], session.goals)]


def _added(graph: Graph, facts: Sequence[Triple]) -> int:
    """How many of those facts were new.

    Raises:
        Refused: the graph is full, or does not take one of them.
    """
    try:
        return graph.add(facts)
    except PayloadTooLarge as error:
        raise Refused(413, str(error)) from None
    except ValueError as error:
        raise Refused(422, str(error)) from None
