"""What people see and do of goals over HTTP, below `/plugins/goals` (M16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from boyd.errors import PayloadTooLarge
from boyd.goals import approvals, bodies, memory, replies
from boyd.goals.answering import Refused, answering, body, made, number
from boyd.goals.beginnings import the_one
from boyd.goals.exporting import exported
from boyd.goals.goal_book import (
    GoalError,
    add_goal,
    focused,
    in_order,
    is_open,
    set_priority,
    set_status,
)
from boyd.goals.knowledge import turtle
from boyd.goals.knowledge.mentions import mentioned
from boyd.goals.sessions import SessionError
from boyd.goals.shapes import Goal, GoalStatus, Question, Session
from boyd.goals.toolbox import ToolList
from boyd.goals.tools.actions import Tools
from boyd.goals.tools.answers import taken_in
from boyd.goals.tools.questions import Questions
from boyd.models import EndpointReply, EndpointRequest, Triple
from boyd.plugin import Context, Graph, endpoint

#: Episodes that are recalled, and facts of a symbol that are told, unless their reader says.
RECALLED, FACTS = 5, 200
#: Symbols that a search finds, unless its reader says, and that are told in place of one of which
#: nothing is known.
FOUND, ALIKE = 20, 5


class Endpoints(Tools):
    """The tools, and what HTTP needs of them."""

    @endpoint("GET", "/session")
    @answering
    def get_session(self, ctx: Context) -> replies.SessionState:
        """What the agent works on, what its goals wait for, and how full its memory is."""
        session = self.sessions(ctx).read()
        going_on = {None, *(goal.id for goal in session.goals.values() if is_open(goal))}
        return replies.SessionState(
            id=session.id,
            cycle=session.cycle,
            max_cycles=self.config.max_cycles,
            focus=session.focus,
            goals=dict(Counter(goal.status for goal in session.goals.values())),
            memory=replies.MemoryState(
                size=len(session.memory),
                capacity=self.config.working_memory_capacity,
                pressure=memory.pressure(session, self.config),
            ),
            episodes=len(session.episodes),
            questions=[one for one in Questions(ctx.state).waiting() if one.goal in going_on],
            approvals=approvals.waiting(session, ctx.approvals),
            graph=replies.GraphState(facts=self.graph(ctx).size()),
        )

    @endpoint("POST", "/session")
    @answering
    def begin_session(self, request: EndpointRequest, ctx: Context) -> EndpointReply:
        """Begin a new session or go on with an older one; the one before is kept."""
        wanted, sessions = body(bodies.SessionWanted, request), self.sessions(ctx)
        if wanted.id is not None:
            try:
                return made(replies.NewSession(id=sessions.reopen(wanted.id, self.config)))
            except SessionError as error:
                raise Refused(404, str(error)) from None
        id = sessions.fresh(self.config) if wanted.fresh else sessions.current
        return made(replies.NewSession(id=id))

    @endpoint("GET", "/sessions")
    @answering
    def list_sessions(self, ctx: Context) -> replies.SessionList:
        """The sessions that are kept, the one that is worked in first."""
        return replies.SessionList(sessions=self.sessions(ctx).known())

    @endpoint("GET", "/psyche")
    @answering
    def show_psyche(self, ctx: Context) -> replies.PsycheState:
        """What the agent leans to, and what its shadow forbids."""
        now, begun = self.sessions(ctx).read().psyche, self.options.psyche
        if now is None or begun is None:
            return replies.PsycheState(psyche=begun)
        return replies.PsycheState(psyche=now.patched({"shadow": begun.shadow}))

    @endpoint("GET", "/goals")
    @answering
    def list_goals(self, request: EndpointRequest, ctx: Context) -> replies.GoalList:
        """The goals, the most important first."""
        wanted = request.query.get("status")
        session = self.sessions(ctx).read()
        fitting = [goal for goal in session.goals.values() if wanted in (None, goal.status)]
        return replies.GoalList(goals=in_order(session, fitting))

    @endpoint("POST", "/goals")
    @answering
    def make_goal(self, request: EndpointRequest, ctx: Context) -> EndpointReply:
        """Make a goal."""
        wanted = body(bodies.NewGoal, request)
        new: list[Goal] = []

        def change(session: Session) -> Session:
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
        priority, sessions = body(bodies.Priority, request).priority, self.sessions(ctx)
        id = _goal(sessions.read(), request).id

        def change(session: Session) -> Session:
            return set_priority(session, id, priority, ctx.now())

        return sessions.change(change).goals[id]

    @endpoint("POST", "/focus")
    @answering
    def set_focus(self, request: EndpointRequest, ctx: Context) -> replies.GoalList:
        """Let some goals come first, with all that they are split into."""
        wanted, sessions = body(bodies.Focus, request).goals, self.sessions(ctx)
        known = sessions.read().goals
        ids = [the_one("goal", one, known) for one in wanted]
        session = sessions.change(lambda current: focused(current, ids))
        return replies.GoalList(goals=[session.goals[id] for id in ids if id in session.goals])

    def _set(self, request: EndpointRequest, ctx: Context, status: GoalStatus) -> Goal:
        given, sessions = body(bodies.Reason, request).reason, self.sessions(ctx)
        id = _goal(sessions.read(), request).id
        reason = given or f"{request.actor.principal} has asked for it"

        def change(session: Session) -> Session:
            return set_status(session, id, status, ctx.now(), self.config, reason=reason)

        return sessions.change(change).goals[id]

    @endpoint("GET", "/goals/{id}/why")
    @answering
    def why(self, request: EndpointRequest, ctx: Context) -> replies.Why:
        """What was decided for a goal, when, and on which scores."""
        session = self.sessions(ctx).read()
        goal = _goal(session, request)
        return replies.Why(
            goal=goal,
            parent=session.goals.get(goal.parent or ""),
            children=[session.goals[id] for id in goal.children if id in session.goals],
            decisions=[one for one in session.decisions if one.goal == goal.id],
            plan=session.plans.get(goal.id),
        )

    @endpoint("GET", "/cycles")
    @answering
    def cycles(self, request: EndpointRequest, ctx: Context) -> replies.DecisionList:
        """What was decided in each cycle, the last one first."""
        limit, iteration = number(request, "limit"), request.query.get("iteration")
        decisions = self.sessions(ctx).read().decisions[::-1]
        fitting = [one for one in decisions if iteration in (None, str(one.iteration))]
        return replies.DecisionList(cycles=fitting[:limit])

    @endpoint("GET", "/memory")
    @answering
    def show_memory(self, request: EndpointRequest, ctx: Context) -> replies.MemoryList:
        """Working memory, the newest first."""
        limit = number(request, "limit")
        return replies.MemoryList(entries=memory.newest(self.sessions(ctx).read(), limit))

    @endpoint("GET", "/episodes")
    @answering
    def episodes(self, request: EndpointRequest, ctx: Context) -> replies.EpisodeList:
        """What was worth keeping, the newest first."""
        limit = number(request, "limit")
        return replies.EpisodeList(episodes=self.sessions(ctx).read().episodes[::-1][:limit])

    @endpoint("GET", "/recall")
    @answering
    def recall(self, request: EndpointRequest, ctx: Context) -> replies.EpisodeList:
        """The episodes that a query brings back."""
        query, most = request.query.get("query", "").strip(), number(request, "topK", RECALLED)
        if not query:
            raise Refused(422, "query: say what to recall")
        terms = [part.strip() for part in query.split(",") if part.strip()]
        session = self.sessions(ctx).read()
        return replies.EpisodeList(episodes=memory.recall(session.episodes, terms, most))

    @endpoint("POST", "/consolidate")
    @answering
    def consolidate_now(self, ctx: Context) -> replies.Consolidated:
        """Consolidate working memory."""
        kept, gone = self.consolidated(ctx)
        pressure = memory.pressure(self.sessions(ctx).read(), self.config)
        return replies.Consolidated(consolidated=kept, forgotten=gone, pressure=pressure)

    @endpoint("GET", "/questions")
    @answering
    def questions(self, ctx: Context) -> replies.QuestionList:
        """What the agent has asked people, the last one last."""
        return replies.QuestionList(questions=Questions(ctx.state).all())

    @endpoint("POST", "/questions/{id}/answer")
    @answering
    def answer_question(self, request: EndpointRequest, ctx: Context) -> Question:
        """Answer a question; the goal that it is for goes on with the answer."""
        text, questions, now = body(bodies.Answer, request).text, Questions(ctx.state), ctx.now()
        id = the_one("question", request.path["id"], [one.id for one in questions.all()])
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
    ) -> replies.Surroundings | replies.GraphState:
        """What the graph knows about a symbol, or how much it knows."""
        graph, name = self.graph(ctx), request.query.get("symbol")
        if name is None:
            return replies.GraphState(facts=graph.size(), revision=graph.revision())
        most = number(request, "limit", FACTS)
        out, into = graph.out(name)[:most], graph.into(name)[:most]
        alike = [] if out or into else mentioned(graph, name, ALIKE)
        return replies.Surroundings(symbol=name, out=out, into=into, alike=alike)

    @endpoint("GET", "/graph/search")
    @answering
    def search_graph(self, request: EndpointRequest, ctx: Context) -> replies.SymbolList:
        """The symbols that a text speaks of, the nearest to its words first."""
        query, most = request.query.get("query", "").strip(), number(request, "limit", FOUND)
        if not query:
            raise Refused(422, "query: say what to look for")
        return replies.SymbolList(symbols=mentioned(self.graph(ctx), query, most))

    @endpoint("POST", "/graph/facts", timeout=120.0)
    @answering
    def add_facts(self, request: EndpointRequest, ctx: Context) -> replies.Imported:
        """Add facts."""
        return replies.Imported(added=_added(self.graph(ctx), body(bodies.Facts, request).facts))

    @endpoint("POST", "/graph/import", timeout=120.0)
    @answering
    def import_facts(self, request: EndpointRequest, ctx: Context) -> replies.Imported:
        """Add facts in Turtle."""
        wanted = body(bodies.Import, request)
        try:
            found = turtle.read_apart(wanted.turtle, source=wanted.source)
        except turtle.TurtleError as error:
            raise Refused(422, f"turtle: {error}") from None
        added = _added(self.graph(ctx), found.triples)
        return replies.Imported(added=added, skipped=dict(found.skipped))

    @endpoint("GET", "/graph/export", timeout=120.0)
    @answering
    def export_facts(self, request: EndpointRequest, ctx: Context) -> replies.Exported:
        """The facts in Turtle, part by part, without what is about the agent."""
        return exported(self.graph(ctx), request.query.get("after"))

    @endpoint("GET", "/tools")
    @answering
    def tools(self) -> ToolList:
        """What scoring knows of each tool."""
        return self.toolbox.listed


def _goal(session: Session, request: EndpointRequest) -> Goal:
    """The goal that a request names.

    Raises:
        Refused: there is none, or several.
    """
    return session.goals[the_one("goal", request.path["id"], session.goals)]


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
