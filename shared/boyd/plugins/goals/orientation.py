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
from boyd.plugin import Graph
from boyd.plugins.goals import memory
from boyd.plugins.goals.goal_tree import active_goals, symbol
from boyd.plugins.goals.knowledge.association import activate, find_mentions
from boyd.plugins.goals.progress import clip
from boyd.plugins.goals.scoring import Outlook
from boyd.plugins.goals.state import Config, Episode, Goal, GoalSession, Psyche
from boyd.tokenizer import keywords

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


def observe_goals(session: GoalSession, graph: Graph) -> Observation:
    """The active goals, most important first, and the symbols the current goal mentions."""
    goal = _current_goal(session)
    goals: list[JsonValue] = [
        {"id": one.id, "description": one.description, "priority": one.priority}
        for one in active_goals(session)[:_MAX_GOALS]
    ]
    mentions = find_mentions(graph, f"{goal.description} {goal.criteria}", _MAX_SYMBOLS)
    data: JsonObject = {
        "goals": goals,
        "atWork": session.at_work,
        "cycle": session.cycle,
        "symbols": [symbol(goal.id), *mentions],
    }
    return Observation(source=GOALS, type="state", data=data)


def observe_memory(session: GoalSession, config: Config) -> Observation:
    """The size, pressure and newest entries of working memory."""
    data: JsonObject = {
        "size": len(session.memory),
        "pressure": memory.pressure(session, config),
        "recent": [entry.id for entry in memory.newest(session)],
    }
    return Observation(source=MEMORY, type="state", data=data)


def observe_episodes(session: GoalSession) -> Observation:
    """The episodes recalled for the goals."""
    query = [symbol(goal.id) for goal in active_goals(session)[:_QUERIED]]
    query += keywords(_current_goal(session).description)
    recalled = memory.recall(session.episodes, query, _RECALLED)
    data: JsonObject = {"episodes": [episode.to_wire() for episode in recalled]}
    return Observation(source=EPISODES, type="state", data=data)


def _current_goal(session: GoalSession) -> Goal:
    return session.goals[session.at_work or ""]


class Assessments:
    """The orienters of the plugin; without a goal to work on, they report that they are idle."""

    def __init__(self, plugin_id: str) -> None:
        self._plugin_id = plugin_id

    def knowledge(self, seen: Sequence[Observation], graph: Graph) -> SituationAssessment:
        """The facts about the symbols that the goal and its episodes mention."""
        symbols = _start_symbols(seen)
        if not symbols:
            return self._idle(KNOWLEDGE)
        facts = _facts_around(symbols, graph)
        findings = [f"{one.subject} {one.predicate} {one.object}" for one in facts[:_SHOWN]]
        return self._assess(KNOWLEDGE, findings, {"facts": [one.to_wire() for one in facts]})

    def activation(self, seen: Sequence[Observation], graph: Graph) -> SituationAssessment:
        """The symbols activated by the symbols that the goal mentions."""
        seeds = _start_symbols(seen, with_episodes=False)[:_SEEDS]
        if not seeds:
            return self._idle(ACTIVATION)
        symbols = [one.symbol for one in activate(graph, seeds, top_k=_ACTIVATED)]
        about = graph.out_many(symbols) if symbols else {}
        outgoing: JsonObject = {one: len(facts) for one, facts in about.items()}
        return self._assess(ACTIVATION, symbols, {"symbols": [*symbols], "outgoing": outgoing})

    def episodic(self, seen: Sequence[Observation]) -> SituationAssessment:
        """The recalled episodes."""
        data = _data_of(EPISODES, seen)
        if not data:
            return self._idle(EPISODIC)
        episodes: Any = data["episodes"]
        findings = [clip(" ".join(str(one["summary"]).split()), _BRIEF_CHARS) for one in episodes]
        return self._assess(EPISODIC, findings, {"episodes": episodes})

    def pressure(self, seen: Sequence[Observation]) -> SituationAssessment:
        """The pressure of working memory."""
        data = _data_of(MEMORY, seen)
        if not data:
            return self._idle(PRESSURE)
        pressure = data["pressure"]
        return self._assess(PRESSURE, [f"memory pressure {pressure:.2f}"], {"pressure": pressure})

    def outlook(self, goal: Goal, situation: Situation, psyche: Psyche | None) -> Outlook:
        """Everything the choice of a tool for the goal depends on, from the assessments."""
        activation: Any = self._evidence(situation, ACTIVATION)
        facts: Any = self._evidence(situation, KNOWLEDGE).get("facts", [])
        episodes: Any = self._evidence(situation, EPISODIC).get("episodes", [])
        pressure: Any = self._evidence(situation, PRESSURE).get("pressure", 0.0)
        return Outlook(
            goal=goal,
            knowledge=[Triple.model_validate(one) for one in facts],
            inferred=activation.get("symbols", []),
            outgoing=activation.get("outgoing", {}),
            episodes=[Episode.model_validate(one, strict=False) for one in episodes],
            pressure=pressure,
            psyche=psyche,
        )

    def _evidence(self, situation: Situation, name: str) -> JsonObject:
        return situation.evidence(f"{self._plugin_id}:{name}")

    def _idle(self, name: str) -> SituationAssessment:
        # An orienter must report something.
        return self._assess(name, [_IDLE], {})

    def _assess(self, name: str, findings: Sequence[str], data: JsonObject) -> SituationAssessment:
        texts = [one for one in findings if one] or ["nothing notable"]
        source = f"{self._plugin_id}:{name}"
        return SituationAssessment(source=source, findings=texts, confidence=1.0, data=data)


def without_idle(situation: Situation) -> dict[str, Any] | None:
    """Changes that remove idle assessments from a situation; None: there are none."""
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
