"""Now and then the agent looks at how it does, and changes what matters to it (M13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from boyd.models import Model
from boyd.plugins.goals.goal_tree import active_goals, changed, symbol, with_goals
from boyd.plugins.goals.memory import pressure, push
from boyd.plugins.goals.progress import clipped
from boyd.plugins.goals.state import (
    Archetype,
    Config,
    Danger,
    Goal,
    GoalSession,
    Psyche,
    ShadowPattern,
    ToolDecision,
)
from boyd.plugins.goals.tool_profiles import PROFILES

#: Which side of the psyche a tool's success strengthens.
ARCHETYPES: dict[str, Archetype] = {
    name: profile.archetype for name, profile in PROFILES.items() if profile.archetype
}
DANGERS: tuple[Danger, ...] = ("Safe", "Cautious", "Danger")
#: What every agent with a psyche begins with.
SHADOW = (
    ShadowPattern(
        name="destructive_action",
        triggers=["delete all", "drop table", "rm -rf"],
        explanation="it destroys what cannot be brought back",
    ),
    ShadowPattern(
        name="filesystem_write",
        danger="Danger",
        severity=0.3,
        explanation="it changes the host",
        veto=False,
    ),
)
_MIDDLE = 0.5
_STEP = 0.02
_LEAST, _MOST = 0.1, 0.95
_EFFECTIVE, _USES = 0.7, 2
_GROWTH, _COUNTED = 0.01, 5


class ToolInsight(Model):
    """How well a tool has worked."""

    tool: str
    uses: int
    successes: int
    ineffective: bool = False

    @property
    def rate(self) -> float:
        """The share of uses that succeeded."""
        return self.successes / self.uses if self.uses else 0.0


class PsycheVerdict(NamedTuple):
    """What the shadow says of an action.

    Attributes:
        veto: the first pattern that forbids it.
        bias: the severities of all patterns that would rather not, summed.
        against: those patterns.
    """

    veto: ShadowPattern | None
    bias: float
    against: list[ShadowPattern]


def new_psyche(
    weights: Mapping[Archetype, float] | None = None, shadow: Iterable[ShadowPattern] = ()
) -> Psyche:
    """How an agent begins: the default shadow and that *shadow*, the *weights* or the default."""
    known = Psyche()
    return known.patched(
        {"weights": {**known.weights, **(weights or {})}, "shadow": [*SHADOW, *shadow]}
    )


def action_text(tool: str, params: Mapping[str, Any]) -> str:
    """What triggers are looked for in: the tool and all that it is given."""
    given = " ".join(f"{name}={_flat(value)}" for name, value in params.items())
    return f"tool={tool} input={given}"


def shadow(psyche: Psyche | None, tool: str, danger: Danger, text: str) -> PsycheVerdict:
    """What the shadow says of using *tool*, which is that dangerous, for *text* (`action_text`)."""
    patterns = psyche.shadow if psyche else []
    searched = _even(f"{tool} {text}")
    matching = [one for one in patterns if _matches(one, danger, searched)]
    against = [one for one in matching if not one.veto]
    veto = next((one for one in matching if one.veto), None)
    return PsycheVerdict(veto, sum(one.severity for one in against), against)


def encountered(psyche: Psyche, times: int = 1) -> Psyche:
    """The psyche after its shadow has stopped it so often."""
    return psyche.model_copy(update={"shadow_encounters": psyche.shadow_encounters + times})


def evolve(psyche: Psyche, tools: Iterable[ToolInsight], abandoned: int, cycle: int) -> Psyche:
    """The psyche after the reflection at *cycle*; the same, if it has evolved then already.

    It is told how well each of the *tools* has worked, and for how many goals it was suggested that
    they be *abandoned*.
    """
    if psyche.last_evolution_cycle >= cycle:
        return psyche
    weights = _shifted(psyche.weights, tools)
    encounters = psyche.shadow_encounters + abandoned
    grown = psyche.individuation + _GROWTH * min(encounters, _COUNTED)
    changes = {
        "weights": weights,
        "rebalance_count": psyche.rebalance_count + (weights != psyche.weights),
        "shadow_encounters": encounters,
        "individuation": min(1.0, round(grown, 6)),
        "last_evolution_cycle": cycle,
    }
    return psyche.model_copy(update=changes)


def _shifted(
    weights: Mapping[Archetype, float], tools: Iterable[ToolInsight]
) -> dict[Archetype, float]:
    shifts: dict[Archetype, float] = {}
    for insight in tools:
        archetype = ARCHETYPES.get(insight.tool)
        if archetype:
            shifts[archetype] = shifts.get(archetype, 0.0) + _shift(insight)
    moved = {name: _bounded(weights.get(name, _MIDDLE) + by) for name, by in shifts.items() if by}
    return {**weights, **moved}


def _shift(insight: ToolInsight) -> float:
    if insight.ineffective:
        return -_STEP
    return _STEP if insight.uses >= _USES and insight.rate > _EFFECTIVE else 0.0


def _bounded(weight: float) -> float:
    # Rounded, so that a step up and a step down are nothing.
    return min(_MOST, max(_LEAST, round(weight, 6)))


def _matches(pattern: ShadowPattern, danger: Danger, searched: str) -> bool:
    if pattern.danger and DANGERS.index(danger) >= DANGERS.index(pattern.danger):
        return True
    triggers = (_even(trigger) for trigger in pattern.triggers)
    return any(trigger in searched for trigger in triggers if trigger)


def _even(text: str) -> str:
    # More spaces between two words must not hide them.
    return " ".join(text.lower().split())


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_flat(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_flat, value))
    return str(value)


_SUCCEEDED = ("Completed", "Advanced", "NoChange")
_REFLECTION_USES = 2
_ABANDON = 2
_WORKED = 3
_DECREASE, _LOW = 30, 20
_INCREASE, _HIGH = 20, 230
_NEW_GOAL = 10
_REFLECTION_MOST = 255
_RELEVANCE = 0.8
#: The most characters of a goal's description in an advice.
_NAME_CHARS = 60


class GoalInsight(Model):
    """How an Active goal gets on; it is stagnant if too many of its cycles brought nothing."""

    goal: str
    cycles_worked: int
    without_progress: int
    stagnant: bool


class Adjustment(Model):
    """What follows: a priority that is changed, or a suggestion to a person.

    Attributes:
        kind: the two of priority are applied; that a goal be abandoned or another one be made is
            only suggested.
        goal: the id of the goal it is about.
        priority: the goal's new one, or that of the goal to be made.
        description: of the goal to be made.
    """

    kind: Literal["SuggestAbandon", "DecreasePriority", "SuggestNewGoal", "IncreasePriority"]
    goal: str
    priority: int | None = None
    description: str | None = None


class ReflectionReport(Model):
    """What a reflection has found."""

    cycle: int
    tools: list[ToolInsight]
    goals: list[GoalInsight]
    adjustments: list[Adjustment]
    pressure: float
    summary: str


def is_due(cycle: int, config: Config) -> bool:
    """Whether there is a reflection at the end of *cycle*: every `reflect_every`, 0 is never."""
    return config.reflect_every > 0 and cycle > 0 and cycle % config.reflect_every == 0


def reflect(session: GoalSession, cycle: int, now: datetime, config: Config) -> GoalSession:
    """Look back at the end of *cycle*: change priorities, evolve the psyche, remember the summary.

    Once for a cycle: later the session is the same.
    """
    if session.reflected >= cycle:
        return session
    report = look_back(session, cycle, config)
    changes: dict[str, object] = {"reflected": cycle, "updated_at": now}
    if session.psyche:
        abandoned = sum(one.kind == "SuggestAbandon" for one in report.adjustments)
        changes["psyche"] = evolve(session.psyche, report.tools, abandoned, cycle)
    session = _adjusted(session, report.adjustments, now).model_copy(update=changes)
    note = partial(
        push, kind="Reflection", relevance=_RELEVANCE, source_cycle=cycle, now=now, config=config
    )
    if report.adjustments:
        about = [symbol(one.goal) for one in report.adjustments]
        session = note(session, content=_advice(session, report), symbols=about)
    return note(session, content=report.summary)


def look_back(session: GoalSession, cycle: int, config: Config) -> ReflectionReport:
    """What a reflection at the end of *cycle* would find; nothing is changed."""
    tools = _tools(session.decisions, config)
    goals = active_goals(session)
    insights = [_insight(goal, config) for goal in goals]
    adjustments = [
        adjustment
        for goal, insight in zip(goals, insights, strict=True)
        for adjustment in _adjustments(session, goal, insight, config)
    ]
    full = pressure(session, config)
    summary = (
        f"Reflection at cycle {cycle}: {len(tools)} tools used"
        f" ({sum(tool.ineffective for tool in tools)} ineffective), {len(goals)} goals"
        f" ({sum(one.stagnant for one in insights)} stagnant), memory pressure"
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
    """What was changed for which goal, and what is suggested to a person."""
    without = {one.goal: one.without_progress for one in report.goals}
    lines = (
        _advised(one, session.goals[one.goal], without[one.goal]) for one in report.adjustments
    )
    return f"Advice after cycle {report.cycle}: {'; '.join(lines)}"


def _advised(adjustment: Adjustment, goal: Goal, without: int) -> str:
    name = f'"{clipped(goal.description, _NAME_CHARS)}" ({goal.id})'
    stuck = f"no progress in {without} cycles"
    return {
        "SuggestAbandon": f"give up {name}: {stuck}",
        "SuggestNewGoal": f"split {name} by hand, into goals of their own",
        "DecreasePriority": f"{name} has priority {adjustment.priority} now: {stuck}",
        "IncreasePriority": f"{name} has priority {adjustment.priority} now: it gets on",
    }[adjustment.kind]


def _tools(decisions: Iterable[ToolDecision], config: Config) -> list[ToolInsight]:
    uses: dict[str, list[bool]] = {}
    for decision in decisions:
        if decision.progress in (*_SUCCEEDED, "Failed"):
            uses.setdefault(decision.tool, []).append(decision.progress in _SUCCEEDED)
    return [_tool(name, worked, config) for name, worked in sorted(uses.items())]


def _tool(name: str, worked: list[bool], config: Config) -> ToolInsight:
    count, successes = len(worked), sum(worked)
    ineffective = count >= _REFLECTION_USES and successes / count < config.min_tool_success_rate
    return ToolInsight(tool=name, uses=count, successes=successes, ineffective=ineffective)


def _insight(goal: Goal, config: Config) -> GoalInsight:
    without = goal.cycles_worked - goal.last_progress_cycle
    return GoalInsight(
        goal=goal.id,
        cycles_worked=goal.cycles_worked,
        without_progress=without,
        stagnant=without >= config.stagnation_threshold,
    )


def _adjustments(
    session: GoalSession, goal: Goal, insight: GoalInsight, config: Config
) -> list[Adjustment]:
    if not insight.stagnant:
        return _boost(session, goal)
    found = []
    if goal.cycles_worked >= _ABANDON * config.stagnation_threshold:
        found.append(Adjustment(kind="SuggestAbandon", goal=goal.id))
    elif goal.priority > _LOW:
        lower = max(0, goal.priority - _DECREASE)
        found.append(Adjustment(kind="DecreasePriority", goal=goal.id, priority=lower))
    if not goal.children:
        found.append(
            Adjustment(
                kind="SuggestNewGoal",
                goal=goal.id,
                priority=min(_REFLECTION_MOST, goal.priority + _NEW_GOAL),
                description=f"Decompose: {goal.description}",
            )
        )
    return found


def _boost(session: GoalSession, goal: Goal) -> list[Adjustment]:
    if goal.cycles_worked < _WORKED or goal.priority >= _HIGH or not _got_on(session, goal):
        return []
    higher = min(_REFLECTION_MOST, goal.priority + _INCREASE)
    return [Adjustment(kind="IncreasePriority", goal=goal.id, priority=higher)]


def _got_on(session: GoalSession, goal: Goal) -> bool:
    """Whether it has got on since the last reflection."""
    return any(
        decision.goal == goal.id
        and decision.cycle > session.reflected
        and decision.progress in ("Advanced", "Completed")
        for decision in session.decisions
    )


def _adjusted(
    session: GoalSession, adjustments: Iterable[Adjustment], now: datetime
) -> GoalSession:
    goals = [
        changed(session.goals[one.goal], now, priority=one.priority)
        for one in adjustments
        if one.kind in ("DecreasePriority", "IncreasePriority")
    ]
    return with_goals(session, goals)
