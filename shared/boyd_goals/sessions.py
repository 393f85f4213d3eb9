"""The sessions of an agent, its questions to people, and the claims of its goals."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
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
    questions_by_id = {question.id: question for question in questions}
    for goal in list(session.goals.values()):
        question = questions_by_id.get(goal.question or "")
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
        note = memory.MemoryNote(
            content=content,
            kind="Observation",
            relevance=0.9,
            source_cycle=session.cycle,
            now=now,
            symbols=[symbol(goal.id)] if goal else [],
            tool="user_interact",
            success=True,
        )
        session = memory.push(session, note, config)
    if goal is None or not is_open(goal):
        return session
    for affected in [goal, *below(session, goal)]:
        judged = _judge_answer(session, goal, affected, question.answer, now.date(), config)
        changes: dict[str, Any] = {"matched": judged.matched, "evidence": judged.evidence}
        if judged != (affected.matched, affected.evidence):
            changes.update(last_progress_cycle=affected.cycles_worked, stalled=False)
        if affected.question == question.id:
            changes["question"] = None
        if is_open(affected):
            session = change_goal(session, affected, now, **changes)
    return session


def _judge_answer(
    session: GoalSession, asking: Goal, goal: Goal, answer: str, day: date, config: Config
) -> Judgement:
    """Judge a goal by the answer to a question of *asking*."""
    cycles = [
        decision.cycle
        for decision in session.decisions
        if decision.goal == asking.id and decision.tool == "user_interact"
    ]
    findings = [StepFinding(lines=[answer], is_asked=True)]
    cycle, is_act = max(cycles, default=session.cycle), "user_interact" in own_acts(goal)
    step = ToolStep(cycle, "user_interact", answer, findings, day, is_act)
    return judge(goal, step, config)


@dataclass
class Questions:
    """The questions of one agent, oldest first."""

    _state: State

    def all(self) -> list[Question]:
        """All kept questions."""
        return _parse(self._state.get(_KEY))

    def waiting(self) -> list[Question]:
        """The questions without an answer."""
        return [question for question in self.all() if question.answer is None]

    def ask(self, goal: str | None, text: str, now: datetime) -> Question:
        """Ask a question, unless the same goal has the same question open.

        When there are too many, the oldest questions are dropped, answered ones first.
        """
        question = Question(id=uuid.uuid4().hex[:8], goal=goal, text=text, asked_at=now)
        result = [question]

        def add(stored: Any) -> list[Any]:
            questions, key = _parse(stored), (goal, text, None)
            same = [item for item in questions if (item.goal, item.text, item.answer) == key]
            result[:] = same or [question]
            remaining = _drop_oldest(questions if same else [*questions, question])
            return [item.to_wire() for item in remaining]

        self._state.update(_KEY, add, KEEP)
        return result[0]

    def answer(self, id: str, text: str, by: str, now: datetime) -> tuple[Question | None, bool]:
        """Answer a question; returns it as it is now, if it exists, and whether this counted."""
        result: list[tuple[Question | None, bool]] = []

        def set_answer(stored: Any) -> list[Any]:
            questions = _parse(stored)
            match = next((question for question in questions if question.id == id), None)
            counts = match is not None and match.answer is None
            answered = {"answer": text, "answered_by": by, "answered_at": now}
            after = match.patched(answered) if match and counts else match
            result[:] = [(after, counts)]
            return [
                (after if question is match and after else question).to_wire()
                for question in questions
            ]

        self._state.update(_KEY, set_answer, KEEP)
        return result[0]


def _drop_oldest(questions: list[Question]) -> list[Question]:
    too_many = max(0, len(questions) - MOST)
    oldest_first = sorted(
        questions, key=lambda question: (question.answer is None, question.asked_at)
    )
    dropped = {question.id for question in oldest_first[:too_many]}
    return [question for question in questions if question.id not in dropped]


def _parse(stored: Any) -> list[Question]:
    return [Question.from_wire(item) for item in stored or []]


#: Seconds that the id of the current session is kept.
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
    """The id of the current session as last read, and the session pinned for an iteration."""

    current: str = _FIRST
    pinned: tuple[int, GoalSession] | None = None


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
        values = self._ctx.state.get_many([_CURRENT, _key(guess)])
        current = self._cache.current = str(values.get(_CURRENT, _FIRST))
        value = values.get(_key(guess)) if current == guess else self._ctx.state.get(_key(current))
        return self._parse(current, value)

    def snapshot(self) -> GoalSession:
        """The session as read earlier in this iteration, otherwise read now."""
        pinned = self._cache.pinned
        if pinned is not None and pinned[0] == self._ctx.iteration:
            return pinned[1]
        return self.pin(self.read())

    def pin(self, session: GoalSession) -> GoalSession:
        """Remember a session for the rest of the iteration."""
        if self._ctx.iteration is not None:
            self._cache.pinned = (self._ctx.iteration, session)
        return session

    def working_session(self) -> GoalSession | None:
        """The session, if this iteration works on one of its goals."""
        if self._ctx.iteration is None:
            return None
        session = self.snapshot()
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

    def summaries(self) -> list[SessionSummary]:
        """All kept sessions: the current one, then the others, last used first."""
        current = self.read()
        oldest = self._ctx.now() - timedelta(seconds=KEEP)
        left = _parse_register(self._ctx.state.get(_REGISTER)).left[::-1]
        others = [
            session for session in left if session.id != current.id and session.updated_at > oldest
        ]
        return [_summary(current).patched({"current": True}), *others]

    def repair(self, session: GoalSession) -> None:
        """Bring the facts about goals in the graph up to date, as a worker may have died."""
        symbols = [symbol(id) for id in session.goals]
        about = self._graph.out_many(symbols) if symbols else {}
        noted = {fact.place for facts in about.values() for fact in facts if fact.is_metadata}
        self._note(noted, _metadata(session, session.goals))

    def _switch(self, session_id: str | None, config: Config) -> str:
        """Make another session current, by default a new one."""
        leaving, chosen = self.read(), list[str]()

        def register_left(stored: Any) -> Any:
            register = _parse_register(stored)
            last = max(register.last, int(leaving.id))
            chosen[:] = [session_id or str(last + 1)]
            left = [
                session for session in register.left if session.id not in (leaving.id, chosen[0])
            ]
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

        def apply(stored: Any) -> Any:
            session = self._parse(current, stored)
            pair[:] = [session, _shrink(change(session), halvings)]
            return pair[1].to_wire()

        self._ctx.state.update(_key(current), apply, KEEP, news=lambda: list(_endings(*pair)))
        before, after = pair
        ids = {*before.goals, *after.goals}
        new = {id for id in ids if before.goals.get(id) is not after.goals.get(id)}
        self._note(_metadata(before, new), _metadata(after, new))
        return self.pin(after)

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

    def _parse(self, current: str, stored: Any) -> GoalSession:
        if stored:
            return GoalSession.from_wire(stored)
        return new_session(current, self._ctx.now())


def _parse_register(stored: Any) -> SessionRegister:
    return SessionRegister.from_wire(stored or {})


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
    evidence = [item.patched({"text": clip(item.text, _SHORT)}) for item in goal.evidence]
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
        fact.place for id in goal_ids if id in session.goals for fact in metadata(session.goals[id])
    }


def _key(session_id: str) -> str:
    return f"session:{session_id}"


def claim(
    session: GoalSession, owner: str, now: datetime, config: Config
) -> tuple[GoalSession, Goal | None]:
    """Claim the first free Active goal, if any, for `lease` seconds.

    An owner that holds a goal gets it again with the same fence and a renewed lease. A goal with an
    expired lease is claimed with a higher fence, and outcomes with the lower fence are rejected.
    """
    active = active_goals(session)
    own = next(
        (candidate for candidate in active if candidate.owner == owner and is_held(candidate, now)),
        None,
    )
    goal = own or next((candidate for candidate in active if not is_held(candidate, now)), None)
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
