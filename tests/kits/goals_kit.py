"""Short names for what tests of goals build over and over."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

from boyd import Agent
from boyd.models import Decision as LoopDecision
from boyd.models import EndpointReply, EndpointRequest, LoopResult, Triple
from boyd.plugin import Context, Graph, Plugin
from boyd.testing import TESTER, Lab
from boyd_goals.goal_tree import add_goal, get_goal, is_open, new_session, with_goals
from boyd_goals.judgement import StepFinding
from boyd_goals.memory import MemoryNote, push
from boyd_goals.outcome import DecisionOutcome, apply_outcome, begin_cycle
from boyd_goals.plugin import Goals
from boyd_goals.sessions import SessionCache
from boyd_goals.state import Config, Goal, GoalSession

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONFIG = Config()


def later(seconds: float) -> datetime:
    """So long after `NOW`."""
    return NOW + timedelta(seconds=seconds)


def empty() -> GoalSession:
    """A session without anything."""
    return new_session("s", NOW)


def having(
    *descriptions: str, config: Config = CONFIG, **fields: Any
) -> tuple[GoalSession, list[str]]:
    """A session with goals of those descriptions, all with those fields, and their ids."""
    session, ids = empty(), []
    for description in descriptions:
        session, goal = add_goal(session, description, NOW, config)
        ids.append(goal.id)
    return session if not fields else patch_goals(session, *ids, **fields), ids


def a_goal(description: str = "find mammals", **fields: Any) -> Goal:
    """A goal."""
    defaults = {"id": "1", "description": description, "criteria": description}
    return Goal(**{**defaults, "created_at": NOW, "updated_at": NOW, **fields})


def patch_goals(session: GoalSession, *ids: str, **fields: Any) -> GoalSession:
    """The session in which those goals have those fields."""
    return with_goals(session, [get_goal(session, id).patched(fields) for id in ids])


def stall_goals(session: GoalSession, *ids: str) -> GoalSession:
    """The session in which those goals have just stalled."""
    return patch_goals(session, *ids, cycles_worked=5, last_progress_cycle=0)


def report_outcome(
    session: GoalSession, goal: str, state: str = "done", **fields: Any
) -> GoalSession:
    """The session after the outcome of one more cycle, whose output is what it has found."""
    config = fields.pop("config", CONFIG)
    session = begin_cycle(session, NOW)
    fence = session.goals[goal].fence
    defaults: dict[str, Any] = {
        "cycle": session.cycle,
        "goal": goal,
        "fence": fence,
        "tool": "kg_query",
    }
    if state == "done" and "output" in fields:
        defaults["findings"] = [StepFinding(lines=[fields["output"]], is_asked=True)]
    return apply_outcome(
        session, DecisionOutcome(**{**defaults, "state": state, **fields}), NOW, config
    )


def remembering(*relevances: float, config: Config = CONFIG, **fields: Any) -> GoalSession:
    """A session with entries of those relevances, a second apart."""
    session = fields.pop("session", None) or empty()
    defaults = {"content": "text", "kind": "Observation", "source_cycle": 0}
    for number, relevance in enumerate(relevances):
        values = {**defaults, **fields, "relevance": relevance, "now": later(number)}
        session = push(session, MemoryNote(**values), config)
    return session


def check(session: GoalSession, config: Config) -> None:
    """Assert that all of a session fits together."""
    goals = session.goals
    assert len(goals) <= config.max_goals
    assert len(session.memory) <= config.working_memory_capacity
    assert len(session.episodes) <= config.max_episodes
    assert len(session.decisions) <= config.max_decisions
    ids = [entry.id for entry in session.memory]
    assert ids == sorted(set(ids))
    cycles = [decision.cycle for decision in session.decisions]
    assert cycles == sorted(set(cycles))
    assert len({episode.id for episode in session.episodes}) == len(session.episodes)
    assert len({goal.order for goal in goals.values()}) == len(goals)
    assert set(session.plans) <= set(goals)
    for id, goal in goals.items():
        assert goal.id == id
        assert goal.depth <= config.max_depth
        assert len(goal.children) <= config.max_children
        assert 0 <= goal.last_progress_cycle <= goal.cycles_worked
        assert all(goals[child].parent == id for child in goal.children)
        assert goal.parent is None or goal.children.count(id) == 0
        assert goal.parent is None or goals[goal.parent].children.count(id) == 1
        assert goal.parent is None or goal.depth == goals[goal.parent].depth + 1
        if not is_open(goal):
            assert not any(is_open(goals[child]) for child in goal.children)
            assert goal.owner is None
            assert id not in session.plans or session.plans[id].status != "Active"
        if goal.status == "Failed":
            assert goal.reason
    assert GoalSession.from_json(session.to_json()) == session


class Mind:
    """An agent with goals in a lab, and short ways to ask it.

    Attributes:
        plugin: the bundle; `others` are plugins beside it.
    """

    def __init__(
        self, *others: Plugin, client: Any = None, llm: Any = None, **options: Any
    ) -> None:
        """*client*: of a Redis server; absent: an imaginary one. *llm*: of the agent's model."""
        self.plugin = Goals(**options)
        more = {"llm": llm} if llm else {}
        self.lab = Lab(Agent("a", plugins=[self.plugin, *others], **more), client=client)

    @property
    def ctx(self) -> Context:
        """That of a request."""
        return self.within(None)

    def within(self, iteration: int | None) -> Context:
        """That of an iteration."""
        return self.lab.engine.context("goals", iteration)

    @property
    def session(self) -> GoalSession:
        """The stored session."""
        return self.plugin.sessions(self.ctx).read()

    @property
    def facts(self) -> Graph:
        """The graph."""
        return self.ctx.graph("facts")

    def know(self, *facts: str) -> None:
        """Add facts of three words each."""
        parts = (fact.split() for fact in facts)
        self.facts.add([Triple(subject=s, predicate=p, object=o) for s, p, o in parts])

    def ask(self, endpoint: str, body: Any = None, query: Any = None, **path: str) -> Any:
        """The status and the body with which an endpoint answers."""
        method = getattr(self.plugin, endpoint)
        request = EndpointRequest(
            method="POST" if body is not None else "GET",
            path=path,
            query=query or {},
            body=body,
            actor=TESTER,
        )
        arguments = {"request": request, "ctx": self.ctx}
        parameters = inspect.signature(method).parameters
        reply = method(**{name: value for name, value in arguments.items() if name in parameters})
        return (reply.status, reply.body) if isinstance(reply, EndpointReply) else (200, reply)

    def goal(self, description: str, **fields: Any) -> str:
        """Make a goal; its id."""
        status, goal = self.ask("make_goal", {"description": description, **fields})
        assert status == 201, goal
        return str(goal["id"])

    def cycle(self) -> LoopResult:
        """One iteration."""
        result = self.lab.run()
        assert not result.problems, result.problems
        return result

    def forget(self) -> None:
        """Go on as another worker, which has seen nothing."""
        self.plugin.cache = SessionCache()


class Steer(Plugin):
    """Replaces what was decided."""

    id = "steer"

    def __init__(self, action: str, **params: Any) -> None:
        super().__init__()
        self.wanted = {"action": action, "params": params}

    def on_decide(self, decision: LoopDecision) -> dict[str, Any]:
        return self.wanted
