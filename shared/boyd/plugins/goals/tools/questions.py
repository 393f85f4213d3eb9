"""What an answer of a person does for the goal that has asked."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from boyd.plugin import State
from boyd.plugins.goals import memory
from boyd.plugins.goals.goal_tree import below, changed, is_open, symbol, with_goals
from boyd.plugins.goals.progress import clipped, gathered, told
from boyd.plugins.goals.state import Config, Goal, GoalSession, Question


def taken_in(
    session: GoalSession, question: Question, now: datetime, config: Config
) -> GoalSession:
    """The session that remembers the answer: once, however often it is told.

    The goal that has asked, and those that it was split into, have got on if the answer holds more
    words of their criteria than were found before; the next cycle evaluates them with these.
    """
    if question.answer is None:
        return session
    goal = session.goals.get(question.goal or "")
    said = f"{question.text}\nAnswer of {question.answered_by}: {question.answer}"
    content = clipped(said, memory.CONTENT_CHARS)
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
    words = told(question.answer)
    heard = [one for one in (goal, *below(session, goal)) if is_open(one)]
    return with_goals(session, [_with(one, question, words, now) for one in heard])


def _with(goal: Goal, question: Question, words: Collection[str], now: datetime) -> Goal:
    """The goal with what the answer to a question has told."""
    matched = gathered(goal, words)
    changes: dict[str, Any] = {"matched": matched}
    if len(matched) > len(goal.matched):
        changes.update(last_progress_cycle=goal.cycles_worked, stalled=False)
    if goal.question == question.id:
        changes["question"] = None
    return changed(goal, now, **changes)


def asked(session: GoalSession, question: Question, now: datetime) -> GoalSession:
    """The session in which the goal waits for an answer, and does not ask again."""
    goal = session.goals.get(question.goal or "")
    if goal is None or goal.question is not None or question.answer is not None:
        return session
    return with_goals(session, [changed(goal, now, question=question.id)])


def listened(
    session: GoalSession, questions: Sequence[Question], now: datetime, config: Config
) -> GoalSession:
    """The session that knows of its goals' questions whether they still wait."""
    known = {one.id: one for one in questions}
    for goal in list(session.goals.values()):
        question = known.get(goal.question or "")
        if question is not None:
            session = taken_in(session, question, now, config)
        elif goal.question is not None:
            # So many were asked since that it was forgotten.
            session = with_goals(session, [changed(goal, now, question=None)])
    return session


#: How many questions are kept, and for how many seconds.
MOST = 100
KEEP = 365 * 86400.0

_KEY = "questions"


class Questions:
    """The questions of one agent, the last one last."""

    def __init__(self, state: State) -> None:
        self._state = state

    def all(self) -> list[Question]:
        """Every question that is kept."""
        return [_read(one) for one in self._state.get(_KEY) or []]

    def waiting(self) -> list[Question]:
        """Those without an answer."""
        return [one for one in self.all() if one.answer is None]

    def ask(self, goal: str | None, text: str, now: datetime) -> Question:
        """Ask something; what the same goal has asked and nobody has answered is not asked again.

        Of too many questions the oldest are forgotten, those with an answer first.
        """
        asked = Question(id=uuid.uuid4().hex[:8], goal=goal, text=text, asked_at=now)
        made = [asked]

        def changed(found: Any) -> list[Any]:
            known = [_read(one) for one in found or []]
            open = [one for one in known if one.answer is None]
            same = [one for one in open if (one.goal, one.text) == (goal, text)]
            made[:] = same or [asked]
            return [one.to_wire() for one in _last([*known, *([] if same else [asked])])]

        self._state.update(_KEY, changed, KEEP)
        return made[0]

    def answer(self, id: str, text: str, by: str, now: datetime) -> tuple[Question | None, bool]:
        """Answer a question: as it is now, if there is one, and whether this answer counts."""
        outcome: list[tuple[Question | None, bool]] = []

        def changed(found: Any) -> list[Any]:
            known = [_read(one) for one in found or []]
            match = next((one for one in known if one.id == id), None)
            counts = match is not None and match.answer is None
            answered = {"answer": text, "answered_by": by, "answered_at": now}
            after = match.patched(answered) if match and counts else match
            outcome[:] = [(after, counts)]
            return [(after if one is match and after else one).to_wire() for one in known]

        self._state.update(_KEY, changed, KEEP)
        return outcome[0]


def _last(questions: list[Question]) -> list[Question]:
    too_many = max(0, len(questions) - MOST)
    oldest_first = sorted(questions, key=lambda one: (one.answer is None, one.asked_at))
    gone = {one.id for one in oldest_first[:too_many]}
    return [one for one in questions if one.id not in gone]


def _read(found: Any) -> Question:
    return Question.model_validate(found, strict=False, extra="ignore")
