"""Which tool is worth most for a goal now, and why (M2, M3, M4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from boyd.models import JsonObject, Triple
from boyd.plugins.goals.knowledge.rewrite import show
from boyd.plugins.goals.knowledge.vocabulary import GOAL, RELATED_TO
from boyd.plugins.goals.state import Episode, Goal, Psyche
from boyd.plugins.goals.tool_profiles import (
    NOISE,
    PROFILES,
    UNRELATED,
    ToolProfile,
    encode,
    similarity,
    vector,
)

#: By how many of the goal's cycles ago a tool was used: one, two, three.
RECENCY = (0.4, 0.2, 0.1)
NOVELTY = 0.15
EPISODIC = 0.2
PRESSURE = 0.2
#: Memory is nearly full above this.
PRESSED = 0.7
LEANING = 0.15
#: The weights of archetypes stay within.
LIGHTEST, HEAVIEST = 0.1, 0.95
#: Nothing counts as similar that could be chance.
CHANCE = UNRELATED + 3 * NOISE

FALLBACK = "kg_query"
_FEW_FACTS = 3


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a choice of tool depends on.

    Attributes:
        goal: what is worked on.
        knowledge: relevant facts, the most relevant first; those about the agent do not count.
        inferred: symbols that activation has reached, the most active first.
        episodes: recalled ones, the best first.
        pressure: how full working memory is, 0 to 1.
        psyche: None leaves the archetypes out.
        outgoing: how many facts there are about an inferred symbol; 0 unless given.
    """

    goal: Goal
    knowledge: Sequence[Triple] = ()
    inferred: Sequence[str] = ()
    episodes: Sequence[Episode] = ()
    pressure: float = 0.0
    psyche: Psyche | None = None
    outgoing: Mapping[str, int] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        """The goal, in the graph."""
        return GOAL + self.goal.id

    @property
    def facts(self) -> list[Triple]:
        """The knowledge without what is about the agent: also what it has noted of its goals."""
        return [
            triple
            for triple in self.knowledge
            if not triple.is_metadata and not triple.subject.startswith(GOAL)
        ]


@dataclass(frozen=True, slots=True)
class Score:
    """What a tool is worth, term by term."""

    base: float
    recency: float = 0.0
    novelty: float = 0.0
    episodic: float = 0.0
    pressure: float = 0.0
    archetype: float = 0.0

    @property
    def total(self) -> float:
        """The sum, never below 0; to nine digits, so that equal scores are equal."""
        sum_of_terms = (
            self.base - self.recency + self.novelty + self.episodic + self.pressure + self.archetype
        )
        return max(0.0, round(sum_of_terms, 9))

    @property
    def breakdown(self) -> str:
        """The terms as text, exactly as M3 wants them."""
        leaning = round(self.archetype, 3) + 0.0
        return (
            f"[score={self.total:.2f}: base={self.base:.2f} recency=-{self.recency:.2f} "
            f"novelty=+{self.novelty:.2f} episodic=+{self.episodic:.2f} "
            f"pressure=+{self.pressure:.2f} archetype={leaning:+.3f}]"
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool that could be used now.

    Attributes:
        tool: its name.
        score: what it is worth.
        why: in words, what speaks for it.
        params: for the tool, as far as they follow from the outlook.
    """

    tool: str
    score: Score
    why: str
    params: JsonObject = field(default_factory=dict)

    @property
    def rationale(self) -> str:
        """The reason and the breakdown."""
        return f"{self.why} {self.score.breakdown}"


@dataclass(frozen=True, slots=True)
class _Base:
    score: float
    why: str
    params: JsonObject = field(default_factory=dict)


def rank(outlook: Outlook, tools: Iterable[ToolProfile]) -> list[Candidate]:
    """All tools that could be used, the best first; never empty.

    Of those with the same score the one comes first that stands first in `PROFILES`, then by name.
    When nothing fits, the graph is asked about the goal, whether that is among the tools or not.
    """
    known = sorted(tools, key=_place)
    found = [candidate for tool in known if (candidate := _candidate(outlook, tool))]
    if not found:
        return [Candidate(FALLBACK, Score(0.0), "nothing else fits", _query(outlook.symbol))]
    return sorted(found, key=lambda candidate: -candidate.score.total)


def weigh(outlook: Outlook, tool: ToolProfile, base: float) -> Score:
    """The score of a tool with that base: what speaks for it and against it now (M2)."""
    goal = outlook.goal
    return Score(
        base=base,
        recency=_recency(goal.recent, tool.name),
        novelty=0.0 if _was_used(goal, tool.name) else NOVELTY,
        episodic=EPISODIC if _is_mentioned(tool.name, outlook.episodes) else 0.0,
        pressure=PRESSURE if tool.consolidation and outlook.pressure > PRESSED else 0.0,
        archetype=_leaning(tool, outlook.psyche),
    )


def affinity(goal: Goal, tool: ToolProfile) -> float:
    """How near the goal's description is to what the tool is for; 0.5 is nothing in common."""
    return similarity(encode(goal.description), vector(tool.keywords))


def _place(tool: ToolProfile) -> tuple[int, str]:
    order = list(PROFILES)
    return (order.index(tool.name) if tool.name in PROFILES else len(order), tool.name)


def _candidate(outlook: Outlook, tool: ToolProfile) -> Candidate | None:
    rule = _RULES.get(tool.name, _by_affinity)
    base = rule(outlook, tool)
    if base is None:
        return None
    return Candidate(tool.name, weigh(outlook, tool, base.score), base.why, base.params)


def _recency(recent: Sequence[str], tool: str) -> float:
    last = list(reversed(recent[-len(RECENCY) :]))
    return RECENCY[last.index(tool)] if tool in last else 0.0


def _was_used(goal: Goal, tool: str) -> bool:
    return goal.used.get(tool, 0) > 0 or tool in goal.recent


def _is_mentioned(tool: str, episodes: Collection[Episode]) -> bool:
    word = re.compile(rf"(?<![\w-]){re.escape(tool)}(?![\w-])", re.IGNORECASE)
    return any(tool in episode.tools or word.search(episode.summary) for episode in episodes)


def _leaning(tool: ToolProfile, psyche: Psyche | None) -> float:
    if psyche is None or tool.archetype is None:
        return 0.0
    return leaning(psyche.weights.get(tool.archetype, 0.5))


def leaning(weight: float) -> float:
    """What an archetype of that weight adds to the score of a tool that it likes (M2)."""
    return (min(max(weight, LIGHTEST), HEAVIEST) - 0.5) * LEANING


def _query(symbol: str) -> JsonObject:
    return {"symbol": symbol, "direction": "both"}


def _kg_query(outlook: Outlook, tool: ToolProfile) -> _Base:
    barely_known = (
        symbol
        for symbol in outlook.inferred
        if symbol != outlook.symbol and outlook.outgoing.get(symbol, 0) < _FEW_FACTS
    )
    params = _query(next(barely_known, outlook.symbol))
    if outlook.facts:
        return _Base(0.40, "more may be known", params)
    return _Base(0.80, "nothing is known of the goal yet", params)


def _kg_mutate(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    """That something comes to mind with the goal is all that is known of the two."""
    facts = outlook.facts
    known = (fact for fact in outlook.knowledge if not fact.is_metadata)
    ends = {end for fact in known for end in (fact.subject, fact.object)} | {outlook.symbol}
    unconnected = next((symbol for symbol in outlook.inferred if symbol not in ends), None)
    if not facts or unconnected is None:
        return None
    params: JsonObject = {
        "subject": outlook.symbol,
        "predicate": RELATED_TO,
        "object": unconnected,
        "confidence": 0.7,
    }
    return _Base(0.70, f"{unconnected!r} can be connected with the goal", params)


def _memory_recall(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not outlook.episodes:
        return None
    learnings = [symbol for episode in outlook.episodes for symbol in episode.learnings]
    params: JsonObject = {"query_symbols": [*learnings[:3]] or [outlook.symbol], "top_k": 3}
    return _Base(0.55, "something like it was worked on before", params)


def _reason(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    facts = outlook.facts
    if not facts:
        return None
    # One after the other: the same fact again would lead to the same.
    fact = facts[outlook.goal.used.get(tool.name, 0) % len(facts)]
    params: JsonObject = {"expression": show(("triple", *fact.place))}
    return _Base(0.50, "what is known can be reasoned about", params)


def _similarity_search(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not outlook.inferred:
        return None
    params: JsonObject = {"symbol": outlook.inferred[0], "top_k": 5}
    return _Base(0.55, "what was inferred may have likes", params)


def _infer_rules(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not outlook.facts:
        return None
    first = 0.0 if _was_used(outlook.goal, tool.name) else 0.1
    score = tool.multiplier * affinity(outlook.goal, tool) + first
    return _Base(min(max(score, 0.35), 0.75), "rules may follow from what is known")


def _gap_analysis(outlook: Outlook, tool: ToolProfile) -> _Base:
    asked = 0.1 if outlook.goal.used.get(FALLBACK, 0) >= 2 else 0.0
    score = tool.multiplier * affinity(outlook.goal, tool) + asked
    params: JsonObject = {"goal": outlook.symbol, "max_gaps": 10}
    return _Base(min(max(score, 0.30), 0.75), "it may be seen what is missing", params)


def _by_affinity(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    near = affinity(outlook.goal, tool)
    if near <= tool.threshold or near <= CHANCE:
        return None
    return _Base(tool.multiplier * near, f"the goal sounds like it ({near:.3f})")


_RULES: dict[str, Callable[[Outlook, ToolProfile], _Base | None]] = {
    "kg_query": _kg_query,
    "kg_mutate": _kg_mutate,
    "memory_recall": _memory_recall,
    "reason": _reason,
    "similarity_search": _similarity_search,
    "infer_rules": _infer_rules,
    "gap_analysis": _gap_analysis,
}
