"""An API before an imaginary agent with goals: what it decides and finds is told to it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from boyd.models import (
    FROZEN,
    ActionResult,
    LoopResult,
    Model,
    Observation,
    Situation,
    no_op,
    utc_now,
)
from boyd.models.action import APPROVAL_REQUIRED
from boyd.models.responses import AgentList
from boyd.models.situation import Triple
from boyd_goals.api_models import (
    Consolidated,
    DecisionList,
    EpisodeList,
    Exported,
    GoalExplanation,
    GoalList,
    GraphState,
    Imported,
    MemoryList,
    MemoryState,
    NewSession,
    PsycheState,
    QuestionList,
    SessionList,
    SessionState,
    Surroundings,
    SymbolList,
    WaitingTool,
)
from boyd_goals.psyche import new_psyche
from boyd_goals.state import (
    Episode,
    Goal,
    GoalStatus,
    MemoryEntry,
    PlanStep,
    Psyche,
    Question,
    SessionSummary,
    ShadowPattern,
    ToolDecision,
    ToolPlan,
)
from http_kit import Handler, serve

SCORES = (
    "[score=0.98: base=0.80 recency=-0.00 novelty=+0.15"
    " episodic=+0.00 pressure=+0.00 archetype=+0.030]"
)
APPROVAL = "0a1b2c3d-0000-4000-8000-000000000000"

Answer = tuple[int, Any]


class Act:
    """The outcome of one cycle."""

    def __init__(self, progress: str | None = "NoChange", detail: str = "", **more: Any) -> None:
        """*more*: `status` of the goal, `approval`, `question`, `error` of the iteration.

        Of an iteration without a cycle also `undone`, which is why its action was not done, and
        `idle`, which is why nothing was chosen.
        """
        self.progress = progress
        self.detail = detail
        self.more = more


#: An iteration without a cycle.
NOTHING = Act(None)


class ImaginaryMind:
    """Answers as the endpoints of the plugin `goals` do.

    Attributes:
        acts: what the next cycles come to; when there are no more, `NoChange`.
        requests: all requests as (method, path, body).
        has_goals: whether the agent has the plugin.
        paused, frozen: why it does nothing, or may not act; `frozen_everywhere` for all agents.
        approved: whether a person has allowed what waited.
    """

    def __init__(self) -> None:
        self.goals: dict[str, Goal] = {}
        self.decisions: list[ToolDecision] = []
        self.results: dict[int, LoopResult] = {}
        self.questions: list[Question] = []
        self.facts = [Triple(subject="cat", predicate="is-a", object="mammal", confidence=0.9)]
        self.acts: list[Act] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.sessions = 1
        self.focus: list[str] = []
        self.psyche: Psyche | None = new_psyche(
            shadow=[ShadowPattern(name="mine", triggers=["shut down\x1b[2J"], veto=False)]
        )
        self.max_cycles = 1000
        self.has_goals = True
        self.paused: str | None = None
        self.frozen: str | None = None
        self.frozen_everywhere: str | None = None
        self.approved = False
        self.going = threading.Event()
        self.going.set()
        self.begun = threading.Event()

    @property
    def cycle(self) -> int:
        """The last cycle."""
        return len(self.decisions)

    def add(self, description: str, status: GoalStatus = "Active", **more: Any) -> Goal:
        """Add a goal."""
        goal = Goal(
            id=f"g{len(self.goals) + 1}",
            description=description,
            criteria=more.pop("criteria", description),
            status=status,
            created_at=utc_now(),
            updated_at=utc_now(),
            **more,
        )
        self.goals[goal.id] = goal
        return goal

    def asks(self, text: str, id: str = "q1") -> None:
        """Ask a question."""
        self.questions.append(Question(id=id, goal="g1", text=text, asked_at=utc_now()))

    def posted(self, path: str) -> list[Any]:
        """The bodies that were posted there."""
        return [body for method, at, body in self.requests if (method, at) == ("POST", path)]

    # Answers

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """The status and the document."""
        path = re.sub(r"^/agents/[^/]+", "", path)
        self.requests.append((method, path, body))
        if path.startswith("/plugins/"):
            if not self.has_goals:
                return self._problem("not-found", 404, f"plugin 'goals' has no endpoint {path}")
            path = path.removeprefix("/plugins/goals")
        for verb, pattern, handle in self._routes():
            match = re.fullmatch(pattern, path)
            if verb == method and match:
                return handle(*map(unquote, match.groups()), {**query, **(body or {})})
        return self._problem("not-found", 404, f"no {path}")

    def _routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            ("POST", "/loop/trigger", self._trigger),
            ("GET", r"/loop/history/(\d+)", self._past),
            ("GET", "/loop/status", self._status),
            ("GET", "/agents", self._agents),
            ("GET", "/session", self._session),
            ("GET", "/sessions", self._sessions),
            ("GET", "/psyche", lambda _: (200, PsycheState(psyche=self.psyche))),
            ("POST", "/focus", self._focus),
            ("POST", "/session", self._fresh),
            ("GET", "/goals", self._list),
            ("POST", "/goals", self._add),
            ("GET", "/goals/([^/]+)", self._goal),
            ("POST", "/goals/([^/]+)/(suspend|resume|fail)", self._steer),
            ("POST", "/goals/([^/]+)/priority", self._prioritize),
            ("GET", "/goals/([^/]+)/why", self._why),
            ("GET", "/cycles", self._cycles),
            ("GET", "/memory", self._memory),
            ("GET", "/recall", self._recall),
            (
                "GET",
                "/episodes",
                lambda body: self._recall({"query": "all", "topK": body["limit"]}),
            ),
            ("POST", "/consolidate", self._consolidate),
            ("GET", "/questions", lambda _: (200, QuestionList(questions=self.questions))),
            ("POST", "/questions/([^/]+)/answer", self._answer),
            ("GET", "/graph", self._graph),
            ("GET", "/graph/search", self._search),
            ("POST", "/graph/facts", self._learn),
            ("GET", "/graph/export", self._export),
        ]

    @staticmethod
    def _problem(name: str, status: int, detail: str) -> Answer:
        return status, {
            "type": f"/problems/{name}",
            "title": name,
            "status": status,
            "detail": detail,
            "error": detail,
        }

    def _trigger(self, body: dict[str, Any]) -> Answer:
        if self.paused:
            return self._problem("paused", 409, f"agent 'test' is paused: {self.paused}")
        number = len(self.results) + 1
        act = self.acts.pop(0) if self.acts else Act()
        active = [goal for goal in self.goals.values() if goal.status == "Active"]
        if not active:
            act = NOTHING
        self.results[number] = self._act(number, act, active)
        self.begun.set()
        message = "iteration started"
        return 202, {
            "success": True,
            "status": "triggered",
            "message": message,
            "iteration": number,
        }

    def _act(self, number: int, act: Act, active: list[Goal]) -> LoopResult:
        error = act.more.get("error")
        if act.progress is not None:
            goal = max(
                active, key=lambda candidate: (candidate.id in self.focus, candidate.priority)
            )
            worked = {"cycles_worked": goal.cycles_worked + 1}
            status = {"status": act.more.get("status", goal.status)}
            self.goals[goal.id] = goal.model_copy(update={**worked, **status})
            self.decisions.append(
                ToolDecision(
                    cycle=self.cycle + 1,
                    iteration=number,
                    goal=goal.id,
                    tool="kg_query",
                    params_digest="0",
                    breakdown=SCORES,
                    progress=act.progress,  # type: ignore[arg-type]
                    detail=act.detail,
                    approval=APPROVAL if act.more.get("approval") else None,
                    at=utc_now(),
                )
            )
        if "question" in act.more:
            self.asks(act.more["question"])
        waits: dict[str, Any] = {
            "error": APPROVAL_REQUIRED,
            "metrics": {"approvalId": APPROVAL},
        }
        more = waits if act.more.get("approval") else {}
        success = not more
        undone = act.more.get("undone")
        if undone:
            prevented = "frozen" if undone.startswith(FROZEN) else "unserved"
            more, success = {"error": undone, "prevented": prevented}, False
        acted = ActionResult(action="goals:kg_query", success=success, duration=1.0, **more)
        return LoopResult(
            id=str(number),
            agent_id="test",
            iteration=number,
            trigger="api",
            observations=[
                Observation(source="goals", type="state", data={"goals": [{}]}),
                Observation(source="working-memory", type="state", data={"size": 3}),
                Observation(source="episodes", type="state", data={"episodes": []}),
                Observation(source="load", type="metric", data={"size": 3}),
            ],
            situation=Situation(summary="1 active goal"),
            decision=no_op(act.more["idle"]) if "idle" in act.more else None,
            action_results=[acted] if act.progress or undone else [],
            success=error is None,
            error=error,
            duration=5.0,
            started_at=utc_now(),
            ended_at=utc_now(),
        )

    def _past(self, number: str, _: dict[str, Any]) -> Answer:
        if not self.going.is_set():
            return self._problem("not-found", 404, "it has not ended")
        return 200, self.results[int(number)]

    def _status(self, _: dict[str, Any]) -> Answer:
        held = {"paused": self.paused, "frozen": self.frozen or self.frozen_everywhere}
        reasons = {name: reason for name, reason in held.items() if reason is not None}
        status = {"agentId": "test", "phase": "act", "iteration": len(self.results)}
        return 200, {**status, **reasons}

    def _agents(self, _: dict[str, Any]) -> Answer:
        return 200, AgentList(agents=[], frozen=self.frozen_everywhere)

    def _session(self, _: dict[str, Any]) -> Answer:
        statuses = [goal.status for goal in self.goals.values()]
        state = SessionState(
            id=f"s{self.sessions}",
            cycle=self.cycle,
            max_cycles=self.max_cycles,
            focus=self.focus,
            goals={name: statuses.count(name) for name in statuses},
            memory=MemoryState(size=3, capacity=100, pressure=0.03),
            episodes=1,
            questions=[question for question in self.questions if question.answer is None],
            approvals=[
                WaitingTool(tool=decision.tool, goal=decision.goal, approval=decision.approval)
                for decision in self.decisions
                if decision.approval and not self.approved
            ],
            graph=GraphState(facts=len(self.facts)),
        )
        return 200, {**state.to_wire(), "news": "of a later release"}

    def _sessions(self, _: dict[str, Any]) -> Answer:
        summaries = [
            SessionSummary(
                id=str(number),
                current=number == self.sessions,
                cycle=self.cycle,
                created_at=utc_now(),
                updated_at=utc_now(),
            )
            for number in range(self.sessions, 0, -1)
        ]
        return 200, SessionList(sessions=summaries)

    def _focus(self, body: dict[str, Any]) -> Answer:
        self.focus = body["goals"]
        return 200, GoalList(goals=[self.goals[id] for id in self.focus])

    def _prioritize(self, id: str, body: dict[str, Any]) -> Answer:
        self.goals[id] = self.goals[id].model_copy(update={"priority": body["priority"]})
        return 200, self.goals[id]

    def _fresh(self, body: dict[str, Any]) -> Answer:
        if "id" in body:
            exists = body["id"] == "1"
            return (201, NewSession(id="1")) if exists else (404, {"error": "there is no session"})
        assert body == {"fresh": True}
        self.sessions += 1
        self.goals.clear()
        self.decisions.clear()
        return 201, NewSession(id=f"s{self.sessions}")

    def _list(self, body: dict[str, Any]) -> Answer:
        status = body.get("status")
        goals = [goal for goal in self.goals.values() if status in (None, goal.status)]
        return 200, GoalList(goals=sorted(goals, key=lambda goal: -goal.priority))

    def _add(self, body: dict[str, Any]) -> Answer:
        if body["description"] == "nonsense":
            return 422, {"error": "that is \x1b[31mno goal"}
        names = {"stallThreshold": "stall_threshold"}
        return 201, self.add(**{names.get(name, name): value for name, value in body.items()})

    def _goal(self, id: str, _: dict[str, Any]) -> Answer:
        matches = [goal for goal in self.goals.values() if goal.id.startswith(id)]
        return (200, matches[0]) if len(matches) == 1 else (404, {"error": f"no goal {id!r}"})

    def _steer(self, id: str, verb: str, body: dict[str, Any]) -> Answer:
        status, goal = self._goal(id, body)
        if status != 200:
            return status, goal
        new_status = {"suspend": "Suspended", "resume": "Active", "fail": "Failed"}[verb]
        if goal.status == new_status:
            return 409, {"error": f"goal {goal.id} is {new_status} already"}
        changes = {"status": new_status, "reason": body.get("reason")}
        self.goals[goal.id] = goal.model_copy(update=changes)
        return 200, self.goals[goal.id]

    def _why(self, id: str, body: dict[str, Any]) -> Answer:
        status, goal = self._goal(id, body)
        if status != 200:
            return status, goal
        steps = [PlanStep(tool="kg_query", rationale="look"), PlanStep(tool="reason", rationale="")]
        return 200, GoalExplanation(
            goal=goal,
            children=[child for child in self.goals.values() if child.parent == goal.id],
            decisions=[decision for decision in self.decisions if decision.goal == goal.id],
            plan=ToolPlan(goal=goal.id, steps=steps),
        )

    def _cycles(self, body: dict[str, Any]) -> Answer:
        decisions = [
            decision for decision in self.decisions if str(decision.iteration) == body["iteration"]
        ]
        return 200, DecisionList(cycles=decisions)

    def _memory(self, _: dict[str, Any]) -> Answer:
        entry = MemoryEntry(
            id=1,
            content="a whale is large",
            symbols=["whale", "whale\x1b[2J"],
            kind="Inference",
            timestamp=utc_now(),
            relevance=0.7,
            source_cycle=1,
        )
        return 200, MemoryList(entries=[entry])

    def _recall(self, body: dict[str, Any]) -> Answer:
        episode = Episode(
            id="e1",
            timestamp=utc_now(),
            goal="g1",
            summary=f"about {body['query']}\x1b[2J",
            learnings=["whale"],
            tools=["kg_query"],
            relevance=0.8,
        )
        return 200, EpisodeList(episodes=[episode] * min(int(body["topK"]), 2))

    def _episodes(self, body: dict[str, Any]) -> Answer:
        return self._recall({"query": "all", "topK": body["limit"]})

    def _consolidate(self, _: dict[str, Any]) -> Answer:
        return 200, Consolidated(consolidated=3, forgotten=2, pressure=0.45)

    def _answer(self, id: str, body: dict[str, Any]) -> Answer:
        places = [place for place, entry in enumerate(self.questions) if entry.id == id]
        if not places:
            return 404, {"error": f"no question {id!r}"}
        question = self.questions[places[0]]
        if question.answer is not None:
            return 409, {"error": f"ann has answered it: {question.answer}"}
        answered = question.patched({"answer": body["text"], "answered_by": "ann"})
        self.questions[places[0]] = answered
        return 200, answered

    def _learn(self, body: dict[str, Any]) -> Answer:
        if len(body["facts"]) > 600:
            return self._problem("too-large", 413, "The body has more bytes than are allowed.")
        return 200, Imported(added=len(body["facts"]))

    def _export(self, body: dict[str, Any]) -> Answer:
        if "after" in body:
            return 200, Exported(turtle="<a:dog> <a:is> <a:mammal> .\n", revision=2)
        return 200, Exported(turtle="<a:cat> <a:is> <a:mammal> .\n", next="cat", revision=1)

    def _graph(self, body: dict[str, Any]) -> Answer:
        symbol = body["symbol"]
        out = [fact for fact in self.facts if fact.subject == symbol]
        into = [fact for fact in self.facts if fact.object == symbol]
        alike = [] if out or into else ["cat (foaf)\x1b[2J"]
        return 200, Surroundings(symbol=symbol, out=out, into=into, alike=alike)

    def _search(self, body: dict[str, Any]) -> Answer:
        return 200, SymbolList(symbols=["cat"] if body["query"] == "cats" else [])


class _Handler(Handler):
    """Lets the imaginary mind answer."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # or each answer waits for the kernel to put its parts together
    mind: ImaginaryMind

    def answer(self) -> None:
        text = self.read_body()
        address = urlsplit(self.path)
        path, query = address.path.removeprefix("/api/v0"), dict(parse_qsl(address.query))
        body = json.loads(text) if text else None
        status, document = self.mind.answer(self.command, path, query, body)
        content = json.dumps(document, default=Model.to_wire).encode()
        self.reply(status, content, Content_Type="application/json")


@contextmanager
def thinking() -> Iterator[tuple[ImaginaryMind, str]]:
    """A mind, and the URL of the API before it."""
    mind = ImaginaryMind()
    with serve(type("MindHandler", (_Handler,), {"mind": mind})) as url:
        yield mind, url
