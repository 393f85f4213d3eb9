"""One attempt at a turn, piece by piece."""

from __future__ import annotations

from typing import Any

import pytest

from boyd.llm.messages import ReasoningDelta, TextDelta
from boyd.llm.model_errors import Fault
from boyd.llm.turn_accumulator import MAX_TEXT, TurnAccumulator


class Nobody:
    """Looks on and does nothing."""

    def delta(self, kind: Any, text: str) -> None:
        """A piece has come."""

    def discard_deltas(self, reason: str) -> None:
        """The attempt has failed."""

    def is_stopped(self) -> bool:
        """Never."""
        return False


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta])
def test_an_answer_that_is_longer_than_any_of_use_is_not_read(kind: Any) -> None:
    answer = TurnAccumulator(Nobody())
    for _ in range(4):
        answer.add(kind("x" * (MAX_TEXT // 4)))

    with pytest.raises(Fault, match="longer than"):
        answer.add(kind("x"))
