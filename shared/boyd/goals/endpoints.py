"""What people see and do of goals over HTTP, below `/plugins/goals` (M16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from boyd.errors import PayloadTooLarge
from boyd.goals import memory
from boyd.goals.goal_book import GoalError, add_goal, set_status
from boyd.goals.knowledge import turtle
from boyd.goals.shapes import Goal, GoalStatus, Session
from boyd.goals.tools.actions import Tools
from boyd.goals.tools.answers import taken_in
from boyd.goals.tools.questions import Questions
from boyd.models import EndpointReply, EndpointRequest, Model, explain
from boyd.plugin import Context, endpoint

#: How many entries a list has unless its reader says, and at most.
USUAL, MOST = 50, 500
#: Symbols of the graph that one answer tells of.
FACTS = 200
#: The most characters of an export that one answer holds.
EXPORTED = 900_000
#: More facts than these take more characters than that: it is not tried.
EXPORTED_FACTS = 100_000


def _storable(text: str) -> str:
    if "\x1f" in text or "\0" in text:
        raise ValueError("it holds a control character that no label may have")
    text.encode()
    return text


#: What may become a label of the graph.
Text = Annotated[str, AfterValidator(_storable)]


class NewGoal(Model):
    """A goal to work towards."""

    description: Text
    criteria: Text | None = None
    priority: int = Field(default=128, ge=0, le=255)
    stall_threshold: int | None = Field(default=None, gt=0)


class Reason(Model):
    """Why a goal is put off, taken up or given up."""

    reason: str | None = Field(default=None, max_length=500)


class SessionWanted(Model):
    """Whether to begin anew."""

    fresh: bool = True


class Answer(Model):
    """An answer to a question."""

    text: Annotated[Text, Field(min_length=1, max_length=10_000)]


class Import(Model):
    """Facts in Turtle."""

    turtle: str = Field(min_length=1)
    source: str | None = Field(default=None, max_length=500)


class _Refused(Exception):
    def __init__(self, status: int, error: str) -> None:
        self.reply = EndpointReply(status=status, body={"error": error})


class Endpoints(Tools):
    """The tools, and what HTTP needs of them."""

    @endpoint("GET", "/session")
    def get_session(self, ctx: Context) -> Any:
        """What the agent works on, and how full its memory is."""
        session = self.sessions(ctx).read()
        asked = [one.to_wire() for one in Questions(ctx.state).waiting()]
        return {
            "id": session.id,
            "cycle": session.cycle,
            "maxCycles": self.config.max_cycles,
            "goals": dict(Counter(goal.status for goal in session.goals.values())),
            "memory": {
                "size": len(session.memory),
                "capacity": self.config.working_memory_capacity,
                "pressure": memory.pressure(session, self.config),
            },
            "episodes": len(session.episodes),
            "questions": asked,
            "graph": {"facts": self.graph(ctx).size()},
        }

    @endpoint("POST", "/session")
    def begin_session(self, request: EndpointRequest, ctx: Context) -> Any:
        """Begin a new session; the old one is kept."""
        return _answered(lambda: self._begin(_body(SessionWanted, request), ctx))

    def _begin(self, wanted: SessionWanted, ctx: Context) -> EndpointReply:
        sessions = self.sessions(ctx)
        id = sessions.fresh() if wanted.fresh else sessions.current
        return EndpointReply(status=201, body={"id": id})

    @endpoint("GET", "/goals")
    def list_goals(self, request: EndpointRequest, ctx: Context) -> Any:
        """The goals, the most important first."""
        wanted = request.query.get("status")
        goals = self.sessions(ctx).read().goals.values()
        fitting = [goal for goal in goals if wanted is None or goal.status == wanted]
        ordered = sorted(fitting, key=lambda goal: (-goal.priority, goal.order))
        return {"goals": [goal.to_wire() for goal in ordered]}

    @endpoint("POST", "/goals")
    def make_goal(self, request: EndpointRequest, ctx: Context) -> Any:
        """Make a goal."""
        return _answered(lambda: self._make(_body(NewGoal, request), ctx))

    def _make(self, wanted: NewGoal, ctx: Context) -> EndpointReply:
        made: list[Goal] = []

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
            made[:] = [goal]
            return after

        try:
            self.sessions(ctx).change(change)
        except GoalError as error:
            raise _Refused(422, str(error)) from None
        return EndpointReply(status=201, body=made[0].to_wire())

    @endpoint("GET", "/goals/{id}")
    def get_goal(self, request: EndpointRequest, ctx: Context) -> Any:
        """One goal; a prefix of its id will do."""
        return _answered(lambda: self._found(request, ctx)[1].to_wire())

    @endpoint("POST", "/goals/{id}/suspend")
    def suspend_goal(self, request: EndpointRequest, ctx: Context) -> Any:
        """Put a goal off."""
        return _answered(lambda: self._set(request, ctx, "Suspended"))

    @endpoint("POST", "/goals/{id}/resume")
    def resume_goal(self, request: EndpointRequest, ctx: Context) -> Any:
        """Go on with a goal."""
        return _answered(lambda: self._set(request, ctx, "Active"))

    @endpoint("POST", "/goals/{id}/fail")
    def fail_goal(self, request: EndpointRequest, ctx: Context) -> Any:
        """Give a goal up."""
        return _answered(lambda: self._set(request, ctx, "Failed"))

    def _set(self, request: EndpointRequest, ctx: Context, status: GoalStatus) -> Any:
        given = _body(Reason, request).reason
        _, goal = self._found(request, ctx)
        by = request.actor.principal
        reason = given or f"{by} has asked for it"

        def change(session: Session) -> Session:
            return set_status(session, goal.id, status, ctx.now(), self.config, reason=reason)

        return self.sessions(ctx).change(change).goals[goal.id].to_wire()

    @endpoint("GET", "/goals/{id}/why")
    def why(self, request: EndpointRequest, ctx: Context) -> Any:
        """What was decided for a goal, when, and on which scores."""

        def told() -> Any:
            session, goal = self._found(request, ctx)
            parent = session.goals.get(goal.parent or "")
            plan = session.plans.get(goal.id)
            children = [session.goals[id] for id in goal.children if id in session.goals]
            decisions = [one.to_wire() for one in session.decisions if one.goal == goal.id]
            return {
                "goal": goal.to_wire(),
                "children": [child.to_wire() for child in children],
                "decisions": decisions,
                **({"parent": parent.to_wire()} if parent else {}),
                **({"plan": plan.to_wire()} if plan else {}),
            }

        return _answered(told)

    @endpoint("GET", "/cycles")
    def cycles(self, request: EndpointRequest, ctx: Context) -> Any:
        """What was decided in each cycle, the last one first."""

        def told() -> Any:
            limit = _number(request, "limit", USUAL)
            iteration = request.query.get("iteration")
            decisions = self.sessions(ctx).read().decisions[::-1]
            fitting = [one for one in decisions if iteration in (None, str(one.iteration))]
            return {"cycles": [one.to_wire() for one in fitting[:limit]]}

        return _answered(told)

    @endpoint("GET", "/memory")
    def show_memory(self, request: EndpointRequest, ctx: Context) -> Any:
        """Working memory, the newest first."""

        def told() -> Any:
            entries = memory.newest(self.sessions(ctx).read(), _number(request, "limit", USUAL))
            return {"entries": [entry.to_wire() for entry in entries]}

        return _answered(told)

    @endpoint("GET", "/episodes")
    def episodes(self, request: EndpointRequest, ctx: Context) -> Any:
        """What was worth keeping, the newest first."""

        def told() -> Any:
            found = self.sessions(ctx).read().episodes[::-1][: _number(request, "limit", USUAL)]
            return {"episodes": [episode.to_wire() for episode in found]}

        return _answered(told)

    @endpoint("GET", "/recall")
    def recall(self, request: EndpointRequest, ctx: Context) -> Any:
        """The episodes that a query brings back."""

        def told() -> Any:
            query = request.query.get("query", "").strip()
            if not query:
                raise _Refused(422, "query: say what to recall")
            terms = [part.strip() for part in query.split(",") if part.strip()]
            session = self.sessions(ctx).read()
            found = memory.recall(session.episodes, terms, _number(request, "topK", 5))
            return {"episodes": [episode.to_wire() for episode in found]}

        return _answered(told)

    @endpoint("POST", "/consolidate")
    def consolidate_now(self, ctx: Context) -> Any:
        """Consolidate working memory."""
        kept, gone = self.consolidated(ctx)
        pressure = memory.pressure(self.sessions(ctx).read(), self.config)
        return {"consolidated": kept, "forgotten": gone, "pressure": pressure}

    @endpoint("GET", "/questions")
    def questions(self, ctx: Context) -> Any:
        """What the agent has asked people, the last one last."""
        return {"questions": [one.to_wire() for one in Questions(ctx.state).all()]}

    @endpoint("POST", "/questions/{id}/answer")
    def answer_question(self, request: EndpointRequest, ctx: Context) -> Any:
        """Answer a question; the goal that it is for goes on with the answer."""
        return _answered(lambda: self._answer(request, ctx, _body(Answer, request).text))

    def _answer(self, request: EndpointRequest, ctx: Context, text: str) -> Any:
        id, now = request.path["id"], ctx.now()
        question, counts = Questions(ctx.state).answer(id, text, request.actor.principal, now)
        if question is None:
            raise _Refused(404, f"there is no question {id!r}")
        if not counts:
            raise _Refused(409, f"{question.answered_by} has answered it: {question.answer}")

        self.sessions(ctx).change(lambda session: taken_in(session, question, now, self.config))
        return question.to_wire()

    @endpoint("GET", "/graph")
    def facts(self, request: EndpointRequest, ctx: Context) -> Any:
        """What the graph knows about a symbol, or how much it knows."""

        def told() -> Any:
            graph, name = self.graph(ctx), request.query.get("symbol")
            if name is None:
                return {"facts": graph.size(), "revision": graph.revision()}
            limit = _number(request, "limit", FACTS)
            return {
                "symbol": name,
                "out": [one.to_wire() for one in graph.out(name)[:limit]],
                "into": [one.to_wire() for one in graph.into(name)[:limit]],
            }

        return _answered(told)

    @endpoint("POST", "/graph/import", timeout=120.0)
    def import_facts(self, request: EndpointRequest, ctx: Context) -> Any:
        """Add facts in Turtle."""

        def told() -> Any:
            wanted = _body(Import, request)
            try:
                found = turtle.read(wanted.turtle, source=wanted.source)
            except turtle.TurtleError as error:
                raise _Refused(422, f"turtle: {error}") from None
            try:
                return {"added": self.graph(ctx).add(found.triples)}
            except PayloadTooLarge as error:
                raise _Refused(413, str(error)) from None
            except ValueError as error:
                raise _Refused(422, str(error)) from None

        return _answered(told)

    @endpoint("GET", "/graph/export", timeout=120.0)
    def export_facts(self, ctx: Context) -> Any:
        """The facts in Turtle, without what is about the agent."""

        def told() -> Any:
            graph = self.graph(ctx)
            text = turtle.write(graph.all()) if graph.size() <= EXPORTED_FACTS else None
            if text is None or len(text) > EXPORTED:
                raise _Refused(413, f"more than {EXPORTED} characters are too many for one answer")
            return {"turtle": text}

        return _answered(told)

    @endpoint("GET", "/tools")
    def tools(self) -> Any:
        """What scoring knows of each tool."""
        known = self.profiles().items()
        return {
            "tools": [
                {**one.to_wire(), "name": name, "action": self.action_of(name)}
                for name, one in known
            ]
        }

    def _found(self, request: EndpointRequest, ctx: Context) -> tuple[Session, Goal]:
        """The goal that a request names, by its id or a prefix that only it has."""
        session, id = self.sessions(ctx).read(), request.path["id"]
        if id in session.goals:
            return session, session.goals[id]
        fitting = [goal for name, goal in session.goals.items() if name.startswith(id)]
        if len(fitting) == 1:
            return session, fitting[0]
        what = f"several goals begin with {id!r}" if fitting else f"there is no goal {id!r}"
        raise _Refused(404, what)


def _answered(told: Callable[[], Any]) -> Any:
    """The answer, or why there is none."""
    try:
        return told()
    except _Refused as refused:
        return refused.reply
    except GoalError as error:
        return EndpointReply(status=409, body={"error": str(error)})


def _body(kind: type[Any], request: EndpointRequest) -> Any:
    try:
        return kind.model_validate(request.body or {})
    except ValidationError as error:
        raise _Refused(422, explain(error)) from None


def _number(request: EndpointRequest, name: str, usual: int) -> int:
    text = request.query.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST:
        raise _Refused(422, f"{name}: {text!r} is no number from 1 to {MOST}")
    return int(text)
