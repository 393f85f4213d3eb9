"""The psyche: its shadow vetoes actions, and reflection adjusts preferences and priorities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from boyd.models import Model
from boyd_goals.goal_tree import active_goals, change_goal, symbol
from boyd_goals.memory import MemoryNote, pressure, push
from boyd_goals.progress import clip
from boyd_goals.state import (
    Archetype,
    Config,
    Danger,
    Goal,
    GoalSession,
    Psyche,
    ShadowPattern,
    ToolDecision,
)
from boyd_goals.tool_profiles import PROFILES

#: The archetype that a tool's success strengthens.
ARCHETYPES: dict[str, Archetype] = {
    name: profile.archetype for name, profile in PROFILES.items() if profile.archetype
}
DANGERS: tuple[Danger, ...] = ("Safe", "Cautious", "Danger")
#: The shadow of every psyche.
SHADOW = (
    ShadowPattern(
        name="destructive_action",
        triggers=["delete all", "drop table", "rm -rf"],
        explanation="it destroys data irreversibly",
    ),
    ShadowPattern(
        name="filesystem_write",
        danger="Danger",
        severity=0.3,
        explanation="it changes the host",
        veto=False,
    ),
)
#: The range of an archetype's weight, and the share of its distance from 0.5 added to a score.
LIGHTEST, HEAVIEST = 0.1, 0.95
ARCHETYPE_FACTOR = 0.15
_MIDDLE, _SHIFT = 0.5, 0.02
_EFFECTIVE_RATE, _MIN_USES = 0.7, 2
_GROWTH, _MAX_COUNTED = 0.01, 5
_SUCCEEDED = ("Completed", "Advanced", "NoChange")
_ABANDON_AFTER, _WORKED_ENOUGH = 2, 3
_DECREASE, _LOW = 30, 20
_INCREASE, _HIGH, _MAX_PRIORITY = 20, 230, 255
_NEW_GOAL_BONUS = 10
_RELEVANCE = 0.8
_NAME_CHARS = 60


class ToolInsight(Model):
    """The success of a tool."""

    tool: str
    uses: int
    successes: int
    ineffective: bool = False

    @property
    def rate(self) -> float:
        """The share of uses that succeeded."""
        return self.successes / self.uses if self.uses else 0.0


class PsycheVerdict(NamedTuple):
    """The first pattern that vetoes an action, and all patterns that advise against it."""

    veto: ShadowPattern | None
    against: list[ShadowPattern]

    @property
    def bias(self) -> float:
        """The sum of the severities of the patterns that advise against the action."""
        return sum(pattern.severity for pattern in self.against)


def new_psyche(
    weights: Mapping[Archetype, float] | None = None, shadow: Iterable[ShadowPattern] = ()
) -> Psyche:
    """A psyche with the default weights and shadow, overridden and extended by the given ones."""
    return Psyche(weights={**Psyche().weights, **(weights or {})}, shadow=[*SHADOW, *shadow])


def action_text(tool: str, params: Mapping[str, Any]) -> str:
    """The text of an action that triggers are searched in."""
    return f"tool={tool} input={_flatten(params)}"


def check_shadow(psyche: Psyche | None, tool: str, danger: Danger, text: str) -> PsycheVerdict:
    """Match the shadow against the use of *tool* with that danger and `action_text`."""
    searched = _normalize(f"{tool} {text}")
    patterns = psyche.shadow if psyche else []
    matching = [pattern for pattern in patterns if _matches(pattern, danger, searched)]
    veto = next((pattern for pattern in matching if pattern.veto), None)
    return PsycheVerdict(veto, [pattern for pattern in matching if not pattern.veto])


def count_encounter(psyche: Psyche) -> Psyche:
    """The psyche after a veto by its shadow."""
    return psyche.model_copy(update={"shadow_encounters": psyche.shadow_encounters + 1})


def archetype_bonus(weight: float) -> float:
    """The amount an archetype of that weight adds to the score of its tools."""
    return (min(max(weight, LIGHTEST), HEAVIEST) - _MIDDLE) * ARCHETYPE_FACTOR


def evolve(psyche: Psyche, tools: Iterable[ToolInsight], abandoned: int, cycle: int) -> Psyche:
    """The psyche after the reflection at *cycle*, once per cycle.

    *abandoned* is the number of goals that the reflection suggests to abandon.
    """
    if psyche.last_evolution_cycle >= cycle:
        return psyche
    steps: Counter[Archetype] = Counter()
    for insight in tools:
        is_effective = insight.uses >= _MIN_USES and insight.rate > _EFFECTIVE_RATE
        if archetype := ARCHETYPES.get(insight.tool):
            steps[archetype] += -1 if insight.ineffective else int(is_effective)
    weights = dict(psyche.weights)
    for name, count in steps.items():
        if count:
            # Rounded, so that a step up and a step down cancel out.
            moved = round(weights.get(name, _MIDDLE) + count * _SHIFT, 6)
            weights[name] = min(HEAVIEST, max(LIGHTEST, moved))
    encounters = psyche.shadow_encounters + abandoned
    grown = psyche.individuation + _GROWTH * min(encounters, _MAX_COUNTED)
    changes = {
        "weights": weights,
        "rebalance_count": psyche.rebalance_count + (weights != psyche.weights),
        "shadow_encounters": encounters,
        "individuation": min(1.0, round(grown, 6)),
        "last_evolution_cycle": cycle,
    }
    return psyche.model_copy(update=changes)


def _matches(pattern: ShadowPattern, danger: Danger, searched: str) -> bool:
    if pattern.danger and DANGERS.index(danger) >= DANGERS.index(pattern.danger):
        return True
    triggers = (_normalize(trigger) for trigger in pattern.triggers)
    return any(trigger in searched for trigger in triggers if trigger)


def _normalize(text: str) -> str:
    # Extra spaces must not hide a trigger.
    return " ".join(text.lower().split())


def _flatten(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_flatten(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_flatten, value))
    return str(value)


# --- Reflection ----------------------------------------------------------------------------------


class GoalInsight(Model):
    """The progress of an Active goal."""

    goal: str
    cycles_worked: int
    without_progress: int
    stagnant: bool


class Adjustment(Model):
    """A change of priority, which is applied, or a suggestion to a person.

    `priority` and `description` are those of the goal, or of the new goal that is suggested.
    """

    kind: Literal["SuggestAbandon", "DecreasePriority", "SuggestNewGoal", "IncreasePriority"]
    goal: str
    priority: int | None = None
    description: str | None = None


class ReflectionReport(Model):
    """The findings of a reflection."""

    cycle: int
    tools: list[ToolInsight]
    goals: list[GoalInsight]
    adjustments: list[Adjustment]
    pressure: float
    summary: str


def is_due(cycle: int, config: Config) -> bool:
    """True if *cycle* ends with a reflection; `reflect_every` 0 turns them off."""
    return config.reflect_every > 0 and cycle > 0 and cycle % config.reflect_every == 0


def reflect(session: GoalSession, cycle: int, now: datetime, config: Config) -> GoalSession:
    """Adjust priorities, evolve the psyche and remember the summary, once per cycle."""
    if session.reflected >= cycle:
        return session
    report = look_back(session, cycle, config)
    changes: dict[str, object] = {"reflected": cycle, "updated_at": now}
    if session.psyche:
        abandoned = sum(adjustment.kind == "SuggestAbandon" for adjustment in report.adjustments)
        changes["psyche"] = evolve(session.psyche, report.tools, abandoned, cycle)
    for adjustment in report.adjustments:
        if adjustment.kind in ("DecreasePriority", "IncreasePriority"):
            session = change_goal(
                session, session.goals[adjustment.goal], now, priority=adjustment.priority
            )
    session = session.model_copy(update=changes)
    note = partial(MemoryNote, kind="Reflection", relevance=_RELEVANCE, source_cycle=cycle, now=now)
    if report.adjustments:
        about = [symbol(adjustment.goal) for adjustment in report.adjustments]
        session = push(session, note(content=_advice(session, report), symbols=about), config)
    return push(session, note(content=report.summary), config)


def look_back(session: GoalSession, cycle: int, config: Config) -> ReflectionReport:
    """The report of a reflection at the end of *cycle*; changes nothing."""
    tools = _tool_insights(session.decisions, config)
    goals = active_goals(session)
    insights = [
        GoalInsight(
            goal=goal.id,
            cycles_worked=goal.cycles_worked,
            without_progress=goal.idle_cycles,
            stagnant=goal.idle_cycles >= config.stagnation_threshold,
        )
        for goal in goals
    ]
    adjustments = [
        adjustment for goal in goals for adjustment in _adjustments(session, goal, config)
    ]
    full = pressure(session, config)
    summary = (
        f"Reflection at cycle {cycle}: {len(tools)} tools used"
        f" ({sum(tool.ineffective for tool in tools)} ineffective), {len(goals)} goals"
        f" ({sum(insight.stagnant for insight in insights)} stagnant), memory pressure"
        f" {full * 100:.0f}%, {len(adjustments)} adjustments recommended."
    )
    return ReflectionReport(
        cycle=cycle,
        tools=tools,
        goals=insights,
        adjustments=adjustments,
        pressure=full,
        summary=summary,
    )


def _advice(session: GoalSession, report: ReflectionReport) -> str:
    """The changes and suggestions as text."""
    lines = (
        _advice_for(adjustment, session.goals[adjustment.goal]) for adjustment in report.adjustments
    )
    return f"Advice after cycle {report.cycle}: {'; '.join(lines)}"


def _advice_for(adjustment: Adjustment, goal: Goal) -> str:
    name = f'"{clip(goal.description, _NAME_CHARS)}" ({goal.id})'
    stuck = f"no progress in {goal.idle_cycles} cycles"
    return {
        "SuggestAbandon": f"give up {name}: {stuck}",
        "SuggestNewGoal": f"split {name} by hand into separate goals",
        "DecreasePriority": f"{name} now has priority {adjustment.priority}: {stuck}",
        "IncreasePriority": f"{name} now has priority {adjustment.priority}: it makes progress",
    }[adjustment.kind]


def _tool_insights(decisions: Iterable[ToolDecision], config: Config) -> list[ToolInsight]:
    uses: dict[str, list[bool]] = {}
    for decision in decisions:
        if decision.progress in (*_SUCCEEDED, "Failed"):
            uses.setdefault(decision.tool, []).append(decision.progress in _SUCCEEDED)
    return [
        ToolInsight(
            tool=name,
            uses=len(worked),
            successes=sum(worked),
            ineffective=len(worked) >= _MIN_USES
            and sum(worked) / len(worked) < config.min_tool_success_rate,
        )
        for name, worked in sorted(uses.items())
    ]


def _adjustments(session: GoalSession, goal: Goal, config: Config) -> list[Adjustment]:
    if goal.idle_cycles < config.stagnation_threshold:
        return _boost(session, goal)
    adjustments = []
    if goal.cycles_worked >= _ABANDON_AFTER * config.stagnation_threshold:
        adjustments.append(Adjustment(kind="SuggestAbandon", goal=goal.id))
    elif goal.priority > _LOW:
        lower = max(0, goal.priority - _DECREASE)
        adjustments.append(Adjustment(kind="DecreasePriority", goal=goal.id, priority=lower))
    if not goal.children:
        adjustments.append(
            Adjustment(
                kind="SuggestNewGoal",
                goal=goal.id,
                priority=min(_MAX_PRIORITY, goal.priority + _NEW_GOAL_BONUS),
                description=f"Decompose: {goal.description}",
            )
        )
    return adjustments


def _boost(session: GoalSession, goal: Goal) -> list[Adjustment]:
    """Raise the priority of a goal that has progressed since the last reflection."""
    progressed = any(
        decision.goal == goal.id
        and decision.cycle > session.reflected
        and decision.progress in ("Advanced", "Completed")
        for decision in session.decisions
    )
    if goal.cycles_worked < _WORKED_ENOUGH or goal.priority >= _HIGH or not progressed:
        return []
    higher = min(_MAX_PRIORITY, goal.priority + _INCREASE)
    return [Adjustment(kind="IncreasePriority", goal=goal.id, priority=higher)]
