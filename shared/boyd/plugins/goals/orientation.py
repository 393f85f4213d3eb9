"""What is made of what was seen: facts, what comes to mind, memories, pressure (M12)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from boyd.models import (
    JsonObject,
    Observation,
    Situation,
    SituationAssessment,
    Triple,
    mean_confidence,
)
from boyd.plugin import Graph
from boyd.plugins.goals.cycle import EPISODES, MEMORY, seen_as, starts
from boyd.plugins.goals.knowledge.activation import activate
from boyd.plugins.goals.progress import clipped
from boyd.plugins.goals.scoring import Outlook
from boyd.plugins.goals.state import Episode, Goal, Psyche

#: The orienters.
KNOWLEDGE, ACTIVATION, EPISODIC, PRESSURE = "knowledge", "activation", "episodic", "pressure"
#: How much goes into an assessment.
_FACTS, _TOLD, _ACTIVATED = 60, 5, 5
#: Activation begins at the goal and at so few of the symbols nearest to its words.
_BEGUN = 6
#: The most characters of an episode among the findings, which leave out the scores of decisions.
_BRIEF = 100
_SCORES = re.compile(r"(?:(?<!\s)\s+)?\[score=[^\]]*\]?")
#: What orienters say when there is nothing to do: they have to say something (L19).
_IDLE = "no goal is worked on"


class Assessments:
    """The orienters of the bundle: what each says of what was seen."""

    def __init__(self, plugin_id: str) -> None:
        self._plugin_id = plugin_id

    def knowledge(self, seen: Sequence[Observation], graph: Graph) -> SituationAssessment:
        """The facts around what the goal speaks of, and around what was learned before."""
        symbols = starts(seen)
        if not symbols:
            return self._idle(KNOWLEDGE)
        facts = _facts_around(symbols, graph)
        told = [f"{one.subject} {one.predicate} {one.object}" for one in facts[:_TOLD]]
        return self._said(KNOWLEDGE, told, {"facts": [one.to_wire() for one in facts]})

    def activation(self, seen: Sequence[Observation], graph: Graph) -> SituationAssessment:
        """What comes to mind when the goal is thought of."""
        begun = starts(seen, with_learned=False)[:_BEGUN]
        if not begun:
            return self._idle(ACTIVATION)
        symbols = [one.symbol for one in activate(graph, begun, top_k=_ACTIVATED)]
        about = graph.out_many(symbols) if symbols else {}
        outgoing: JsonObject = {one: len(facts) for one, facts in about.items()}
        return self._said(ACTIVATION, symbols, {"symbols": [*symbols], "outgoing": outgoing})

    def episodic(self, seen: Sequence[Observation]) -> SituationAssessment:
        """What was remembered."""
        data = seen_as(EPISODES, seen)
        if not data:
            return self._idle(EPISODIC)
        episodes = data["episodes"]
        assert isinstance(episodes, list), "it is our own observation"
        told = [_brief(str(one["summary"])) for one in episodes if isinstance(one, dict)]
        return self._said(EPISODIC, told, {"episodes": episodes})

    def pressure(self, seen: Sequence[Observation]) -> SituationAssessment:
        """How full working memory is."""
        data = seen_as(MEMORY, seen)
        if not data:
            return self._idle(PRESSURE)
        pressure = data["pressure"]
        return self._said(PRESSURE, [f"memory pressure {pressure:.2f}"], {"pressure": pressure})

    def outlook(self, goal: Goal, situation: Situation, psyche: Psyche | None) -> Outlook:
        """What the choice of a tool for the goal depends on, read from what was said."""
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
        return self._said(name, [_IDLE], {})

    def _said(self, name: str, findings: Sequence[str], data: JsonObject) -> SituationAssessment:
        told = [one for one in findings if one] or ["nothing of note"]
        source = f"{self._plugin_id}:{name}"
        return SituationAssessment(source=source, findings=told, confidence=1.0, data=data)


def without_idle(situation: Situation) -> dict[str, Any] | None:
    """What a situation is without what our orienters say when there is nothing to do; None: it."""
    everything = situation.assessments
    others = [one for one in everything if one.findings != [_IDLE]]
    if len(others) == len(everything):
        return None
    changes: dict[str, Any] = {"assessments": others}
    # Another plugin may have said it in its own way before.
    if situation.summary == _summary(everything):
        changes["summary"] = _summary(others) if others else Situation().summary
    if situation.confidence == mean_confidence(everything):
        changes["confidence"] = mean_confidence(others)
    return changes


def _facts_around(symbols: Sequence[str], graph: Graph) -> list[Triple]:
    outgoing, incoming = graph.out_many(symbols), graph.into_many(symbols)
    every = [fact for one in symbols for fact in (*outgoing[one], *incoming[one])]
    known = {one.place: one for one in every if not one.is_metadata}
    return list(known.values())[:_FACTS]


def _brief(summary: str) -> str:
    """What an episode was, on part of a line; its data has the whole, and the scores."""
    return clipped(" ".join(_SCORES.sub("", summary).split()), _BRIEF)


def _summary(assessments: Sequence[SituationAssessment]) -> str:
    return " | ".join("; ".join(one.findings) for one in assessments)
