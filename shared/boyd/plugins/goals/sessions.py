"""The session that is worked in: read from a plugin's state, and changed in one step (M14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from boyd.errors import BoydError, PayloadTooLarge
from boyd.models import Triple
from boyd.plugin import Context, Graph
from boyd.plugins.goals.goal_tree import (
    FREE,
    active_goals,
    changed,
    metadata,
    new_session,
    symbol,
    with_goals,
)
from boyd.plugins.goals.memory import inheriting
from boyd.plugins.goals.state import Config, Goal, GoalSession, Roll, SessionSummary

#: Seconds that a session is kept after its last change.
KEEP = 365 * 86400.0
#: Seconds that it is known which session is worked in: that is written once, and read ever after.
KEEP_CURRENT = 100 * KEEP
#: How often a session that is too large for one value is made smaller before it is given up.
_SMALLER = 4
_CURRENT = "current"
_FIRST = "1"
_ROLL = "sessions"
#: How many sessions are listed, the last ones that were left.
_LISTED = 200


class SessionError(BoydError):
    """There is no such session."""


@dataclass
class Memo:
    """What a worker remembers of what it has read, to read it less often.

    Attributes:
        current: the session that was worked in when it last looked.
        seen: an iteration and the session read in it; phases of it need not read it again.
    """

    current: str = _FIRST
    seen: tuple[int, GoalSession] | None = None


class Sessions:
    """The sessions of one agent; one of them is worked in."""

    def __init__(self, ctx: Context, graph: Graph, memo: Memo) -> None:
        """In the state of *ctx*; what goals are about is noted in *graph*."""
        self._ctx = ctx
        self._state = ctx.state
        self._graph = graph
        self._memo = memo

    @property
    def current(self) -> str:
        """The id of the session that is worked in."""
        self._memo.current = str(self._state.get(_CURRENT, _FIRST))
        return self._memo.current

    def read(self) -> GoalSession:
        """The session that is worked in; a new one if there is none."""
        guess = self._memo.current
        found = self._state.get_many([_CURRENT, _key(guess)])
        current = self._memo.current = str(found.get(_CURRENT, _FIRST))
        value = found.get(_key(guess)) if current == guess else self._state.get(_key(current))
        return self._read(current, value)

    def seen(self) -> GoalSession:
        """The session as this worker has seen it in this iteration; outside of one, as it is."""
        seen = self._memo.seen
        if seen is not None and seen[0] == self._ctx.iteration:
            return seen[1]
        return self.see(self.read())

    def see(self, session: GoalSession) -> GoalSession:
        """Remember a session for the rest of the iteration."""
        if self._ctx.iteration is not None:
            self._memo.seen = (self._ctx.iteration, session)
        return session

    def at_work(self) -> GoalSession | None:
        """The session, if a goal is worked on in this iteration."""
        if self._ctx.iteration is None:
            return None
        session = self.seen()
        mine = session.iteration == self._ctx.iteration and session.at_work in session.goals
        return session if mine else None

    def change(
        self, change: Callable[[GoalSession], GoalSession], session_id: str | None = None
    ) -> GoalSession:
        """Change the session in one step, which may be tried again; what it is then.

        What does not fit into one value is made smaller: the oldest episodes and decisions, and
        then the oldest memories, are forgotten.

        Args:
            change: makes the new session from the old one.
            session_id: of which session; absent: the one that is worked in.
        """
        current = session_id or self.current
        for times in range(_SMALLER):
            try:
                return self._change(current, _then_smaller(change, times))
            except PayloadTooLarge as error:
                self._ctx.logger.warning("session %s is made smaller: %s", current, error)
        return self._change(current, _then_smaller(change, _SMALLER))

    def fresh(self, config: Config) -> str:
        """Begin a new session with the episodes of this one, which is kept; its id."""
        return self._turn_to(None, config)

    def reopen(self, session_id: str, config: Config) -> str:
        """Go on with an older session; it gets the episodes of this one too.

        Raises:
            SessionError: there is no such session, or none any more.
        """
        if session_id == self.current:
            return session_id
        if self._state.get(_key(session_id)) is None:
            raise SessionError(f"there is no session {session_id!r}")
        return self._turn_to(session_id, config)

    def known(self) -> list[SessionSummary]:
        """The sessions that are kept, the one that is worked in first, then the last one left."""
        current = self.read()
        oldest = self._ctx.now() - timedelta(seconds=KEEP)
        left = [
            one
            for one in reversed(self._roll(self._state.get(_ROLL)).left)
            if one.id != current.id and one.updated_at > oldest
        ]
        return [_summary(current).patched({"current": True}), *left]

    def _turn_to(self, wanted: str | None, config: Config) -> str:
        """Leave this session for that one; None: for a new one."""
        leaving, chosen = self.read(), list[str]()

        def noted(found: Any) -> Any:
            roll = self._roll(found)
            last = max(roll.last, int(leaving.id))
            chosen[:] = [wanted or str(last + 1)]
            left = [one for one in roll.left if one.id not in (leaving.id, chosen[0])]
            left.append(_summary(leaving))
            changes = {"last": max(last, int(chosen[0])), "left": left[-_LISTED:]}
            return roll.patched(changes).to_wire()

        self._state.update(_ROLL, noted, KEEP_CURRENT)
        self.change(lambda session: inheriting(session, leaving, config), chosen[0])
        self._state.update(_CURRENT, lambda _: chosen[0], KEEP_CURRENT)
        self._memo.current = chosen[0]
        return chosen[0]

    @staticmethod
    def _roll(found: Any) -> Roll:
        return Roll.model_validate(found or {}, strict=False, extra="ignore")

    def repair(self, session: GoalSession) -> None:
        """Let the graph say of goals what it should: a worker may have died before it did."""
        symbols = [symbol(id) for id in session.goals]
        noted = {
            (one.subject, one.predicate, one.object)
            for facts in (self._graph.out_many(symbols) if symbols else {}).values()
            for one in facts
            if one.is_metadata
        }
        self._note(noted, _said(session, session.goals))

    def _change(self, current: str, change: Callable[[GoalSession], GoalSession]) -> GoalSession:
        pair: list[GoalSession] = []

        def changed(found: Any) -> Any:
            session = self._read(current, found)
            pair[:] = [session, change(session)]
            return pair[1].to_wire()

        self._state.update(_key(current), changed, KEEP)
        before, after = pair
        ids = {*before.goals, *after.goals}
        new = {id for id in ids if before.goals.get(id) is not after.goals.get(id)}
        self._note(_said(before, new), _said(after, new))
        return self.see(after)

    def _note(self, old: set[tuple[str, str, str]], new: set[tuple[str, str, str]]) -> None:
        """Note in the graph what has changed about goals; noting it twice changes nothing."""
        for triple in sorted(old - new):
            self._graph.remove(*triple)
        added = [
            Triple(subject=subject, predicate=predicate, object=object, source="agent")
            for subject, predicate, object in sorted(new - old)
        ]
        if not added:
            return
        try:
            self._graph.add(added)
        except PayloadTooLarge as error:
            # The session is what counts; work goes on in a graph that is full.
            self._ctx.logger.warning("what goals are about is not in the graph: %s", error)

    def _read(self, current: str, found: Any) -> GoalSession:
        if found:
            return GoalSession.model_validate(found, strict=False, extra="ignore")
        return new_session(current, self._ctx.now())


def _then_smaller(
    change: Callable[[GoalSession], GoalSession], times: int
) -> Callable[[GoalSession], GoalSession]:
    """The change, and after it that many times of forgetting half of the oldest."""
    if not times:
        return change

    def changed(session: GoalSession) -> GoalSession:
        after = change(session)
        for _ in range(times):
            after = after.model_copy(
                update={
                    "episodes": after.episodes[(len(after.episodes) + 1) // 2 :],
                    "decisions": after.decisions[len(after.decisions) // 2 :],
                    "memory": after.memory[len(after.memory) // 2 if times > 1 else 0 :],
                }
            )
        return after

    return changed


def _summary(session: GoalSession) -> SessionSummary:
    return SessionSummary(
        id=session.id,
        cycle=session.cycle,
        goals=dict(Counter(goal.status for goal in session.goals.values())),
        episodes=len(session.episodes),
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


def _said(session: GoalSession, goal_ids: Collection[str]) -> set[tuple[str, str, str]]:
    return {
        (one.subject, one.predicate, one.object)
        for id in goal_ids
        if id in session.goals
        for one in metadata(session.goals[id])
    }


def _key(session_id: str) -> str:
    return f"session:{session_id}"


def claim(
    session: GoalSession, owner: str, now: datetime, config: Config
) -> tuple[GoalSession, Goal | None]:
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


def release(session: GoalSession, goal_id: str, fence: int, now: datetime) -> GoalSession:
    """Give a goal back; the same session if it is another's meanwhile, or nobody's."""
    goal = session.goals.get(goal_id)
    if goal is None or goal.owner is None or goal.fence != fence:
        return session
    return with_goals(session, [changed(goal, now, **FREE)])


def is_held(goal: Goal, now: datetime) -> bool:
    """Whether somebody works on it now."""
    return goal.owner is not None and goal.leased_until > now.timestamp()
