"""Questions of goals to people, and the effect of the answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from boyd.errors import BoydError, PayloadTooLarge
from boyd.models import Place, Triple
from boyd.plugin import Context, Graph, News, State
from boyd_goals import memory
from boyd_goals.goal_tree import (
    FREE,
    active_goals,
    below,
    change_goal,
    is_open,
    metadata,
    new_session,
    symbol,
    update_goal,
    with_goals,
)
from boyd_goals.judgement import Judgement, StepFinding, ToolStep, judge
from boyd_goals.memory import inherit_episodes
from boyd_goals.progress import clip, own_acts
from boyd_goals.state import Config, Goal, GoalSession, Question, SessionRegister, SessionSummary

#: The number of questions kept, and for how many seconds.
MOST = 100
KEEP = 365 * 86400.0
_KEY = "questions"


def note_question(session: GoalSession, question: Question, now: datetime) -> GoalSession:
    """Let the goal of a question wait for its answer, and not ask again."""
    goal = session.goals.get(question.goal or "")
    if goal is None or goal.question is not None or question.answer is not None:
        return session
    return change_goal(session, goal, now, question=question.id)


def apply_answers(
    session: GoalSession, questions: Sequence[Question], now: datetime, config: Config
) -> GoalSession:
    """Apply the answers to the open questions of the goals."""
    known = {one.id: one for one in questions}
    for goal in list(session.goals.values()):
        question = known.get(goal.question or "")
        if question is not None:
            session = apply_answer(session, question, now, config)
        elif goal.question is not None:
            # It was dropped: too many questions were asked since.
            session = change_goal(session, goal, now, question=None)
    return session


def apply_answer(
    session: GoalSession, question: Question, now: datetime, config: Config
) -> GoalSession:
    """Remember an answer, once.

    The goal that asked and its sub-goals have progressed if the answer is evidence for more of
    their criteria; the next cycle concludes.
    """
    if question.answer is None:
        return session
    goal = session.goals.get(question.goal or "")
    text = f"{question.text}\nAnswer of {question.answered_by}: {question.answer}"
    content = clip(text, memory.CONTENT_CHARS)
    if not any(entry.content == content for entry in session.memory):
        session = memory.push(
            session,
            content=content,
            kind="Observation",
            relevance=0.9,
            source_cycle=session.cycle,
            now=now,
            config=config,
            symbols=[symbol(goal.id)] if goal else [],
            tool="user_interact",
            success=True,
        )
    if goal is None or not is_open(goal):
        return session
    for one in [goal, *below(session, goal)]:
        judged = _judge_answer(session, goal, one, question.answer, config)
        changes: dict[str, Any] = {"matched": judged.matched, "evidence": judged.evidence}
        if judged != (one.matched, one.evidence):
            changes.update(last_progress_cycle=one.cycles_worked, stalled=False)
        if one.question == question.id:
            changes["question"] = None
        if is_open(one):
            session = change_goal(session, one, now, **changes)
    return session


def _judge_answer(
    session: GoalSession, asking: Goal, goal: Goal, answer: str, config: Config
) -> Judgement:
    """Judge a goal by the answer to a question of *asking*."""
    asked = [
        one.cycle
        for one in session.decisions
        if one.goal == asking.id and one.tool == "user_interact"
    ]
    findings = [StepFinding(lines=[answer], is_asked=True)]
    cycle, is_act = max(asked, default=session.cycle), "user_interact" in own_acts(goal)
    return judge(goal, ToolStep(cycle, "user_interact", answer, findings, is_act), config)


@dataclass
class Questions:
    """The questions of one agent, oldest first."""

    _state: State

    def all(self) -> list[Question]:
        """All kept questions."""
        return _parse(self._state.get(_KEY))

    def waiting(self) -> list[Question]:
        """The questions without an answer."""
        return [one for one in self.all() if one.answer is None]

    def ask(self, goal: str | None, text: str, now: datetime) -> Question:
        """Ask a question, unless the same goal has the same question open.

        When there are too many, the oldest questions are dropped, answered ones first.
        """
        asked = Question(id=uuid.uuid4().hex[:8], goal=goal, text=text, asked_at=now)
        result = [asked]

        def add(found: Any) -> list[Any]:
            known, wanted = _parse(found), (goal, text, None)
            same = [one for one in known if (one.goal, one.text, one.answer) == wanted]
            result[:] = same or [asked]
            kept = _drop_oldest(known if same else [*known, asked])
            return [one.to_wire() for one in kept]

        self._state.update(_KEY, add, KEEP)
        return result[0]

    def answer(self, id: str, text: str, by: str, now: datetime) -> tuple[Question | None, bool]:
        """Answer a question; returns it as it is now, if it exists, and whether this counted."""
        result: list[tuple[Question | None, bool]] = []

        def set_answer(found: Any) -> list[Any]:
            known = _parse(found)
            match = next((one for one in known if one.id == id), None)
            counts = match is not None and match.answer is None
            answered = {"answer": text, "answered_by": by, "answered_at": now}
            after = match.patched(answered) if match and counts else match
            result[:] = [(after, counts)]
            return [(after if one is match and after else one).to_wire() for one in known]

        self._state.update(_KEY, set_answer, KEEP)
        return result[0]


def _drop_oldest(questions: list[Question]) -> list[Question]:
    too_many = max(0, len(questions) - MOST)
    oldest_first = sorted(questions, key=lambda one: (one.answer is None, one.asked_at))
    gone = {one.id for one in oldest_first[:too_many]}
    return [one for one in questions if one.id not in gone]


def _parse(found: Any) -> list[Question]:
    return [Question.model_validate(one, strict=False, extra="ignore") for one in found or []]


#: Seconds that a session is kept after its last change, and that the current one is known.
KEEP_CURRENT = 100 * KEEP
#: Attempts to shrink a session that is too large for one value.
_SHRINK_ATTEMPTS = 4
_CURRENT, _FIRST, _REGISTER = "current", "1", "sessions"
_LISTED = 200
#: The most characters of a result in an event.
_NEWS_CHARS = 500
#: The most characters of results and evidence of ended goals, if the session is too large.
_SHORT = 100

Change: TypeAlias = Callable[[GoalSession], GoalSession]


class SessionError(BoydError):
    """No such session."""


@dataclass
class SessionCache:
    """The current session as last seen by a worker, and the session read in an iteration."""

    current: str = _FIRST
    seen: tuple[int, GoalSession] | None = None


@dataclass
class Sessions:
    """The sessions of one agent; one of them is current."""

    _ctx: Context
    _graph: Graph
    _cache: SessionCache

    @property
    def current(self) -> str:
        """The id of the current session."""
        self._cache.current = str(self._ctx.state.get(_CURRENT, _FIRST))
        return self._cache.current

    def read(self) -> GoalSession:
        """The current session; a new one if there is none."""
        guess = self._cache.current
        found = self._ctx.state.get_many([_CURRENT, _key(guess)])
        current = self._cache.current = str(found.get(_CURRENT, _FIRST))
        value = found.get(_key(guess)) if current == guess else self._ctx.state.get(_key(current))
        return self._parse(current, value)

    def seen(self) -> GoalSession:
        """The session as read earlier in this iteration, otherwise as it is."""
        seen = self._cache.seen
        if seen is not None and seen[0] == self._ctx.iteration:
            return seen[1]
        return self.see(self.read())

    def see(self, session: GoalSession) -> GoalSession:
        """Remember a session for the rest of the iteration."""
        if self._ctx.iteration is not None:
            self._cache.seen = (self._ctx.iteration, session)
        return session

    def at_work(self) -> GoalSession | None:
        """The session, if this iteration works on one of its goals."""
        if self._ctx.iteration is None:
            return None
        session = self.seen()
        mine = session.iteration == self._ctx.iteration and session.at_work in session.goals
        return session if mine else None

    def change(self, change: Change, session_id: str | None = None) -> GoalSession:
        """Apply *change*, which may be retried, in one step to a session, by default the current.

        A session too large for one value loses its oldest episodes and decisions, and then its
        oldest memories and most of the results of ended goals.
        """
        current = session_id or self.current
        for times in range(_SHRINK_ATTEMPTS):
            try:
                return self._change(current, change, times)
            except PayloadTooLarge as error:
                self._ctx.logger.warning("session %s is too large and shrinks: %s", current, error)
        return self._change(current, change, _SHRINK_ATTEMPTS)

    def start(self, config: Config) -> str:
        """Start a new session with the episodes of the current one, which is kept; its id."""
        return self._switch(None, config)

    def reopen(self, session_id: str, config: Config) -> str:
        """Make an older session current again; it inherits the episodes of the current one.

        Raises:
            SessionError: it does not exist or has expired.
        """
        if session_id == self.current:
            return session_id
        if self._ctx.state.get(_key(session_id)) is None:
            raise SessionError(f"no session {session_id!r}")
        return self._switch(session_id, config)

    def known(self) -> list[SessionSummary]:
        """All kept sessions: the current one, then those left last."""
        current = self.read()
        oldest = self._ctx.now() - timedelta(seconds=KEEP)
        left = _parse_register(self._ctx.state.get(_REGISTER)).left[::-1]
        others = [one for one in left if one.id != current.id and one.updated_at > oldest]
        return [_summary(current).patched({"current": True}), *others]

    def repair(self, session: GoalSession) -> None:
        """Bring the facts about goals in the graph up to date, as a worker may have died."""
        symbols = [symbol(id) for id in session.goals]
        about = self._graph.out_many(symbols) if symbols else {}
        noted = {one.place for facts in about.values() for one in facts if one.is_metadata}
        self._note(noted, _metadata(session, session.goals))

    def _switch(self, wanted: str | None, config: Config) -> str:
        """Make another session current; None: a new one."""
        leaving, chosen = self.read(), list[str]()

        def register_left(found: Any) -> Any:
            register = _parse_register(found)
            last = max(register.last, int(leaving.id))
            chosen[:] = [wanted or str(last + 1)]
            left = [one for one in register.left if one.id not in (leaving.id, chosen[0])]
            left.append(_summary(leaving))
            changes = {"last": max(last, int(chosen[0])), "left": left[-_LISTED:]}
            return register.patched(changes).to_wire()

        self._ctx.state.update(_REGISTER, register_left, KEEP_CURRENT)
        self.change(lambda session: inherit_episodes(session, leaving, config), chosen[0])
        self._ctx.state.update(_CURRENT, lambda _: chosen[0], KEEP_CURRENT)
        self._cache.current = chosen[0]
        return chosen[0]

    def _change(self, current: str, change: Change, halvings: int) -> GoalSession:
        pair: list[GoalSession] = []

        def apply(found: Any) -> Any:
            session = self._parse(current, found)
            pair[:] = [session, _shrink(change(session), halvings)]
            return pair[1].to_wire()

        self._ctx.state.update(_key(current), apply, KEEP, news=lambda: list(_endings(*pair)))
        before, after = pair
        ids = {*before.goals, *after.goals}
        new = {id for id in ids if before.goals.get(id) is not after.goals.get(id)}
        self._note(_metadata(before, new), _metadata(after, new))
        return self.see(after)

    def _note(self, old: set[Place], new: set[Place]) -> None:
        """Replace facts about goals in the graph; repeating it changes nothing."""
        for place in sorted(old - new):
            self._graph.remove(*place)
        added = [
            Triple(subject=subject, predicate=predicate, object=object, source="agent")
            for subject, predicate, object in sorted(new - old)
        ]
        try:
            if added:
                self._graph.add(added)
        except PayloadTooLarge as error:
            # Work goes on with a full graph: the session is the source of truth.
            self._ctx.logger.warning("goals are missing from the graph: %s", error)

    def _parse(self, current: str, found: Any) -> GoalSession:
        if found:
            return GoalSession.model_validate(found, strict=False, extra="ignore")
        return new_session(current, self._ctx.now())


def _parse_register(found: Any) -> SessionRegister:
    return SessionRegister.model_validate(found or {}, strict=False, extra="ignore")


def _shrink(session: GoalSession, halvings: int) -> GoalSession:
    """Drop the older half of what a session remembers, that many times; shorten old results."""
    for _ in range(halvings):
        changes = {
            "episodes": session.episodes[(len(session.episodes) + 1) // 2 :],
            "decisions": session.decisions[len(session.decisions) // 2 :],
            "memory": session.memory[len(session.memory) // 2 if halvings > 1 else 0 :],
        }
        if halvings > 1:
            changes["goals"] = {id: _shorten(goal) for id, goal in session.goals.items()}
        session = session.model_copy(update=changes)
    return session


def _shorten(goal: Goal) -> Goal:
    """An ended goal with short results and evidence."""
    if is_open(goal):
        return goal
    evidence = [one.patched({"text": clip(one.text, _SHORT)}) for one in goal.evidence]
    return goal.patched({"result": goal.result and clip(goal.result, _SHORT), "evidence": evidence})


def _summary(session: GoalSession) -> SessionSummary:
    return SessionSummary(
        id=session.id,
        cycle=session.cycle,
        goals=session.goal_counts,
        episodes=len(session.episodes),
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


def _endings(before: GoalSession, after: GoalSession) -> Iterator[News]:
    """The goals that have ended, each with its result or reason."""
    for goal in after.goals.values():
        was = before.goals.get(goal.id)
        if was is not None and was.status != goal.status and not is_open(goal):
            text = goal.result if goal.status == "Completed" else goal.reason
            yield News(f"goal.{goal.status.lower()}", goal.id, clip(text or "", _NEWS_CHARS))


def _metadata(session: GoalSession, goal_ids: Collection[str]) -> set[Place]:
    return {
        one.place for id in goal_ids if id in session.goals for one in metadata(session.goals[id])
    }


def _key(session_id: str) -> str:
    return f"session:{session_id}"


def claim(
    session: GoalSession, owner: str, now: datetime, config: Config
) -> tuple[GoalSession, Goal | None]:
    """Claim the first free Active goal for `lease` seconds; None: there is none.

    An owner that holds a goal gets it again with the same fence and a renewed lease. A goal with an
    expired lease is claimed with a higher fence, and outcomes with the lower fence are rejected.
    """
    active = active_goals(session)
    own = next((one for one in active if one.owner == owner and is_held(one, now)), None)
    goal = own or next((one for one in active if not is_held(one, now)), None)
    if goal is None:
        return session, None
    fence, until = goal.fence if own else goal.fence + 1, now.timestamp() + config.lease
    mine = update_goal(goal, now, owner=owner, leased_until=until, fence=fence)
    return with_goals(session, [mine]), mine


def release(session: GoalSession, goal_id: str, fence: int, now: datetime) -> GoalSession:
    """Release a claimed goal; the same session if it is free or has another owner by now."""
    goal = session.goals.get(goal_id)
    if goal is None or goal.owner is None or goal.fence != fence:
        return session
    return change_goal(session, goal, now, **FREE)


def is_held(goal: Goal, now: datetime) -> bool:
    """True if the goal has an owner whose lease has not expired."""
    return goal.owner is not None and goal.leased_until > now.timestamp()
