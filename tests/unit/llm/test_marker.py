"""The text after the words that mark a final answer."""

from __future__ import annotations

import pytest

from boyd.llm.reply_text import answer_after_marker


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("DONE: the disk is full", "the disk is full"),
        ("I looked.\ndone:\n the disk\n", "the disk"),
        ("I am not DONE: yet.\n\nDONE: yes", "yes"),
        ("So it is. DONE: yes", "yes"),
        ("DONE: the log says 'done: 42'", "the log says 'done: 42'"),
        ("**Done:** the disk is full", "the disk is full"),
        ("### _DONE:_\nthe *disk* is full", "the *disk* is full"),
        ("the disk is full\nDONE:", "the disk is full"),
        ("DONE: ```\n```", None),
        ("the disk is full", None),
        ("<think>DONE: the disk</think>I shall look.", None),
        ("", None),
    ],
)
def test_the_answer_stands_behind_the_marker(text: str, answer: str | None) -> None:
    assert answer_after_marker(text, "DONE:") == answer


def test_a_marker_is_no_pattern() -> None:
    assert answer_after_marker("abc", "a.c") is None
    assert answer_after_marker("[(*) yes", "[(*)") == "yes"
