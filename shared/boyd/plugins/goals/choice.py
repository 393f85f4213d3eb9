"""The choice of a cycle: the tool that is worth most, what else there was, and why (M2, M8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from boyd.models import Catalog, Decision, JsonObject, Level
from boyd.plugins.goals import memory
from boyd.plugins.goals.goal_tree import above, active_goals, symbol
from boyd.plugins.goals.plans import Need, ensure_plan
from boyd.plugins.goals.scoring import Candidate, Outlook, affinity, rank
from boyd.plugins.goals.state import Config, Danger, Goal, GoalSession
from boyd.plugins.goals.tool_profiles import ToolProfile
from boyd.plugins.goals.tools.params import digest
from boyd.plugins.goals.tools.registry import GoalToolbox

#: How many other decisions are told of.
_ALTERNATIVES = 8
_RISKS: dict[Danger, Level] = {"Safe": "low", "Cautious": "medium", "Danger": "high"}
#: What a goal must sound like to need conclusions, and the tools that look outside of the graph.
_REASONING = 0.55
_OUTSIDE = ("file_io", "http_fetch", "shell_exec")


@dataclass(frozen=True, slots=True)
class Option:
    """A tool that could be used now, and what it would be given."""

    candidate: Candidate
    params: JsonObject


def possible(
    session: GoalSession, outlook: Outlook, toolbox: GoalToolbox, catalog: Catalog
) -> list[Option]:
    """The tools that could be used for the goal, the best first.

    What a person was asked for is not asked for again, whether it still waits or was refused. What
    was done twice in a row, with the same params, is the last choice.
    """
    goal, actions = outlook.goal, {one.id for one in catalog.actions}
    asked, repeated = _asked(session, goal), _repeated(session, goal)
    found, last = list[Option](), list[Option]()
    for one in rank(outlook, toolbox.profiles.values()):
        params = toolbox.params_of(one.tool, goal, one.params)
        if params is None or toolbox.action_of(one.tool) not in actions:
            continue
        if one.tool == "user_interact" and _has_asked_above(session, goal):
            continue
        call = (one.tool, digest(params))
        if call not in asked:
            (last if call == repeated else found).append(Option(one, params))
    return found + last


def decision(
    options: Collection[Option], goal: Goal, toolbox: GoalToolbox, catalog: Catalog
) -> Decision:
    """The decision for the first of the options; the next ones are its alternatives."""
    risks = {one.id: one.risk for one in catalog.actions}
    best, *others = [_decision(one, goal, toolbox, risks) for one in options]
    return best.patched({"alternatives": others[:_ALTERNATIVES] or None})


def remembered(
    session: GoalSession,
    outlook: Outlook,
    option: Option,
    profiles: Mapping[str, ToolProfile],
    now: datetime,
    config: Config,
) -> GoalSession:
    """Note once what was seen, inferred and decided in this cycle, and have a plan (M6, M8)."""
    goal, cycle, chosen = outlook.goal, session.cycle, option.candidate
    session = session.patched({"proposed": f"{chosen.tool} {digest(option.params)}"})
    if any(one.source_cycle == cycle and one.kind == "Decision" for one in session.memory):
        return session
    seen = (
        f"Cycle {cycle}: {len(active_goals(session))} active goals, "
        f"{len(session.memory)} WM entries, {len(outlook.episodes)} recalled episodes"
    )
    inferred = (
        f"Orient: {len(outlook.facts)} relevant triples, {len(outlook.inferred)} "
        f"inferences, {len(outlook.episodes)} episodes, pressure {outlook.pressure:.2f}"
    )
    decided = f'Decide: tool={chosen.tool}, goal="{goal.description}", reason={chosen.rationale}'
    own = [symbol(goal.id)]
    push = partial(memory.push, source_cycle=cycle, now=now, config=config)
    session = memory.consult(session, [one.id for one in memory.newest(session)])
    session = push(session, content=seen, kind="Observation", relevance=0.6, symbols=own)
    if outlook.facts or outlook.inferred:
        minded = [*own, *outlook.inferred]
        session = push(session, content=inferred, kind="Inference", relevance=0.5, symbols=minded)
    session = push(
        session, content=decided, kind="Decision", relevance=0.7, symbols=own, tool=chosen.tool
    )
    needs, external = _needs(goal, profiles)
    return ensure_plan(
        session, goal.id, needs, has_knowledge=bool(outlook.facts), external=external
    )


def _asked(session: GoalSession, goal: Goal) -> set[tuple[str, str]]:
    """What a person was asked for and has not allowed: tools and params.

    For the goal, or for one above it: a part asks for nothing that was refused to the whole.
    """
    line = {goal.id, *(one.id for one in above(session, goal))}
    return {
        (one.tool, one.params_digest)
        for one in session.decisions
        if one.goal in line and one.progress in ("Pending", "Refused")
    }


def _repeated(session: GoalSession, goal: Goal) -> tuple[str, str] | None:
    """The tool and the params that the last two cycles of the goal had in common."""
    calls = [(one.tool, one.params_digest) for one in session.decisions if one.goal == goal.id]
    return calls[-1] if len(calls) > 1 and calls[-1] == calls[-2] else None


def _has_asked_above(session: GoalSession, goal: Goal) -> bool:
    """Whether a goal that it was split off has asked a person: the part would ask the same."""
    return any(
        one.question is not None or one.used.get("user_interact", 0) > 0
        for one in above(session, goal)
    )


def _decision(
    option: Option, goal: Goal, toolbox: GoalToolbox, risks: Mapping[str, Level]
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
    """What a goal asks for, by what it sounds like, and the tools outside of the graph for it."""
    near = {tool: affinity(goal, profiles[tool]) for tool in _OUTSIDE}
    external = [tool for tool in _OUTSIDE if near[tool] > profiles[tool].threshold]
    needs: list[Need] = ["knowledge"]
    if external:
        needs.append("external")
    if affinity(goal, profiles["infer_rules"]) > _REASONING:
        needs.append("reasoning")
    return needs, sorted(external, key=lambda tool: -near[tool])
