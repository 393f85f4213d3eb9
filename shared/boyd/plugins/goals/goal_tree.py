"""The goals of a session: made, put off, ended, and what that means above and below (M1, M7)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from boyd.errors import BoydError
from boyd.models import Triple
from boyd.plugins.goals.plans import supersede
from boyd.plugins.goals.progress import clipped, gathered, is_met
from boyd.plugins.goals.state import Config, Goal, GoalSession, GoalStatus
from boyd.tokenizer import keywords

#: The most characters a description and criteria may have, and a reason is cut at.
DESCRIPTION_CHARS = 900
REASON_CHARS = 500
#: The most characters a label in the graph may have.
LABEL_CHARS = 1000
#: The fields of a goal that nobody has claimed.
FREE: dict[str, Any] = {"owner": None, "leased_until": 0.0}
_PREFIX = "goal:"
_SOURCE = "agent"


class GoalError(BoydError):
    """That cannot be done with this goal."""


# --- Looking -------------------------------------------------------------------------------------


def symbol(goal_id: str) -> str:
    """What a goal is called in the graph."""
    return f"{_PREFIX}{goal_id}"


def goal_of(session: GoalSession, name: str) -> Goal | None:
    """The goal that is called *name* in the graph."""
    return session.goals.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def get_goal(session: GoalSession, goal_id: str) -> Goal:
    """The goal of that id.

    Raises:
        GoalError: there is none.
    """
    try:
        return session.goals[goal_id]
    except KeyError:
        raise GoalError(f"no goal {goal_id!r}") from None


def active_goals(session: GoalSession) -> list[Goal]:
    """The goals to be worked on: the highest priority first, of the same the oldest first (M1).

    Before them come those that the session has in focus.
    """
    active = [goal for goal in session.goals.values() if goal.status == "Active"]
    return in_order(session, active)


def in_order(session: GoalSession, goals: Iterable[Goal]) -> list[Goal]:
    """Goals as they come: those in focus, then by priority, then by age."""
    return sorted(
        goals, key=lambda goal: (not _is_in_focus(session, goal), -goal.priority, goal.order)
    )


def _is_in_focus(session: GoalSession, goal: Goal) -> bool:
    return any(one.id in session.focus for one in (goal, *above(session, goal)))


def focused(session: GoalSession, ids: Iterable[str]) -> GoalSession:
    """The session in which those goals come first, and no others."""
    return session.model_copy(update={"focus": list(dict.fromkeys(ids))})


def set_priority(session: GoalSession, goal_id: str, priority: int, now: datetime) -> GoalSession:
    """Change how important a goal is.

    Raises:
        GoalError: there is no such goal, it has ended, or the priority is none from 0 to 255.
    """
    goal = get_goal(session, goal_id)
    if not is_open(goal):
        raise GoalError(f"goal {goal_id!r} has ended: {goal.status}")
    return with_goals(session, [changed(goal, now, priority=_priority(priority))])


def is_open(goal: Goal) -> bool:
    """Whether it has neither been completed nor failed."""
    return goal.status in ("Active", "Suspended")


def is_stalled(goal: Goal) -> bool:
    """Whether too many of its own cycles have brought nothing (M7)."""
    return goal.cycles_worked - goal.last_progress_cycle >= goal.stall_threshold


def below(session: GoalSession, goal: Goal) -> Iterator[Goal]:
    """All goals that were split off it, at any depth."""
    for child in _children(session, goal):
        yield child
        yield from below(session, child)


def above(session: GoalSession, goal: Goal) -> Iterator[Goal]:
    """The goals that it was split off, the nearest first."""
    while parent := session.goals.get(goal.parent or ""):
        yield parent
        goal = parent


def wanted(session: GoalSession, goal: Goal) -> list[str]:
    """The words to look for in the graph when a cycle for *goal* has ended.

    They are the keywords of its criteria and of all goals above it, which may be evaluated then.
    """
    criteria = [goal.criteria, *(one.criteria for one in above(session, goal))]
    return list(dict.fromkeys(word for text in criteria for word in keywords(text)))


def metadata(goal: Goal) -> list[Triple]:
    """What the graph says of a goal now; what it said of it before is to be removed."""
    own = symbol(goal.id)
    said = [
        ("agent:has_description", f"desc:{goal.description}"),
        ("agent:has_status", f"status:{goal.status.lower()}"),
        ("agent:has_priority", f"priority:{goal.priority}"),
        ("agent:has_criteria", f"criteria:{goal.criteria}"),
    ]
    if goal.parent:
        said.append(("agent:parent_goal", symbol(goal.parent)))
    said += [("agent:child_goal", symbol(child)) for child in goal.children]
    return [
        Triple(subject=own, predicate=p, object=clipped(o, LABEL_CHARS), source=_SOURCE)
        for p, o in said
    ]


# --- Making and forgetting -----------------------------------------------------------------------


def new_session(session_id: str, now: datetime) -> GoalSession:
    """A session that remembers nothing yet."""
    return GoalSession(id=session_id, created_at=now, updated_at=now)


def add_goal(
    session: GoalSession,
    description: str,
    now: datetime,
    config: Config,
    *,
    criteria: str | None = None,
    priority: int = 128,
    stall_threshold: int | None = None,
) -> tuple[GoalSession, Goal]:
    """Make a goal to be worked on (M1); if there are too many, finished ones are forgotten.

    Raises:
        GoalError: it has no description or too long a one, the priority is none from 0 to 255, or
            there are `max_goals` that have not ended.
    """
    threshold = config.stall_threshold if stall_threshold is None else stall_threshold
    values: dict[str, Any] = {
        "description": _text("the description", description),
        "criteria": _text("the criteria", (criteria or "").strip() or description),
        "priority": _priority(priority),
        "stall_threshold": _threshold(threshold),
    }
    roomy = with_room(session, 1, config)
    if roomy is None:
        raise GoalError(f"there are {config.max_goals} goals, and none of them has ended")
    made, goals = make_goals(roomy, [values], now)
    return made, goals[0]


def make_goals(
    session: GoalSession, many: Sequence[dict[str, Any]], now: datetime
) -> tuple[GoalSession, list[Goal]]:
    """Number and add goals; each of *many* has the fields of one, but those of its identity."""
    goals = []
    for order, values in enumerate(many, session.made + 1):
        id = _new_id(session, order)
        goals.append(Goal(id=id, order=order, created_at=now, updated_at=now, **values))
    changes = {"made": session.made + len(goals), "updated_at": now}
    return with_goals(session, goals).model_copy(update=changes), goals


def with_room(session: GoalSession, count: int, config: Config) -> GoalSession | None:
    """The session with room for so many more goals, the oldest finished ones forgotten for them.

    None: too many goals have not ended. The same session: there is room already.
    """
    over = len(session.goals) + count - config.max_goals
    if over <= 0:
        return session
    finished = [goal for goal in session.goals.values() if not is_open(goal)]
    if len(finished) < over:
        return None
    finished.sort(key=lambda goal: goal.order)
    return _without(session, {goal.id for goal in finished[:over]})


def with_goals(session: GoalSession, goals: Iterable[Goal]) -> GoalSession:
    """The session with those goals in place of what it had of them."""
    return session.model_copy(
        update={"goals": {**session.goals, **{goal.id: goal for goal in goals}}}
    )


# --- Status --------------------------------------------------------------------------------------


def set_status(
    session: GoalSession,
    goal_id: str,
    status: GoalStatus,
    now: datetime,
    config: Config,
    *,
    reason: str | None = None,
    known: Collection[str] = (),
) -> GoalSession:
    """Put a goal off, go on with it, or end it; the same session if it is so already (M1, M7).

    Put off: those below it that are worked on are put off too. To go on with a goal that was split
    is to go on with its open sub-goals, and it waits for them. Ended: what is open below it fails,
    its plan is superseded, and the goal above it is settled.

    A goal does not fail without a *reason*. The words that the graph has *known* so far serve if
    the goal above is evaluated.

    Raises:
        GoalError: there is no such goal, it has ended, or it would fail for no reason.
    """
    goal = get_goal(session, goal_id)
    if goal.status == status:
        return session
    if not is_open(goal):
        raise GoalError(f"goal {goal_id!r} has ended: {goal.status}")
    if status == "Failed" and not reason:
        raise GoalError(f"goal {goal_id!r} cannot fail without a reason")
    if status == "Active":
        return _resumed(session, goal, reason, now)
    if status == "Suspended":
        return settle(_suspended(session, goal, reason, now), goal, now, config, known)
    return settle(_ended(session, goal, status, reason, now), goal, now, config, known)


def settle(
    session: GoalSession, child: Goal, now: datetime, config: Config, known: Collection[str] = ()
) -> GoalSession:
    """What it means for the goal above that *child* has ended or was put off (M7).

    All below have completed: it is evaluated again, with what they have found and with *known*, and
    completes or goes on. One has failed and nothing below is worked on: it goes on. Otherwise it
    waits. When it goes on, its count of cycles without progress begins anew.
    """
    parent = session.goals.get(child.parent or "")
    if parent is None or not is_open(parent):
        return session
    children = _children(session, parent)
    found = {word for one in children for word in one.matched} | set(known)
    changes: dict[str, Any] = {"matched": gathered(parent, found)}
    if session.goals[child.id].status == "Completed":
        changes.update(last_progress_cycle=parent.cycles_worked, stalled=False)
    parent = changed(parent, now, **changes)
    session = with_goals(session, [parent])
    if all(one.status == "Completed" for one in children):
        return _evaluated(session, parent, now, config, known)
    if any(one.status == "Failed" for one in children) and not _is_worked_on(session, parent):
        return _going_on(session, parent, "a sub-goal has failed", now)
    return session


def _evaluated(
    session: GoalSession, parent: Goal, now: datetime, config: Config, known: Collection[str]
) -> GoalSession:
    if is_met(parent, parent.matched, config):
        reason = "all sub-goals are completed"
        return set_status(session, parent.id, "Completed", now, config, reason=reason, known=known)
    return _going_on(session, parent, "all sub-goals are completed and the criteria not met", now)


def _going_on(session: GoalSession, goal: Goal, reason: str, now: datetime) -> GoalSession:
    if goal.status == "Active":
        return session
    changes = {"status": "Active", "reason": reason, "last_progress_cycle": goal.cycles_worked}
    return with_goals(session, [changed(goal, now, **changes)])


def _suspended(session: GoalSession, goal: Goal, reason: str | None, now: datetime) -> GoalSession:
    active = [one for one in below(session, goal) if one.status == "Active"]
    put_off = {"status": "Suspended", "reason": _cut(reason)}
    return with_goals(session, [changed(one, now, **put_off) for one in (*active, goal)])


def _resumed(session: GoalSession, goal: Goal, reason: str | None, now: datetime) -> GoalSession:
    waiting = [one for one in _children(session, goal) if is_open(one)]
    if not waiting:
        return with_goals(session, [changed(goal, now, status="Active", reason=_cut(reason))])
    for child in waiting:
        if child.status == "Suspended" and not _is_worked_on(session, child):
            session = _resumed(session, child, reason, now)
    return session


def _ended(
    session: GoalSession, goal: Goal, status: GoalStatus, reason: str | None, now: datetime
) -> GoalSession:
    above = f"goal {goal.id!r} above it has ended: {status}"
    ended = [
        changed(one, now, status="Failed", reason=above, **FREE)
        for one in below(session, goal)
        if is_open(one)
    ]
    ended.append(changed(goal, now, status=status, reason=_cut(reason), **FREE))
    why = f"goal {goal.id!r} has ended: {status}"
    return without_plans(with_goals(session, ended), [one.id for one in ended], why)


def without_plans(session: GoalSession, goal_ids: Collection[str], reason: str) -> GoalSession:
    """The session in which the plans of those goals do not go on."""
    plans = {
        id: supersede(plan, reason) if id in goal_ids else plan
        for id, plan in session.plans.items()
    }
    return session if plans == session.plans else session.model_copy(update={"plans": plans})


def _is_worked_on(session: GoalSession, goal: Goal) -> bool:
    return any(one.status == "Active" for one in below(session, goal))


def _children(session: GoalSession, goal: Goal) -> list[Goal]:
    return [session.goals[id] for id in goal.children]


def changed(goal: Goal, now: datetime, **changes: Any) -> Goal:
    """The goal with those fields, which must fit."""
    return goal.model_copy(update={**changes, "updated_at": now})


def _without(session: GoalSession, gone: Collection[str]) -> GoalSession:
    goals = {}
    for id, goal in session.goals.items():
        if id in gone:
            continue
        children = [child for child in goal.children if child not in gone]
        parent = None if goal.parent in gone else goal.parent
        goals[id] = goal.model_copy(update={"children": children, "parent": parent})
    plans = {id: plan for id, plan in session.plans.items() if id not in gone}
    return session.model_copy(update={"goals": goals, "plans": plans})


def _new_id(session: GoalSession, order: int) -> str:
    # Sessions share graphs: the number alone would name the goals of several.
    made = f"{session.id}\n{session.created_at.isoformat()}\n{order}"
    return f"{order}-{hashlib.sha256(made.encode()).hexdigest()[:8]}"


def _text(what: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise GoalError(f"{what} must say something")
    if len(text) > DESCRIPTION_CHARS:
        raise GoalError(f"{what} may have at most {DESCRIPTION_CHARS} characters")
    return text


def _priority(priority: int) -> int:
    if not 0 <= priority <= 255:
        raise GoalError(f"priority {priority} is not from 0 to 255")
    return priority


def _threshold(cycles: int) -> int:
    if cycles < 1:
        raise GoalError(f"a goal cannot stall after {cycles} cycles")
    return cycles


def _cut(reason: str | None) -> str | None:
    return clipped(reason, REASON_CHARS) if reason else None
