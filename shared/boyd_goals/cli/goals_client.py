"""Client of the plugin `goals`: sessions, goals, memory and facts of an agent, and its cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from boyd.errors import ApiProblem
from boyd.models import FROZEN, REVOKED, LoopResult, LoopStatus, Model, Triple
from boyd.models.responses import AgentList, Triggered
from boyd_cli import output
from boyd_cli.api_access import Api, past_iteration
from boyd_cli.terminal import Spinner
from boyd_goals import api_models, state

#: The plugin's name, as in `use = "goals"`.
PLUGIN = "goals"
#: Seconds to wait while many facts are read or written.
_LONG = 300.0

_M = TypeVar("_M", bound=Model)


class GoalsClient:
    """The endpoints of the plugin `goals` of one agent.

    Every method raises `ApiProblem` when it is refused, and `ApiUnavailable` without an answer.
    """

    def __init__(self, api: Api) -> None:
        self.api = api

    def session(self) -> api_models.SessionState:
        """The current session."""
        return self._get("/session", api_models.SessionState)

    def begin(self, id: str | None = None) -> str:
        """Start a new session, or continue an older one, and return its id; the others are kept."""
        body = {"fresh": True} if id is None else {"id": id}
        return self._post("/session", api_models.NewSession, body).id

    def sessions(self) -> list[state.SessionSummary]:
        """All sessions, the current one first."""
        return self._get("/sessions", api_models.SessionList).sessions

    def psyche(self) -> api_models.PsycheState:
        """The agent's preferences and prohibitions."""
        return self._get("/psyche", api_models.PsycheState)

    def focus(self, ids: Sequence[str]) -> None:
        """Give those goals precedence; without any, all go by priority."""
        self._post("/focus", api_models.GoalList, {"goals": [*ids]})

    def goals(self, status: state.GoalStatus | None = None) -> list[state.Goal]:
        """The goals of the session in order of precedence."""
        return self._get("/goals", api_models.GoalList, status=status).goals

    def add(
        self,
        description: str,
        priority: int | None = None,
        criteria: str | None = None,
        stall_threshold: int | None = None,
    ) -> state.Goal:
        """Add a goal."""
        body = {"description": description, "priority": priority, "criteria": criteria}
        return self._post("/goals", state.Goal, {**body, "stallThreshold": stall_threshold})

    def ensure(self, description: str, priority: int | None = None) -> state.Goal:
        """Return the active goal of that description, adding it if necessary."""
        for goal in self.goals("Active"):
            if goal.description == description:
                return goal
        return self.add(description, priority)

    def goal(self, id: str) -> state.Goal:
        """The goal with that id or unambiguous prefix of one."""
        return self._get(_path("goal", id), state.Goal)

    def change(self, verb: str, id: str, reason: str | None = None) -> state.Goal:
        """Change the status of a goal: `suspend`, `resume` or `fail`."""
        return self._post(_path("goal", id, f"/{verb}"), state.Goal, {"reason": reason})

    def prioritize(self, id: str, priority: int) -> state.Goal:
        """Change how important a goal is."""
        return self._post(_path("goal", id, "/priority"), state.Goal, {"priority": priority})

    def why(self, id: str) -> api_models.GoalExplanation:
        """The decisions made for a goal."""
        return self._get(_path("goal", id, "/why"), api_models.GoalExplanation)

    def decision(self, iteration: int) -> state.ToolDecision | None:
        """The decision of an iteration, or None if it was no cycle."""
        decisions = self._get("/cycles", api_models.DecisionList, iteration=iteration).cycles
        return decisions[0] if decisions else None

    def memory(self, limit: int) -> list[state.MemoryEntry]:
        """Entries of working memory, newest first."""
        return self._get("/memory", api_models.MemoryList, limit=limit).entries

    def episodes(self, limit: int) -> list[state.Episode]:
        """Memories, newest first."""
        return self._get("/episodes", api_models.EpisodeList, limit=limit).episodes

    def recall(self, query: str, top_k: int) -> list[state.Episode]:
        """Memories about *query*, best first."""
        return self._get("/recall", api_models.EpisodeList, query=query, topK=top_k).episodes

    def consolidate(self) -> api_models.Consolidated:
        """Turn working memory into memories."""
        return self._post("/consolidate", api_models.Consolidated)

    def questions(self, *, answered: bool = False) -> list[state.Question]:
        """Open questions; with *answered*, all questions."""
        questions = self._get("/questions", api_models.QuestionList).questions
        return [question for question in questions if answered or question.answer is None]

    def answer(self, id: str, text: str) -> state.Question:
        """Answer a question."""
        return self._post(_path("question", id, "/answer"), state.Question, {"text": text})

    def about(self, symbol: str, limit: int | None = None) -> api_models.Surroundings:
        """The facts about a symbol."""
        return self._get("/graph", api_models.Surroundings, symbol=symbol, limit=limit)

    def search(self, query: str, limit: int | None = None) -> list[str]:
        """The symbols that match *query*, best first."""
        return self._get("/graph/search", api_models.SymbolList, query=query, limit=limit).symbols

    def learn(self, facts: Sequence[Triple]) -> int:
        """Add facts, and return the number of new ones."""
        body = {"facts": [fact.to_wire() for fact in facts]}
        return self._ask("POST", "/graph/facts", api_models.Imported, body, timeout=_LONG).added

    def knowledge(self) -> Iterator[api_models.Exported]:
        """All facts as Turtle, part by part."""
        query: dict[str, object] | None = {}
        while query is not None:
            part = self._ask(
                "GET", "/graph/export", api_models.Exported, query=query, timeout=_LONG
            )
            yield part
            query = {"after": part.next} if part.next is not None else None

    def may_act(self) -> bool:
        """True while the agent is neither paused, frozen nor revoked."""
        status = self.api.agent.get("/loop/status", LoopStatus)
        return status.paused is None and status.frozen is None and status.revoked is None

    def _get(self, path: str, kind: type[_M], **query: object) -> _M:
        return self._ask("GET", path, kind, query=query)

    def _post(self, path: str, kind: type[_M], body: Mapping[str, object] | None = None) -> _M:
        return self._ask("POST", path, kind, body)

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[_M],
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> _M:
        client = copy(self.api.agent)
        client.timeout = timeout or client.timeout
        try:
            return client.plugin(method, PLUGIN, path, kind, body, **(query or {}))
        except ApiProblem as problem:
            if problem.name != "not-found":
                raise
            whose = f"agent {client.agent!r}" if client.agent else "this agent"
            detail = f'{whose} does not use the goals plugin: add `use = "{PLUGIN}"` below'
            detail += " `[[plugins]]` to its agent file"
            raise ApiProblem("not-found", problem.status, detail) from None


def _path(noun: str, id: str, verb: str = "") -> str:
    """The path of an item; `ApiProblem` if no id looks like *id*."""
    if not id.strip(".") or "/" in id:
        raise ApiProblem("no-such-id", 404, f"no {noun} {id!r}")
    return f"/{noun}s/{quote(id, safe='')}{verb}"


def freeze_notice(api: Api, reason: str) -> str:
    """*reason*, which begins with `FROZEN` or `REVOKED`, and the command that ends it."""
    if reason.startswith(REVOKED):
        return f"{reason}; {output.to_type('restore')} restores it"
    try:
        everywhere = reason == f"{FROZEN}: {api.deployment.get('/agents', AgentList).frozen}"
    except ApiProblem:  # the key may not look
        everywhere = False
    # --all excludes --agent.
    command = (
        f"`{output.command_name()} unfreeze --all`" if everywhere else output.to_type("unfreeze")
    )
    return f"{reason}; {command} lifts the freeze"


#: Iterations in a row without a cycle after which the agent has nothing to do.
_IDLE = 2


@dataclass(frozen=True)
class Cycle:
    """An iteration with its decision and goal; both are None if it was no cycle.

    Attributes:
        result: the iteration.
        decision: with its result.
        goal: of the decision, as it is after the cycle.
        session: as it is after the cycle.
    """

    result: LoopResult
    decision: state.ToolDecision | None
    goal: state.Goal | None
    session: api_models.SessionState

    @property
    def approvals(self) -> list[tuple[str, str]]:
        """Pending actions with the ids of their approvals."""
        waiting_ids = {approval for _, approval in self.session.waiting}
        done = self.result.action_results
        own = [(result.action, result.waits_for) for result in done if result.waits_for]
        return [*self.session.waiting, *(pair for pair in own if pair[1] not in waiting_ids)]

    @property
    def obstacle(self) -> str | None:
        """The error of an action that was not executed, or the rationale for choosing none."""
        chosen = self.result.decision
        if self.decision is None and chosen is not None and chosen.is_no_op:
            return output.one_line(chosen.rationale)
        return self.refusal

    @property
    def refusal(self) -> str | None:
        """The first error of actions that were not executed, if it was no cycle."""
        if self.decision is not None:
            return None
        errors = (result.error for result in self.result.action_results if not result.waits_for)
        return next((output.one_line(error) for error in errors if error), None)

    @property
    def is_frozen(self) -> bool:
        """True if a freeze or a revocation kept it from being a cycle."""
        done = self.result.action_results
        return self.decision is None and any(
            result.prevented in ("frozen", "revoked") for result in done
        )

    def to_wire(self) -> dict[str, Any]:
        """The data to print."""
        fields = {
            "iteration": self.result.iteration,
            "success": self.result.success,
            "error": self.result.error,
            "decision": self.decision,
            "goal": self.goal,
            "approvals": [approval for _, approval in self.approvals],
            "questions": self.session.questions,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass
class CycleRunner:
    """Runs cycles until nothing is left to do, or the limit is reached.

    Attributes:
        most: the limit.
        done: the number of cycles so far.
        session: the current session.
        ending: why it ended: `done` (no active goal), `enough` (limit reached), `spent` (limit of
            the session reached), `idle` (nothing to do), `frozen` or `failed` (an iteration).
        reason: why the last iteration was no cycle, if known.
    """

    client: GoalsClient
    most: int
    session: api_models.SessionState
    done: int = 0
    ending: str = "enough"
    reason: str | None = None
    _idle: int = field(default=0, repr=False)

    def cycles(self) -> Iterator[Cycle]:
        """Run and yield cycles."""
        while self._may_go_on():
            cycle = next_cycle(self.client)
            self.session, self.reason = cycle.session, cycle.obstacle
            self._idle = 0 if cycle.decision else self._idle + 1
            self.done += cycle.decision is not None
            if cycle.decision or not cycle.result.success:
                yield cycle
            if cycle.is_frozen or not cycle.result.success:
                self.ending = "frozen" if cycle.is_frozen else "failed"
                return

    def _may_go_on(self) -> bool:
        if not self.session.active:
            self.ending = "done"
        elif self.session.cycle >= self.session.max_cycles:
            self.ending = "spent"
        elif self._idle >= _IDLE:
            self.ending = "idle"
        elif self.done >= self.most:
            self.ending = "enough"
        else:
            return True
        return False


def next_cycle(client: GoalsClient) -> Cycle:
    """Start an iteration, or join the running one, and wait for its end.

    Raises:
        ApiProblem: the agent is paused, or the key may not do this.
        KeyboardInterrupt: Ctrl-C; the iteration continues.
    """
    api = client.api
    with Spinner(None, ends_command=False) as waiting:
        trigger = {"async": True}
        triggered = waiting.insist(lambda: api.agent.post("/loop/trigger", Triggered, trigger))
        number = triggered.iteration
        while (result := waiting.insist(lambda: past_iteration(api, number))) is None:
            waiting.pause(lambda: _doing(api, number))
        decision = waiting.insist(lambda: client.decision(number))
        goal = waiting.insist(lambda: client.goal(decision.goal) if decision else None)
        return Cycle(result, decision, goal, waiting.insist(client.session))


def _doing(api: Api, iteration: int) -> str:
    status = api.agent.get("/loop/status", LoopStatus)
    where = f" on {status.worker}" if status.worker else ", waits for a worker"
    return f"iteration {iteration}: {status.phase}{where}"
