"""The observations of a cycle, and the orienters' assessments of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from boyd.models import (
    JsonObject,
    Observation,
    Situation,
    SituationAssessment,
    Triple,
    mean_confidence,
)
from boyd.plugin import Context, Graph, hook, observer, orienter
from boyd.text.tokenizer import keywords
from boyd_goals import memory
from boyd_goals.criteria import subject_of
from boyd_goals.goal_tools import GoalTools
from boyd_goals.goal_tree import active_goals, symbol
from boyd_goals.knowledge.association import activate, find_mentions
from boyd_goals.progress import clip
from boyd_goals.scoring import Outlook
from boyd_goals.state import Episode, Goal, Psyche

#: The sources of the observations.
GOALS, MEMORY, EPISODES = "goals", "working-memory", "episodes"
#: The orienters.
KNOWLEDGE, ACTIVATION, EPISODIC, PRESSURE = "knowledge", "activation", "episodic", "pressure"
#: Limits of the observations.
_MAX_GOALS, _MAX_SYMBOLS, _QUERIED, _RECALLED, _MAX_STARTS = 20, 30, 5, 3, 40
#: Limits of the assessments.
_MAX_FACTS, _SHOWN, _ACTIVATED = 60, 5, 5
#: Activation starts at the goal and the symbols nearest to its words.
_SEEDS = 6
_BRIEF_CHARS = 100
_IDLE = "no goal is active"


class Orientation(GoalTools):
    """The observers and orienters; without a goal to work on, orienters report to be idle."""

    @observer(name="active_goals")
    def observe_goals(self, ctx: Context) -> list[Observation]:
        """The active goals, most important first."""
        session = self.sessions(ctx).at_work()
        if session is None:
            return []
        goal = session.goals[session.at_work or ""]
        text = f"{subject_of(goal.description)} {subject_of(goal.criteria)}"
        goals: list[JsonValue] = [
            {"id": one.id, "description": one.description, "priority": one.priority}
            for one in active_goals(session)[:_MAX_GOALS]
        ]
        data: JsonObject = {"goals": goals, "atWork": goal.id, "cycle": session.cycle}
        data["symbols"] = [symbol(goal.id), *find_mentions(self.graph(ctx), text, _MAX_SYMBOLS)]
        return [Observation(source=GOALS, type="state", data=data)]

    @observer(name="working_memory")
    def observe_memory(self, ctx: Context) -> list[Observation]:
        """The pressure of working memory, and its newest entries."""
        session = self.sessions(ctx).at_work()
        if session is None:
            return []
        data: JsonObject = {
            "size": len(session.memory),
            "pressure": memory.pressure(session, self.config),
            "recent": [entry.id for entry in memory.newest(session)],
        }
        return [Observation(source=MEMORY, type="state", data=data)]

    @observer(name="recalled_episodes")
    def observe_episodes(self, ctx: Context) -> list[Observation]:
        """The episodes recalled for the goals."""
        session = self.sessions(ctx).at_work()
        if session is None:
            return []
        query = [symbol(goal.id) for goal in active_goals(session)[:_QUERIED]]
        query += keywords(session.goals[session.at_work or ""].description)
        recalled = memory.recall(session.episodes, query, _RECALLED)
        data: JsonObject = {"episodes": [episode.to_wire() for episode in recalled]}
        return [Observation(source=EPISODES, type="state", data=data)]

    @orienter(name=KNOWLEDGE)
    def orient_knowledge(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """The facts about the symbols that the goal and its episodes mention."""
        symbols = _start_symbols(observations)
        if not symbols:
            return self._assess(KNOWLEDGE, [_IDLE], {})
        facts = _facts_around(symbols, self.graph(ctx))
        findings = [f"{one.subject} {one.predicate} {one.object}" for one in facts[:_SHOWN]]
        return self._assess(KNOWLEDGE, findings, {"facts": [one.to_wire() for one in facts]})

    @orienter(name=ACTIVATION)
    def orient_activation(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """The symbols activated by those that the goal mentions."""
        seeds = _start_symbols(observations, with_episodes=False)[:_SEEDS]
        if not seeds:
            return self._assess(ACTIVATION, [_IDLE], {})
        graph = self.graph(ctx)
        symbols = [one.symbol for one in activate(graph, seeds, top_k=_ACTIVATED)]
        about = graph.out_many(symbols) if symbols else {}
        outgoing: JsonObject = {one: len(facts) for one, facts in about.items()}
        return self._assess(ACTIVATION, symbols, {"symbols": [*symbols], "outgoing": outgoing})

    @orienter(name=EPISODIC)
    def orient_episodes(self, observations: list[Observation]) -> SituationAssessment:
        """The recalled episodes."""
        data = _data_of(EPISODES, observations)
        if not data:
            return self._assess(EPISODIC, [_IDLE], {})
        episodes: Any = data["episodes"]
        findings = [clip(" ".join(str(one["summary"]).split()), _BRIEF_CHARS) for one in episodes]
        return self._assess(EPISODIC, findings, {"episodes": episodes})

    @orienter(name=PRESSURE)
    def orient_pressure(self, observations: list[Observation]) -> SituationAssessment:
        """The pressure of working memory."""
        data = _data_of(MEMORY, observations)
        if not data:
            return self._assess(PRESSURE, [_IDLE], {})
        pressure = data["pressure"]
        return self._assess(PRESSURE, [f"memory pressure {pressure:.2f}"], {"pressure": pressure})

    @hook()
    def on_orient(self, situation: Situation) -> dict[str, Any] | None:
        """Remove the assessments of our idle orienters."""
        everything = situation.assessments
        others = [one for one in everything if one.findings != [_IDLE]]
        if len(others) == len(everything):
            return None
        changes: dict[str, Any] = {"assessments": others}
        # Another plugin may have set the summary or the confidence itself.
        if situation.summary == _summary(everything):
            changes["summary"] = _summary(others) if others else Situation().summary
        if situation.confidence == mean_confidence(everything):
            changes["confidence"] = mean_confidence(others)
        return changes

    def is_oriented(self, situation: Situation) -> bool:
        """Tell whether one of our orienters had a goal to work on."""
        own = {f"{self.id}:{name}" for name in (ACTIVATION, KNOWLEDGE, EPISODIC, PRESSURE)}
        return any(one.source in own and one.findings != [_IDLE] for one in situation.assessments)

    def outlook(self, goal: Goal, situation: Situation, psyche: Psyche | None) -> Outlook:
        """Everything the choice of a tool for the goal depends on, from the assessments."""
        names = (ACTIVATION, KNOWLEDGE, EPISODIC, PRESSURE)
        found: Any = {name: situation.evidence(f"{self.id}:{name}") for name in names}
        episodes = found[EPISODIC].get("episodes", [])
        return Outlook(
            goal=goal,
            knowledge=[Triple.model_validate(one) for one in found[KNOWLEDGE].get("facts", [])],
            inferred=found[ACTIVATION].get("symbols", []),
            outgoing=found[ACTIVATION].get("outgoing", {}),
            episodes=[Episode.model_validate(one, strict=False) for one in episodes],
            pressure=found[PRESSURE].get("pressure", 0.0),
            psyche=psyche,
        )

    def _assess(self, name: str, findings: Sequence[str], data: JsonObject) -> SituationAssessment:
        texts = [one for one in findings if one] or ["nothing notable"]
        source = f"{self.id}:{name}"
        return SituationAssessment(source=source, findings=texts, confidence=1.0, data=data)


def _data_of(source: str, observations: Sequence[Observation]) -> JsonObject:
    """The data of our own observation of *source*; empty unless a goal is worked on."""
    found = (one.data for one in observations if (one.source, one.type) == (source, "state"))
    return next(found, {})


def _start_symbols(observations: Sequence[Observation], *, with_episodes: bool = True) -> list[str]:
    """The symbols that the goal mentions and, *with_episodes*, those of recalled episodes."""
    symbols: Any = _data_of(GOALS, observations).get("symbols", [])
    episodes: Any = _data_of(EPISODES, observations).get("episodes", [])
    if symbols and with_episodes:
        symbols = [*symbols, *(one for episode in episodes for one in episode["learnings"])]
    return list(dict.fromkeys(symbols))[:_MAX_STARTS]


def _facts_around(symbols: Sequence[str], graph: Graph) -> list[Triple]:
    outgoing, incoming = graph.out_many(symbols), graph.into_many(symbols)
    every = [fact for one in symbols for fact in (*outgoing[one], *incoming[one])]
    known = {one.place: one for one in every if not one.is_metadata}
    return list(known.values())[:_MAX_FACTS]


def _summary(assessments: Sequence[SituationAssessment]) -> str:
    return " | ".join("; ".join(one.findings) for one in assessments)
