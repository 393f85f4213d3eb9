"""What the agent asks people: a question waits for its answer, and no worker does."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from boyd.goals.shapes import Question
from boyd.plugin import State

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
