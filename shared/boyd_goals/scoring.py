"""The choice of a tool: score the tools for a goal, decide on the best, and remember the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeAlias

from boyd.models import Catalog, Decision, JsonObject, Level, Triple
from boyd_goals import memory
from boyd_goals.goal_toolbox import GoalToolbox, digest
from boyd_goals.goal_tree import above, active_goals, symbol
from boyd_goals.knowledge.reasoning import show
from boyd_goals.knowledge.turtle import GOAL, RELATED_TO
from boyd_goals.progress import Need, ensure_plan
from boyd_goals.psyche import archetype_bonus
from boyd_goals.state import Config, Danger, Episode, Goal, GoalSession, Psyche, Score, ToolChoice
from boyd_goals.tool_profiles import (
    NOISE,
    PROFILES,
    UNRELATED,
    ToolProfile,
    encode,
    similarity,
    vector,
)

#: The penalty of a tool used one, two or three cycles of the goal ago.
RECENCY = (0.4, 0.2, 0.1)
NOVELTY = 0.15
EPISODIC = 0.2
PRESSURE = 0.2
#: Memory is nearly full above this pressure.
PRESSED = 0.7
#: Similarity up to this may be chance.
CHANCE = UNRELATED + 3 * NOISE

FALLBACK = "kg_query"
_FEW_FACTS = 3
_MAX_ALTERNATIVES = 8
_RISKS: dict[Danger, Level] = {"Safe": "low", "Cautious": "medium", "Danger": "high"}
#: The affinity above which a goal needs conclusions, and the tools that look outside the graph.
_REASONING = 0.55
_OUTSIDE = ("file_io", "http_fetch", "shell_exec")


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everything the choice of a tool depends on.

    Attributes:
        knowledge: relevant facts, most relevant first.
        inferred: symbols reached by activation, most active first.
        episodes: recalled ones, best first.
        pressure: share of working memory in use.
        psyche: None leaves the archetypes out.
        outgoing: number of facts about each inferred symbol.
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
        """The symbol of the goal."""
        return GOAL + self.goal.id

    @property
    def facts(self) -> list[Triple]:
        """The knowledge without facts about the agent and its goals."""
        return [
            triple
            for triple in self.knowledge
            if not triple.is_metadata and not triple.subject.startswith(GOAL)
        ]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool, its score, the reason in words, and its params as far as the outlook gives them."""

    tool: str
    score: Score
    reason: str
    params: JsonObject = field(default_factory=dict)

    @property
    def rationale(self) -> str:
        """The reason and the breakdown of the score."""
        return f"{self.reason} {self.score.breakdown}"


#: A base score, its reason, and the params that the outlook gives.
_Base: TypeAlias = tuple[float, str, JsonObject]


def rank(outlook: Outlook, tools: Iterable[ToolProfile]) -> list[Candidate]:
    """All candidates, best first; ties in the order of `PROFILES`, then by name.

    When nothing fits, the graph is queried about the goal.
    """
    order = {name: place for place, name in enumerate(PROFILES)}
    ordered = sorted(tools, key=lambda tool: (order.get(tool.name, len(order)), tool.name))
    candidates = [
        Candidate(tool.name, weigh(outlook, tool, base[0]), *base[1:])
        for tool in ordered
        if (base := _RULES.get(tool.name, _by_affinity)(outlook, tool))
    ]
    if not candidates:
        params = _query(outlook.symbol)
        return [Candidate(FALLBACK, Score(base=0.0), "no other tool is applicable", params)]
    return sorted(candidates, key=lambda candidate: -candidate.score.total)


def weigh(outlook: Outlook, tool: ToolProfile, base: float) -> Score:
    """The score of a tool with that base."""
    goal, last, archetype = outlook.goal, outlook.goal.recent[: -len(RECENCY) - 1 : -1], 0.0
    if outlook.psyche and tool.archetype:
        archetype = archetype_bonus(outlook.psyche.weights.get(tool.archetype, 0.5))
    return Score(
        base=base,
        recency=RECENCY[last.index(tool.name)] if tool.name in last else 0.0,
        novelty=0.0 if _was_used(goal, tool.name) else NOVELTY,
        episodic=EPISODIC if _is_mentioned(tool.name, outlook.episodes) else 0.0,
        pressure=PRESSURE if tool.consolidation and outlook.pressure > PRESSED else 0.0,
        archetype=archetype,
    )


def affinity(goal: Goal, tool: ToolProfile) -> float:
    """The similarity of the goal's description to the tool's purpose; 0.5 is unrelated."""
    return similarity(encode(goal.description), vector(tool.keywords))


def _was_used(goal: Goal, tool: str) -> bool:
    return goal.used.get(tool, 0) > 0 or tool in goal.recent


def _is_mentioned(tool: str, episodes: Collection[Episode]) -> bool:
    word = re.compile(rf"(?<![\w-]){re.escape(tool)}(?![\w-])", re.IGNORECASE)
    return any(tool in episode.tools or word.search(episode.summary) for episode in episodes)


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
        return 0.40, "the graph may hold more facts", params
    return 0.80, "no facts about the goal yet", params


def _kg_mutate(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    """Relate the goal to an activated symbol that no fact connects with it."""
    facts = (fact for fact in outlook.knowledge if not fact.is_metadata)
    ends = {end for fact in facts for end in (fact.subject, fact.object)} | {outlook.symbol}
    unconnected = next((symbol for symbol in outlook.inferred if symbol not in ends), None)
    if not outlook.facts or unconnected is None:
        return None
    params: JsonObject = {"subject": outlook.symbol, "predicate": RELATED_TO}
    params |= {"object": unconnected, "confidence": 0.7}
    return 0.70, f"{unconnected!r} can be connected to the goal", params


def _memory_recall(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not outlook.episodes:
        return None
    learnings = [symbol for episode in outlook.episodes for symbol in episode.learnings]
    params: JsonObject = {"query_symbols": [*learnings[:3]] or [outlook.symbol], "top_k": 3}
    return 0.55, "a similar goal was worked on before", params


def _reason(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not (facts := outlook.facts):
        return None
    # In turn: the same fact again would give the same conclusions.
    fact = facts[outlook.goal.used.get(tool.name, 0) % len(facts)]
    params: JsonObject = {"expression": show(("triple", *fact.place))}
    return 0.50, "the known facts can be reasoned about", params


def _similarity_search(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not outlook.inferred:
        return None
    params: JsonObject = {"symbol": outlook.inferred[0], "top_k": 5}
    return 0.55, "inferred symbols may have similar ones", params


def _infer_rules(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    if not outlook.facts:
        return None
    first = 0.0 if _was_used(outlook.goal, tool.name) else 0.1
    score = tool.multiplier * affinity(outlook.goal, tool) + first
    return min(max(score, 0.35), 0.75), "rules may follow from the known facts", {}


def _gap_analysis(outlook: Outlook, tool: ToolProfile) -> _Base:
    bonus = 0.1 if outlook.goal.used.get(FALLBACK, 0) >= 2 else 0.0
    score = tool.multiplier * affinity(outlook.goal, tool) + bonus
    params: JsonObject = {"goal": outlook.symbol, "max_gaps": 10}
    return min(max(score, 0.30), 0.75), "missing facts may be found", params


def _by_affinity(outlook: Outlook, tool: ToolProfile) -> _Base | None:
    near = affinity(outlook.goal, tool)
    if near <= tool.threshold or near <= CHANCE:
        return None
    return tool.multiplier * near, f"the goal matches the tool ({near:.3f})", {}


_RULES: dict[str, Callable[[Outlook, ToolProfile], _Base | None]] = {
    "kg_query": _kg_query,
    "kg_mutate": _kg_mutate,
    "memory_recall": _memory_recall,
    "reason": _reason,
    "similarity_search": _similarity_search,
    "infer_rules": _infer_rules,
    "gap_analysis": _gap_analysis,
}


# --- Deciding ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolOption:
    """A candidate with complete params."""

    candidate: Candidate
    params: JsonObject


def list_options(
    session: GoalSession, outlook: Outlook, toolbox: GoalToolbox, catalog: Catalog
) -> list[ToolOption]:
    """The tools that can be used for the goal, best first.

    A call that a person has refused or not answered yet is not an option. A call that was made
    twice in a row is the last one.
    """
    goal, actions = outlook.goal, {action.id for action in catalog.actions}
    unapproved, line = _calls_without_approval(session, goal), list(above(session, goal))
    calls = [
        (decision.tool, decision.params_digest)
        for decision in session.decisions
        if decision.goal == goal.id
    ]
    # A goal above that has asked a person has asked what this one would ask.
    has_asked = any(ancestor.question or ancestor.used.get("user_interact") for ancestor in line)
    first, last = list[ToolOption](), list[ToolOption]()
    for candidate in rank(outlook, toolbox.profiles.values()):
        params = toolbox.params_of(candidate.tool, goal, candidate.params)
        if params is None or toolbox.action_of(candidate.tool) not in actions:
            continue
        if candidate.tool == "user_interact" and has_asked:
            continue
        call = (candidate.tool, digest(params))
        if call not in unapproved:
            (last if calls[-2:] == [call, call] else first).append(ToolOption(candidate, params))
    return first + last


def decide(
    options: Collection[ToolOption], goal: Goal, toolbox: GoalToolbox, catalog: Catalog
) -> Decision:
    """The decision for the first option, with the next ones as alternatives."""
    risks = {action.id: action.risk for action in catalog.actions}
    best, *others = [_decision(option, goal, toolbox, risks) for option in options]
    return best.patched({"alternatives": others[:_MAX_ALTERNATIVES] or None})


def remember_choice(
    session: GoalSession,
    outlook: Outlook,
    option: ToolOption,
    profiles: Mapping[str, ToolProfile],
    now: datetime,
    config: Config,
) -> GoalSession:
    """Note the choice, once per cycle what was observed, inferred and decided, and make a plan."""
    goal, cycle, chosen = outlook.goal, session.cycle, option.candidate
    choice = ToolChoice(tool=chosen.tool, params_digest=digest(option.params), score=chosen.score)
    session = session.model_copy(update={"choice": choice})
    if any(entry.source_cycle == cycle and entry.kind == "Decision" for entry in session.memory):
        return session
    observed = (
        f"Cycle {cycle}: {len(active_goals(session))} active goals, "
        f"{len(session.memory)} WM entries, {len(outlook.episodes)} recalled episodes"
    )
    inferred = (
        f"Orient: {len(outlook.facts)} relevant triples, {len(outlook.inferred)} "
        f"inferences, {len(outlook.episodes)} episodes, pressure {outlook.pressure:.2f}"
    )
    decided = f'Decide: tool={chosen.tool}, goal="{goal.description}", reason={chosen.rationale}'
    own = [symbol(goal.id)]
    note = partial(memory.MemoryNote, source_cycle=cycle, now=now)
    notes = [note(content=observed, kind="Observation", relevance=0.6, symbols=own)]
    if outlook.facts or outlook.inferred:
        symbols = [*own, *outlook.inferred]
        notes.append(note(content=inferred, kind="Inference", relevance=0.5, symbols=symbols))
    decision = note(content=decided, kind="Decision", relevance=0.7, symbols=own, tool=chosen.tool)
    session = memory.consult(session, [entry.id for entry in memory.newest(session)])
    for entry in (*notes, decision):
        session = memory.push(session, entry, config)
    needs, external = _needs(goal, profiles)
    return ensure_plan(
        session, goal.id, needs, has_knowledge=bool(outlook.facts), external=external
    )


def _calls_without_approval(session: GoalSession, goal: Goal) -> set[tuple[str, str]]:
    """Calls that a person was asked to approve, for the goal or one above it, and has not."""
    line = {goal.id, *(ancestor.id for ancestor in above(session, goal))}
    return {
        (decision.tool, decision.params_digest)
        for decision in session.decisions
        if decision.goal in line and decision.progress in ("Pending", "Refused")
    }


def _decision(
    option: ToolOption, goal: Goal, toolbox: GoalToolbox, risks: Mapping[str, Level]
) -> Decision:
    candidate, action = option.candidate, toolbox.action_of(option.candidate.tool)
    danger = toolbox.danger_of(action, risks.get(action, "medium"), option.params)
    return Decision(
        action=action,
        params=option.params,
        rationale=f"{goal.description}: {candidate.rationale}",
        confidence=min(1.0, candidate.score.total),
        risk=_RISKS[danger],
    )


def _needs(goal: Goal, profiles: Mapping[str, ToolProfile]) -> tuple[list[Need], list[str]]:
    """The needs of a goal, and the tools outside the graph that serve it, nearest first."""
    near = {tool: affinity(goal, profiles[tool]) for tool in _OUTSIDE}
    external = [tool for tool in _OUTSIDE if near[tool] > profiles[tool].threshold]
    needs: list[Need] = ["knowledge"]
    if external:
        needs.append("external")
    if affinity(goal, profiles["infer_rules"]) > _REASONING:
        needs.append("reasoning")
    return needs, sorted(external, key=lambda tool: -near[tool])
