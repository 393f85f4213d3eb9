"""The goal tree of a session: create, suspend, complete, split, and settle the goals above."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

from boyd.errors import BoydError
from boyd.models import Triple
from boyd_goals.api_models import NewGoal
from boyd_goals.goal_conditions import check_condition, is_condition
from boyd_goals.judgement import is_met, judge_by_parts, result_of
from boyd_goals.progress import clip, condition_of, split_criteria, supersede
from boyd_goals.state import Config, Goal, GoalSession, GoalStatus

#: Limits of descriptions and criteria, of reasons, of results, and of labels in the graph.
DESCRIPTION_CHARS, REASON_CHARS, RESULT_CHARS, LABEL_CHARS = 900, 500, 2000, 1000
#: The fields of an unclaimed goal.
FREE: dict[str, Any] = {"owner": None, "leased_until": 0.0}
#: The priority lost by a goal that cannot be split, and from one sub-goal to the next.
PENALTY, STEP = 30, 5
_PREFIX = "goal:"


class GoalError(BoydError):
    """The operation is not possible for this goal."""


# --- Looking -------------------------------------------------------------------------------------


def symbol(goal_id: str) -> str:
    """The symbol of a goal in the graph."""
    return f"{_PREFIX}{goal_id}"


def goal_of(session: GoalSession, name: str) -> Goal | None:
    """The goal with the symbol *name*."""
    return session.goals.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def get_goal(session: GoalSession, goal_id: str) -> Goal:
    """The goal with that id, or a `GoalError`."""
    if goal_id not in session.goals:
        raise GoalError(f"no goal {goal_id!r}")
    return session.goals[goal_id]


def active_goals(session: GoalSession) -> list[Goal]:
    """The Active goals: those in focus first, then by priority, then by age."""
    return in_order(session, (goal for goal in session.goals.values() if goal.status == "Active"))


def in_order(session: GoalSession, goals: Iterable[Goal]) -> list[Goal]:
    """Goals sorted by focus, priority and age."""

    def rank(goal: Goal) -> tuple[bool, int, int]:
        in_focus = any(ancestor.id in session.focus for ancestor in (goal, *above(session, goal)))
        return (not in_focus, -goal.priority, goal.order)

    return sorted(goals, key=rank)


def is_open(goal: Goal) -> bool:
    """True if the goal is neither completed nor failed."""
    return goal.status in ("Active", "Suspended")


def is_stalled(goal: Goal) -> bool:
    """True if too many cycles in a row brought no progress."""
    return goal.idle_cycles >= goal.stall_threshold


def below(session: GoalSession, goal: Goal) -> Iterator[Goal]:
    """All goals split off from it, at any depth."""
    for child in _children(session, goal):
        yield child
        yield from below(session, child)


def above(session: GoalSession, goal: Goal) -> Iterator[Goal]:
    """The goals it was split off from, nearest first."""
    while parent := session.goals.get(goal.parent or ""):
        yield parent
        goal = parent


def metadata(goal: Goal) -> list[Triple]:
    """The facts about a goal that belong in the graph now."""
    pairs = [
        ("has_description", f"desc:{goal.description}"),
        ("has_status", f"status:{goal.status.lower()}"),
        ("has_priority", f"priority:{goal.priority}"),
        ("has_criteria", f"criteria:{goal.criteria}"),
        *(("parent_goal", symbol(parent)) for parent in [goal.parent] if parent),
        *(("child_goal", symbol(child)) for child in goal.children),
    ]
    own = partial(Triple, subject=symbol(goal.id), source="agent")
    return [own(predicate=f"agent:{name}", object=clip(text, LABEL_CHARS)) for name, text in pairs]


# --- Creating and changing -----------------------------------------------------------------------


def new_session(session_id: str, now: datetime) -> GoalSession:
    """An empty session."""
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
    """Create a goal; when the session is full, the oldest finished goals are dropped.

    Raises:
        GoalError: a value is not allowed, or `max_goals` goals are open.
    """
    mistake = mistake_in(description, criteria)
    if mistake:
        raise GoalError(f"criteria: {mistake}")
    threshold = config.stall_threshold if stall_threshold is None else stall_threshold
    if threshold < 1:
        raise GoalError(f"the stall threshold cannot be {threshold} cycles")
    values: dict[str, Any] = {
        "description": _check_text("description", description),
        "criteria": _check_text("criteria", (criteria or "").strip() or description),
        "priority": _check_priority(priority),
        "stall_threshold": threshold,
    }
    roomy = with_room(session, 1, config)
    if roomy is None:
        raise GoalError(f"the session holds {config.max_goals} goals, and none of them has ended")
    after, goals = _create_goals(roomy, [values], now)
    return after, goals[0]


def mistake_in(description: str, criteria: str | None) -> str | None:
    """The mistake in criteria that are a condition, if there is one."""
    text = (criteria or "").strip()
    is_own = text.casefold() != description.strip().casefold()
    return check_condition(text) if is_own and is_condition(text) else None


def _create_goals(
    session: GoalSession, many: Sequence[dict[str, Any]], now: datetime
) -> tuple[GoalSession, list[Goal]]:
    """Number and add goals with those fields."""
    goals = [
        Goal(id=_new_id(session, order), order=order, created_at=now, updated_at=now, **values)
        for order, values in enumerate(many, session.made + 1)
    ]
    changes = {"made": session.made + len(goals), "updated_at": now}
    return with_goals(session, goals).model_copy(update=changes), goals


def with_room(session: GoalSession, count: int, config: Config) -> GoalSession | None:
    """The session with room for *count* more goals, without its oldest finished goals if needed.

    None: too many goals are open.
    """
    over = len(session.goals) + count - config.max_goals
    if over <= 0:
        return session
    finished = [goal for goal in session.goals.values() if not is_open(goal)]
    finished.sort(key=lambda goal: goal.order)
    if len(finished) < over:
        return None
    dropped = {goal.id for goal in finished[:over]}
    goals = {}
    for id, goal in session.goals.items():
        if id not in dropped:
            children = [child for child in goal.children if child not in dropped]
            parent = None if goal.parent in dropped else goal.parent
            goals[id] = goal.model_copy(update={"children": children, "parent": parent})
    plans = {id: plan for id, plan in session.plans.items() if id not in dropped}
    return session.model_copy(update={"goals": goals, "plans": plans})


def with_goals(session: GoalSession, goals: Iterable[Goal]) -> GoalSession:
    """The session with those goals added or replaced."""
    return session.model_copy(
        update={"goals": {**session.goals, **{goal.id: goal for goal in goals}}}
    )


def update_goal(goal: Goal, now: datetime, **changes: Any) -> Goal:
    """The goal with changed fields; the values must fit."""
    return goal.model_copy(update={**changes, "updated_at": now})


def change_goal(session: GoalSession, goal: Goal, now: datetime, **changes: Any) -> GoalSession:
    """The session with that goal changed; the values must fit."""
    return with_goals(session, [update_goal(goal, now, **changes)])


def set_priority(session: GoalSession, goal_id: str, priority: int, now: datetime) -> GoalSession:
    """Change the priority of a goal.

    Raises:
        GoalError: the goal is unknown or has ended, or the priority is not from 0 to 255.
    """
    goal = get_goal(session, goal_id)
    if not is_open(goal):
        raise GoalError(f"goal {goal_id!r} has ended: {goal.status}")
    return change_goal(session, goal, now, priority=_check_priority(priority))


# --- Status --------------------------------------------------------------------------------------


def set_status(
    session: GoalSession,
    goal_id: str,
    status: GoalStatus,
    now: datetime,
    config: Config,
    *,
    reason: str | None = None,
    result: str | None = None,
) -> GoalSession:
    """Suspend, resume or end a goal; the same session if nothing changes.

    Suspending a goal suspends the active goals below it. Resuming a split goal resumes its open
    sub-goals, and it waits for them. Ending a goal fails the open goals below it, supersedes its
    plan, and settles the goal above it. *result* is the answer to a completed goal.

    Raises:
        GoalError: the goal is unknown or has ended, or it would fail without a *reason*.
    """
    goal = get_goal(session, goal_id)
    if goal.status == status:
        return session
    if not is_open(goal):
        raise GoalError(f"goal {goal_id!r} has ended: {goal.status}")
    if status == "Failed" and not reason:
        raise GoalError(f"goal {goal_id!r} cannot fail without a reason")
    if reason:
        reason = clip(reason, REASON_CHARS)
    if status == "Active":
        return _resume(session, goal, reason, now)
    if status == "Suspended":
        active = [
            descendant for descendant in below(session, goal) if descendant.status == "Active"
        ]
        changes = {"status": status, "reason": reason or None}
        session = with_goals(
            session, [update_goal(item, now, **changes) for item in (*active, goal)]
        )
    else:
        result = clip(result, RESULT_CHARS) if result else None
        session = _end(session, goal, now, status=status, reason=reason or None, result=result)
    return settle(session, goal, now, config)


def settle(session: GoalSession, child: Goal, now: datetime, config: Config) -> GoalSession:
    """Update the goal above *child*, which has ended or was suspended.

    It inherits the evidence of its sub-goals. If all of them have completed, it completes or
    becomes active. If one has failed and none is active, it becomes active. Otherwise it waits.
    When it becomes active, its count of cycles without progress starts again.
    """
    parent = session.goals.get(child.parent or "")
    if parent is None or not is_open(parent):
        return session
    children = _children(session, parent)
    judged = judge_by_parts(parent, children, now.date(), config)
    changes: dict[str, Any] = {"matched": judged.matched, "evidence": judged.evidence}
    if session.goals[child.id].status == "Completed":
        changes.update(last_progress_cycle=parent.cycles_worked, stalled=False)
    parent = update_goal(parent, now, **changes)
    session = with_goals(session, [parent])
    if all(part.status == "Completed" for part in children):
        reason = "all sub-goals are completed"
        if is_met(parent, parent.evidence):
            result = result_of(parent.evidence)
            return set_status(
                session, parent.id, "Completed", now, config, reason=reason, result=result
            )
        return _reactivate(session, parent, f"{reason}, but the criteria are not met", now)
    if any(part.status == "Failed" for part in children) and not _is_worked_on(session, parent):
        return _reactivate(session, parent, "a sub-goal has failed", now)
    return session


def _reactivate(session: GoalSession, goal: Goal, reason: str, now: datetime) -> GoalSession:
    if goal.status == "Active":
        return session
    worked = goal.cycles_worked
    return change_goal(
        session, goal, now, status="Active", reason=reason, last_progress_cycle=worked
    )


def _resume(session: GoalSession, goal: Goal, reason: str | None, now: datetime) -> GoalSession:
    waiting = [part for part in _children(session, goal) if is_open(part)]
    if not waiting:
        return change_goal(session, goal, now, status="Active", reason=reason or None)
    for child in waiting:
        if child.status == "Suspended" and not _is_worked_on(session, child):
            session = _resume(session, child, reason, now)
    return session


def _end(session: GoalSession, goal: Goal, now: datetime, **changes: Any) -> GoalSession:
    reason = f"its parent goal {goal.id!r} has ended: {changes['status']}"
    goals = [
        update_goal(item, now, status="Failed", reason=reason, **FREE)
        for item in below(session, goal)
        if is_open(item)
    ]
    goals.append(update_goal(goal, now, **changes, **FREE))
    reason = f"goal {goal.id!r} has ended: {changes['status']}"
    return _drop_plans(with_goals(session, goals), [item.id for item in goals], reason)


def _drop_plans(session: GoalSession, goal_ids: Collection[str], reason: str) -> GoalSession:
    """Supersede the plans of those goals."""
    plans = {
        id: supersede(plan, reason) if id in goal_ids else plan
        for id, plan in session.plans.items()
    }
    return session if plans == session.plans else session.model_copy(update={"plans": plans})


def _is_worked_on(session: GoalSession, goal: Goal) -> bool:
    return any(part.status == "Active" for part in below(session, goal))


def _children(session: GoalSession, goal: Goal) -> list[Goal]:
    return [session.goals[id] for id in goal.children]


def _new_id(session: GoalSession, order: int) -> str:
    # Sessions share graphs, so the number alone would not be unique there.
    seed = f"{session.id}\n{session.created_at.isoformat()}\n{order}"
    return f"{order}-{hashlib.sha256(seed.encode()).hexdigest()[:8]}"


def _check_text(field: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise GoalError(f"the {field} must not be empty")
    if len(text) > DESCRIPTION_CHARS:
        raise GoalError(f"the {field} may have at most {DESCRIPTION_CHARS} characters")
    return text


def _check_priority(priority: int) -> int:
    if not 0 <= priority <= 255:
        raise GoalError(f"priority {priority} is not between 0 and 255")
    return priority


# --- Goals of the agent file ---------------------------------------------------------------------


def standing_errors(goals: Sequence[NewGoal], config: Config) -> Iterator[str]:
    """The errors in standing goals: too many, or criteria that are no valid condition."""
    if len(goals) > config.max_goals:
        yield f"goals: there are {len(goals)}, and a session holds {config.max_goals} (max_goals)"
    now = datetime.now(UTC)
    for number, goal in enumerate(goals):
        try:
            add_goal(new_session("1", now), now=now, config=config, **dict(goal))
        except GoalError as error:
            yield f"goals.{number}: {error}"


def missing_goals(session: GoalSession, goals: Sequence[NewGoal]) -> list[NewGoal]:
    """The standing goals that a session was not given yet."""
    return [goal for goal in goals if _hash(goal) not in session.standing]


def add_standing(
    session: GoalSession, goals: Sequence[NewGoal], now: datetime, config: Config
) -> GoalSession:
    """Add the missing standing goals, as far as there is room for them."""
    for goal in missing_goals(session, goals):
        try:
            session, _ = add_goal(session, now=now, config=config, **dict(goal))
        except GoalError:
            break  # another cycle has room
        session = session.patched({"standing": [*session.standing, _hash(goal)]})
    return session


def _hash(goal: NewGoal) -> str:
    text = f"{goal.description}\n{goal.criteria or ''}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- Splitting stalled goals ---------------------------------------------------------------------


def decompose_stalled(session: GoalSession, now: datetime, config: Config) -> GoalSession:
    """Split all goals that have stalled."""
    for goal in active_goals(session):
        session = decompose(session, goal.id, now, config)
    return session


def decompose(session: GoalSession, goal_id: str, now: datetime, config: Config) -> GoalSession:
    """Split a stalled goal into sub-goals, which it waits for.

    A goal that cannot be split (no parts, split before, `max_depth` deep, or too many open goals)
    is flagged and loses priority. Nothing changes for a goal that is not Active, has not stalled,
    is flagged already, or waits for an approval, which is no lack of progress.
    """
    goal = session.goals.get(goal_id)
    if goal is None or goal.status != "Active" or goal.stalled:
        return session
    if not is_stalled(goal) or _waits_for_approval(session, goal):
        return session
    parts = parts_of(goal, config)
    roomy = with_room(session, len(parts), config) if parts else None
    if roomy is None:
        lower = max(0, goal.priority - PENALTY)
        return change_goal(session, goal, now, stalled=True, priority=lower)
    return _split(roomy, roomy.goals[goal_id], parts, now)


def give_up_stuck(session: GoalSession, now: datetime, config: Config) -> GoalSession:
    """Fail the flagged goals that have stalled once more, except those that wait for a person."""
    for goal in active_goals(session):
        idle = goal.idle_cycles
        waits = goal.question is not None or _waits_for_approval(session, goal)
        if goal.stalled and idle >= 2 * goal.stall_threshold and not waits:
            reason = f"no progress in {idle} cycles, and nothing to split"
            session = set_status(session, goal.id, "Failed", now, config, reason=reason)
    return session


def parts_of(goal: Goal, config: Config) -> list[str]:
    """At least two parts to split a goal into, or none; the last part holds any surplus."""
    if goal.children or goal.depth >= config.max_depth:
        return []
    for text in (goal.criteria, goal.description):
        if text == condition_of(goal):
            continue
        distinct: dict[str, str] = {}
        for part in split_criteria(text):
            distinct.setdefault(part.casefold(), part)
        if len(parts := list(distinct.values())) > 1:
            last = config.max_children - 1
            rest = [", ".join(parts[last:])] if parts[last:] else []
            return [*parts[:last], *rest]
    return []


def _waits_for_approval(session: GoalSession, goal: Goal) -> bool:
    return any(
        decision.goal == goal.id and decision.progress == "Pending"
        for decision in session.decisions
    )


def _split(session: GoalSession, goal: Goal, parts: list[str], now: datetime) -> GoalSession:
    same = {"stall_threshold": goal.stall_threshold, "parent": goal.id, "depth": goal.depth + 1}
    values = [
        {**same, "description": part, "criteria": part, "priority": max(0, goal.priority - lower)}
        for part, lower in zip(parts, count(0, STEP), strict=False)
    ]
    session, children = _create_goals(session, values, now)
    reason = f"split into {len(children)} sub-goals"
    ids = [child.id for child in children]
    parent = update_goal(goal, now, status="Suspended", reason=reason, children=ids, **FREE)
    return _drop_plans(with_goals(session, [parent]), [goal.id], reason)
