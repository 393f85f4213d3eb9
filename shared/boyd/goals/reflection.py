"""Now and then the agent looks at how it does, and changes what matters to it (M13)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Literal

from boyd.goals.goal_book import active_goals, changed, symbol, with_goals
from boyd.goals.memory import pressure, push
from boyd.goals.psyche import ToolInsight, evolve
from boyd.goals.shapes import Config, Decision, Goal, Session
from boyd.goals.text import clipped
from boyd.models import Model

_SUCCEEDED = ("Completed", "Advanced", "NoChange")
_USES = 2
_ABANDON = 2
_WORKED = 3
_DECREASE, _LOW = 30, 20
_INCREASE, _HIGH = 20, 230
_NEW_GOAL = 10
_MOST = 255
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


class Report(Model):
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


def reflect(session: Session, cycle: int, now: datetime, config: Config) -> Session:
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


def look_back(session: Session, cycle: int, config: Config) -> Report:
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
    return Report(
        cycle=cycle,
        tools=tools,
        goals=insights,
        adjustments=adjustments,
        pressure=full,
        summary=summary,
    )


def _advice(session: Session, report: Report) -> str:
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


def _tools(decisions: Iterable[Decision], config: Config) -> list[ToolInsight]:
    uses: dict[str, list[bool]] = {}
    for decision in decisions:
        if decision.progress in (*_SUCCEEDED, "Failed"):
            uses.setdefault(decision.tool, []).append(decision.progress in _SUCCEEDED)
    return [_tool(name, worked, config) for name, worked in sorted(uses.items())]


def _tool(name: str, worked: list[bool], config: Config) -> ToolInsight:
    count, successes = len(worked), sum(worked)
    ineffective = count >= _USES and successes / count < config.min_tool_success_rate
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
    session: Session, goal: Goal, insight: GoalInsight, config: Config
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
                priority=min(_MOST, goal.priority + _NEW_GOAL),
                description=f"Decompose: {goal.description}",
            )
        )
    return found


def _boost(session: Session, goal: Goal) -> list[Adjustment]:
    if goal.cycles_worked < _WORKED or goal.priority >= _HIGH or not _got_on(session, goal):
        return []
    higher = min(_MOST, goal.priority + _INCREASE)
    return [Adjustment(kind="IncreasePriority", goal=goal.id, priority=higher)]


def _got_on(session: Session, goal: Goal) -> bool:
    """Whether it has got on since the last reflection."""
    return any(
        decision.goal == goal.id
        and decision.cycle > session.reflected
        and decision.progress in ("Advanced", "Completed")
        for decision in session.decisions
    )


def _adjusted(session: Session, adjustments: Iterable[Adjustment], now: datetime) -> Session:
    goals = [
        changed(session.goals[one.goal], now, priority=one.priority)
        for one in adjustments
        if one.kind in ("DecreasePriority", "IncreasePriority")
    ]
    return with_goals(session, goals)
