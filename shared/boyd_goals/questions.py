"""Questions of goals to people, and the effect of the answers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from boyd.plugin import State
from boyd_goals import memory
from boyd_goals.criteria import own_acts
from boyd_goals.goal_tree import below, change_goal, is_open, symbol
from boyd_goals.judgement import Judgement, StepFinding, ToolStep, judge
from boyd_goals.progress import clip
from boyd_goals.state import Config, Goal, GoalSession, Question

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
