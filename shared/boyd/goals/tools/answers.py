"""What an answer of a person does for the goal that has asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from boyd.goals import memory
from boyd.goals.goal_book import below, changed, is_open, symbol, with_goals
from boyd.goals.progress import gathered, told
from boyd.goals.shapes import Config, Goal, Question, Session
from boyd.goals.text import clipped


def taken_in(session: Session, question: Question, now: datetime, config: Config) -> Session:
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


def asked(session: Session, question: Question, now: datetime) -> Session:
    """The session in which the goal waits for an answer, and does not ask again."""
    goal = session.goals.get(question.goal or "")
    if goal is None or goal.question is not None or question.answer is not None:
        return session
    return with_goals(session, [changed(goal, now, question=question.id)])


def listened(
    session: Session, questions: Sequence[Question], now: datetime, config: Config
) -> Session:
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
