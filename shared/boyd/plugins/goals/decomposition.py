"""A goal that has stalled is split into parts, once (M7)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from boyd.plugins.goals.goal_tree import (
    FREE,
    active_goals,
    changed,
    is_stalled,
    make_goals,
    set_status,
    with_goals,
    with_room,
    without_plans,
)
from boyd.plugins.goals.progress import split_criteria
from boyd.plugins.goals.state import Config, Goal, GoalSession

#: How much less important a goal becomes that cannot be split, and each part than the one before.
PENALTY = 30
STEP = 5


def decompose(session: GoalSession, goal_id: str, now: datetime, config: Config) -> GoalSession:
    """Split a goal that has stalled: it waits, and its parts are worked on.

    What cannot be split (there are no parts, it was split before, it is `max_depth` deep, or too
    many goals are open) is flagged and less important, and nothing is made up for it.

    The same session: the goal is not Active, has not stalled, is flagged already, or waits for an
    approval, which is no lack of progress (M6). So it is done once, whoever asks for it.
    """
    goal = session.goals.get(goal_id)
    if goal is None or goal.status != "Active" or goal.stalled or not is_stalled(goal):
        return session
    if _waits_for_approval(session, goal):
        return session
    parts = parts_of(goal, config)
    roomy = with_room(session, len(parts), config) if parts else None
    if roomy is None:
        lower = max(0, goal.priority - PENALTY)
        return with_goals(session, [changed(goal, now, stalled=True, priority=lower)])
    return _split(roomy, roomy.goals[goal_id], parts, now)


def decompose_stalled(session: GoalSession, now: datetime, config: Config) -> GoalSession:
    """Split all goals that have stalled."""
    for goal in active_goals(session):
        session = decompose(session, goal.id, now, config)
    return session


def give_up_stuck(session: GoalSession, now: datetime, config: Config) -> GoalSession:
    """Fail the goals that have stalled, cannot be split, and have stalled once more since.

    One that waits for a person is not given up: what they say may be what was missing.
    """
    for goal in active_goals(session):
        without = goal.cycles_worked - goal.last_progress_cycle
        is_stuck = goal.stalled and without >= 2 * goal.stall_threshold
        waits = goal.question is not None or _waits_for_approval(session, goal)
        if is_stuck and not waits:
            reason = f"no progress in {without} cycles, and nothing to split"
            session = set_status(session, goal.id, "Failed", now, config, reason=reason)
    return session


def parts_of(goal: Goal, config: Config) -> list[str]:
    """What a goal can be split into: two parts or more, or none.

    Of too many parts, the last one holds the rest.
    """
    if goal.children or goal.depth >= config.max_depth:
        return []
    for text in (goal.criteria, goal.description):
        parts = _distinct(split_criteria(text))
        if len(parts) > 1:
            return _at_most(config.max_children, parts)
    return []


def _waits_for_approval(session: GoalSession, goal: Goal) -> bool:
    asked = (one for one in session.decisions if one.goal == goal.id)
    return any(one.progress == "Pending" for one in asked)


def _distinct(parts: list[str]) -> list[str]:
    first: dict[str, str] = {}
    for part in parts:
        first.setdefault(part.casefold(), part)
    return list(first.values())


def _at_most(count: int, parts: list[str]) -> list[str]:
    if len(parts) <= count:
        return parts
    return [*parts[: count - 1], ", ".join(parts[count - 1 :])]


def _split(session: GoalSession, goal: Goal, parts: list[str], now: datetime) -> GoalSession:
    values = [_part(goal, number, part) for number, part in enumerate(parts)]
    session, children = make_goals(session, values, now)
    reason = f"split into {len(children)} sub-goals"
    ids = [child.id for child in children]
    parent = changed(goal, now, status="Suspended", reason=reason, children=ids, **FREE)
    return without_plans(with_goals(session, [parent]), [goal.id], reason)


def _part(goal: Goal, number: int, part: str) -> dict[str, Any]:
    return {
        "description": part,
        "criteria": part,
        "priority": max(0, goal.priority - STEP * number),
        "stall_threshold": goal.stall_threshold,
        "parent": goal.id,
        "depth": goal.depth + 1,
    }
