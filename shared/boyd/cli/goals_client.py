"""The mind of an agent with goals, over the API: the endpoints of the plugin `goals`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TypeVar
from urllib.parse import quote

import click

from boyd.cli.api_access import Api
from boyd.cli.output import command_name
from boyd.errors import ApiProblem
from boyd.models import LoopStatus, Model, Triple
from boyd.plugins.goals.api_models import (
    Consolidated,
    DecisionList,
    EpisodeList,
    Exported,
    GoalList,
    Imported,
    MemoryList,
    NewSession,
    PsycheState,
    QuestionList,
    SessionList,
    SessionState,
    Surroundings,
    SymbolList,
    Why,
)
from boyd.plugins.goals.state import (
    Episode,
    Goal,
    GoalStatus,
    MemoryEntry,
    Question,
    SessionSummary,
    ToolDecision,
)

#: The plugin's name, as in `use = "goals"`.
PLUGIN = "goals"
#: Seconds to wait for many facts to be read or written.
_LONG = 300.0

_M = TypeVar("_M", bound=Model)


class GoalsClient:
    """What an agent with goals works on and remembers.

    Every method raises `ApiProblem` when it is refused, and `ApiUnavailable` when nobody answers.
    """

    def __init__(self, api: Api) -> None:
        self.api = api

    def session(self) -> SessionState:
        """The session that is worked on."""
        return self._get("/session", SessionState)

    def begin(self) -> str:
        """Begin a new session, and keep the old one; its id."""
        return self._post("/session", NewSession, {"fresh": True}).id

    def reopen(self, id: str) -> str:
        """Go on with an older session; its id."""
        return self._post("/session", NewSession, {"id": id}).id

    def sessions(self) -> list[SessionSummary]:
        """The sessions that are kept, the one that is worked on first."""
        return self._get("/sessions", SessionList).sessions

    def psyche(self) -> PsycheState:
        """What the agent leans to, and what its shadow forbids."""
        return self._get("/psyche", PsycheState)

    def focus(self, ids: Sequence[str]) -> None:
        """Let those goals come first; none: all go by their priority."""
        self._post("/focus", GoalList, {"goals": [*ids]})

    def goals(self, status: GoalStatus | None = None) -> list[Goal]:
        """The goals of the session, the one that comes first at the top."""
        return self._get("/goals", GoalList, status=status).goals

    def add(
        self,
        description: str,
        priority: int | None = None,
        criteria: str | None = None,
        stall_threshold: int | None = None,
    ) -> Goal:
        """Give the agent another goal."""
        body = {
            "description": description,
            "priority": priority,
            "criteria": criteria,
            "stallThreshold": stall_threshold,
        }
        return self._post("/goals", Goal, body)

    def wanted(self, description: str, priority: int | None = None) -> Goal:
        """The active goal of that description; it is added when there is none."""
        for goal in self.goals("Active"):
            if goal.description == description:
                return goal
        return self.add(description, priority)

    def goal(self, id: str) -> Goal:
        """The goal whose id is that, or begins so."""
        return self._get(f"/goals/{_part('goal', id)}", Goal)

    def suspend(self, id: str, reason: str | None = None) -> Goal:
        """Let a goal rest."""
        return self._post(f"/goals/{_part('goal', id)}/suspend", Goal, {"reason": reason})

    def resume(self, id: str, reason: str | None = None) -> Goal:
        """Take a goal up again."""
        return self._post(f"/goals/{_part('goal', id)}/resume", Goal, {"reason": reason})

    def fail(self, id: str, reason: str | None = None) -> Goal:
        """Give a goal up."""
        return self._post(f"/goals/{_part('goal', id)}/fail", Goal, {"reason": reason})

    def prioritize(self, id: str, priority: int) -> Goal:
        """Change how important a goal is."""
        return self._post(f"/goals/{_part('goal', id)}/priority", Goal, {"priority": priority})

    def why(self, id: str) -> Why:
        """What was decided for a goal."""
        return self._get(f"/goals/{_part('goal', id)}/why", Why)

    def decision(self, iteration: int) -> ToolDecision | None:
        """What was decided in the cycle of that iteration; None when it was none."""
        found = self._get("/cycles", DecisionList, iteration=iteration).cycles
        return found[0] if found else None

    def memory(self, limit: int) -> list[MemoryEntry]:
        """What is on the agent's mind, the newest first."""
        return self._get("/memory", MemoryList, limit=limit).entries

    def episodes(self, limit: int) -> list[Episode]:
        """What the agent remembers, the newest first."""
        return self._get("/episodes", EpisodeList, limit=limit).episodes

    def recall(self, query: str, top_k: int) -> list[Episode]:
        """What the agent remembers about that, the best first."""
        return self._get("/recall", EpisodeList, query=query, topK=top_k).episodes

    def consolidate(self) -> Consolidated:
        """Let the agent make memories of what is on its mind."""
        return self._post("/consolidate", Consolidated)

    def questions(self, *, answered: bool = False) -> list[Question]:
        """What the agent wants to know; with *answered* also what it has been told."""
        found = self._get("/questions", QuestionList).questions
        return [one for one in found if answered or one.answer is None]

    def answer(self, id: str, text: str) -> Question:
        """Answer a question."""
        return self._post(f"/questions/{_part('question', id)}/answer", Question, {"text": text})

    def about(self, symbol: str, limit: int | None = None) -> Surroundings:
        """What is known about a symbol."""
        return self._get("/graph", Surroundings, symbol=symbol, limit=limit)

    def search(self, query: str, limit: int | None = None) -> list[str]:
        """The symbols that a text speaks of, the nearest first."""
        return self._get("/graph/search", SymbolList, query=query, limit=limit).symbols

    def learn(self, facts: Sequence[Triple]) -> int:
        """Take in facts; how many of them are new."""
        body = {"facts": [fact.to_wire() for fact in facts]}
        return self._post("/graph/facts", Imported, body, _LONG).added

    def knowledge(self) -> Iterator[Exported]:
        """All that is known, as Turtle, part by part."""
        part = self._ask("GET", "/graph/export", Exported, timeout=_LONG)
        yield part
        while part.next is not None:
            query = {"after": part.next}
            part = self._ask("GET", "/graph/export", Exported, query=query, timeout=_LONG)
            yield part

    def may_act(self) -> bool:
        """Whether the agent is neither paused nor frozen."""
        status = self.api.agent.get("/loop/status", LoopStatus)
        return status.paused is None and status.frozen is None

    def _get(self, path: str, kind: type[_M], **query: object) -> _M:
        return self._ask("GET", path, kind, query=query)

    def _post(
        self,
        path: str,
        kind: type[_M],
        body: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> _M:
        return self._ask("POST", path, kind, body, timeout=timeout)

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[_M],
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> _M:
        client = self.api.agent
        if timeout is not None:
            client = copy(client)
            client.timeout = timeout
        try:
            return client.plugin(method, PLUGIN, path, kind, body, **(query or {}))
        except ApiProblem as problem:
            if problem.name != "not-found":
                raise
            raise ApiProblem("not-found", problem.status, _without_goals(self.api)) from None


def _without_goals(api: Api) -> str:
    whose = f"agent {api.agent.agent!r}" if api.agent.agent else "this agent"
    return (
        f'{whose} has no goals: give it the plugin, with `use = "{PLUGIN}"` below `[[plugins]]` in'
        " its agent file"
    )


def _part(noun: str, id: str) -> str:
    """An id as part of a path.

    Raises:
        ApiProblem: nothing can have such an id.
    """
    if not id.strip(".") or "/" in id:
        raise ApiProblem("no-such-id", 404, f"no {noun} {id!r}")
    return quote(id, safe="")


def to_type(command: str) -> str:
    """`boyd` and *command* for the same agent, as it has to be typed here."""
    context = click.get_current_context(silent=True)
    agent = context.params.get("agent") if context is not None else None
    whose = f" --agent {shlex.quote(agent)}" if agent else ""
    return f"`{command_name()} {command}{whose}`"
