"""Substance of a reply, and the empty turns that end an investigation."""

from __future__ import annotations

import pytest

from boyd.llm.messages import Turn
from boyd.llm.reply_text import is_empty, is_substantive, strip_reasoning
from boyd.models.investigation import ToolCall
from costs import MOST, growth


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t",
        "\u200b\u200d\ufeff\u2060\u00ad",
        "\u3164\u2800",
        "...",
        "---\n***",
        "。、…",
        "```\n```",
        "```python\n\n```",
        "~~~json\n~~~",
        "```",
        "```text",
        "```json\n{}\n```",
        "<think>I should look</think>",
        "<think>never closed",
        "prompted thought</think> \n",
        "<THINKING>x</THINKING>.",
        "<think>a</think><reasoning>b</reasoning>",
    ],
)
def test_blank_or_decorative_text_is_not_substantive(text: str) -> None:
    assert not is_substantive(text)


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "no",
        "ja",
        "是",
        "👍",
        "```\nx\n```",
        "```python\nprint()\n```",
        "<think>hm</think>Yes.",
        "thought</think>Yes.",
        "<think>about <think> tags</think>Yes.",
        "```Done with it",
    ],
)
def test_short_answers_are_substantive(text: str) -> None:
    assert is_substantive(text)


def test_reasoning_is_stripped_from_text() -> None:
    assert strip_reasoning("a<think>b</think>c<think>d</think>e") == "ace"
    assert strip_reasoning("b</think>c</think>d") == "cd"


def test_a_turn_with_calls_or_that_was_cut_or_filtered_is_not_empty() -> None:
    assert is_empty(Turn(text=" "))
    assert is_empty(Turn(text="", finish="calls"))
    assert not is_empty(Turn(finish="length"))
    assert not is_empty(Turn(finish="filtered"))
    assert not is_empty(Turn(calls=[ToolCall(id="a", name="t")]))
    assert not is_empty(Turn(text="x"))


@pytest.mark.parametrize("seed", ["<think>", "</think>", "```\n", "```", "<think", "~~~ \n ", "<"])
def test_a_long_text_takes_no_longer_than_its_length(seed: str) -> None:
    assert growth(is_substantive, lambda size: seed * size, 200_000) < MOST
