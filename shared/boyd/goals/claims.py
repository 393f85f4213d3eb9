"""Who works on which goal: a lease with a fence, so that no two do (M15)."""

from __future__ import annotations

from datetime import datetime

from boyd.goals.goal_book import FREE, active_goals, changed, with_goals
from boyd.goals.shapes import Config, Goal, Session


def claim(
    session: Session, owner: str, now: datetime, config: Config
) -> tuple[Session, Goal | None]:
    """Take the first Active goal that nobody works on, for `lease` seconds; None: there is none.

    An owner that has one already gets that again, under the same fence and for another lease: so a
    claim may be repeated, and repeating it keeps it. Anybody else gets a goal whose lease is over
    under a higher fence, and what comes under the lower one is refused.
    """
    active = active_goals(session)
    held = (goal for goal in active if goal.owner == owner and is_held(goal, now))
    goal = next(held, None)
    fence = goal.fence if goal else 0
    if goal is None:
        goal = next((one for one in active if not is_held(one, now)), None)
        if goal is None:
            return session, None
        fence = goal.fence + 1
    until = now.timestamp() + config.lease
    mine = changed(goal, now, owner=owner, leased_until=until, fence=fence)
    return with_goals(session, [mine]), mine


def release(session: Session, goal_id: str, fence: int, now: datetime) -> Session:
    """Give a goal back; the same session if it is another's meanwhile, or nobody's."""
    goal = session.goals.get(goal_id)
    if goal is None or goal.owner is None or goal.fence != fence:
        return session
    return with_goals(session, [changed(goal, now, **FREE)])


def is_held(goal: Goal, now: datetime) -> bool:
    """Whether somebody works on it now."""
    return goal.owner is not None and goal.leased_until > now.timestamp()
