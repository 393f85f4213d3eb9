"""Going round in circles is noticed before the next call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.llm.loop_detection import (
    ExecutedCall,
    PlannedCall,
    Violation,
    check_call,
    check_turns,
    result_digest,
    warn_of_calls,
    warn_of_turns,
)
from boyd.llm.messages import Turn
from boyd.models.investigation import ToolCall


def past_calls(*calls: str, **fields: Any) -> list[ExecutedCall]:
    """Calls that were made: `a` gave `ra`, `a:x` gave x."""
    split = [call.partition(":")[::2] for call in calls]
    return [ExecutedCall(f"tool-{c}", c, result or f"r{c}", **fields) for c, result in split]


def plan(call: str, **fields: Any) -> PlannedCall:
    return PlannedCall(f"tool-{call}", call, **fields)


def play(script: list[str], **fields: Any) -> tuple[int, int, Violation | None]:
    """The numbers of calls requested and made until the first violation."""
    history: list[ExecutedCall] = []
    for request_count, call in enumerate(script, 1):
        name = call.partition(":")[0]
        violation = check_call(history, plan(name, **fields))
        if violation:
            return request_count, len(history), violation
        history += past_calls(call, **fields)
    return len(script), len(history), None


def test_the_third_identical_call_is_not_made() -> None:
    requests, executions, violation = play(["a"] * 50)
    assert (requests, executions) == (3, 2)
    assert violation is not None
    assert (violation.ending, violation.pattern, violation.period) == ("doom_loop", "identical", 1)
    assert violation.indexes == (0, 1, 2)
    assert violation.signatures == ("a",)
    assert "three times" in violation.sentence


def test_other_results_do_not_help_an_identical_call() -> None:
    assert play(["a:1", "a:2", "a:3"])[:2] == (3, 2)


def test_another_call_in_between_does() -> None:
    assert play(["a", "a", "b", "a", "a", "c"])[2] is None


def test_two_calls_in_turn_take_six_requests_and_five_executions() -> None:
    requests, executions, violation = play(["a", "b"] * 20)
    assert (requests, executions) == (6, 5)
    assert violation is not None
    assert (violation.ending, violation.pattern, violation.period) == ("stuck_cycle", "cycle", 2)
    assert violation.indexes == (0, 1, 2, 3, 4, 5)
    assert violation.signatures == ("a", "b")


@pytest.mark.parametrize(("block", "period"), [("ab", 2), ("abc", 3), ("aab", 3), ("abcd", 4)])
def test_a_round_of_two_to_four_calls_is_not_finished_a_third_time(block: str, period: int) -> None:
    requests, executions, violation = play(["x", *block * 5])
    assert (requests, executions) == (1 + 3 * period, 3 * period)
    assert violation is not None
    assert violation.period == period
    assert violation.indexes == tuple(range(1, 3 * period + 1))


def test_a_round_of_five_is_none() -> None:
    assert play(list("abcde") * 5)[2] is None


@pytest.mark.parametrize("changed", range(5))
def test_a_result_that_has_changed_makes_it_no_circle(changed: int) -> None:
    script = list("ababa")
    script[changed] += ":new"
    assert check_call(past_calls(*script), plan("b")) is None


def test_a_call_that_cannot_be_made_is_answered_three_times_and_ends_it_the_fourth() -> None:
    history: list[ExecutedCall] = []
    for number in range(1, 4):
        assert check_call(history, plan("a", runnable=False)) is None
        history += past_calls("a", runnable=False, error=f"no such tool, request {number}")
    violation = check_call(history, plan("a", runnable=False))
    assert violation is not None
    assert (violation.ending, violation.pattern, violation.indexes) == (
        "repeated_error",
        "repeated_error",
        (0, 1, 2, 3),
    )
    assert "no such tool" in violation.sentence


def test_another_error_or_call_resets_the_count() -> None:
    first, two = (past_calls("a", runnable=False, error=error) for error in ("x", "y"))
    assert check_call([*first, *first, *two], plan("a", runnable=False)) is None
    assert check_call([*first, *first, *first], plan("b", runnable=False)) is None
    assert check_call([*first, *past_calls("b"), *first, *first], plan("a", runnable=False)) is None


def test_a_poll_may_be_repeated_while_its_result_changes() -> None:
    assert play([f"a:{n}" for n in range(50)], poll=True)[2] is None
    assert play(["a:1", "a:1", "a:1", "a:2"] * 10, poll=True)[2] is None


def test_a_poll_that_has_given_the_same_four_times_is_not_asked_again() -> None:
    requests, executions, violation = play(["a:1", *["a:2"] * 10], poll=True)
    assert (requests, executions) == (6, 5)
    assert violation is not None
    assert (violation.ending, violation.pattern) == ("doom_loop", "poll")


def test_a_poll_that_fails_ends_as_an_error_that_repeats() -> None:
    history = past_calls("a", "a", "a", poll=True, error="timed out after 5 s")
    violation = check_call(history, plan("a", poll=True))
    assert violation is not None
    assert violation.ending == "repeated_error"


def test_each_pattern_is_warned_of_once_before_it_is_a_violation() -> None:
    patterns = [
        warning and warning.pattern
        for warning in (
            warn_of_calls(past_calls(*"aa")),
            warn_of_calls(past_calls(*"abab")),
        )
    ]
    assert patterns == ["identical", "cycle"]
    assert warn_of_calls(past_calls(*"a")) is None
    assert warn_of_calls(past_calls(*"aba")) is None
    assert warn_of_calls(past_calls(*"ababa")) is None
    assert warn_of_calls([]) is None


def test_a_warning_of_an_error_quotes_it() -> None:
    fails = past_calls(*"aaa", runnable=False, error="no tool `lok`")
    warning = warn_of_calls(fails)
    assert warning is not None
    assert warning.pattern == "repeated_error"
    assert "no tool `lok`" in warning.text
    assert warn_of_calls(fails[:2]) is None


def test_a_poll_is_warned_of_at_three() -> None:
    warning = warn_of_calls(past_calls(*"aaa", poll=True))
    assert warning is not None
    assert warning.pattern == "poll"
    assert warn_of_calls(past_calls(*"aa", poll=True)) is None


def test_a_warning_is_about_any_call_of_the_last_turn() -> None:
    history = past_calls(*"aab")
    assert warn_of_calls(history, 1) is None
    warning = warn_of_calls(history, 2)
    assert warning is not None
    assert warning.pattern == "identical"


@given(st.lists(st.sampled_from("abc"), max_size=40), st.booleans())
def test_a_detected_loop_stops_the_call_and_is_explained(script: list[str], poll: bool) -> None:
    requests, executions, violation = play(script, poll=poll)
    if violation is None:
        assert executions == len(script)
        return
    assert executions == requests - 1
    assert violation.indexes[-1] == executions
    assert len(violation.signatures) == violation.period
    assert violation.sentence.endswith(".")


def test_two_empty_turns_in_a_row_end_it_and_one_is_pointed_out() -> None:
    empty, call = Turn(text=" …"), Turn(calls=[ToolCall(id="a", name="t")])
    assert check_turns([empty]) is None
    first = warn_of_turns([empty])
    assert first is not None
    assert first.pattern == "empty"
    violation = check_turns([call, empty, empty])
    assert violation is not None
    assert (violation.ending, violation.indexes) == ("empty_turns", (1, 2))
    assert check_turns([empty, call, empty]) is None
    assert check_turns([empty, Turn(text="x"), empty]) is None
    assert check_turns([empty, Turn(finish="length"), empty]) is None
    assert check_turns([]) is None
    assert warn_of_turns([]) is None


def test_the_same_words_three_times_without_a_call_end_it() -> None:
    turns = [Turn(text=text) for text in ("I will look.", "<think>x</think>I  will look.", "x")]
    same = turns[:2]
    second = warn_of_turns(same)
    assert second is not None
    assert second.pattern == "monologue"
    assert check_turns(turns) is None
    violation = check_turns([*same, turns[0]])
    assert violation is not None
    assert (violation.ending, violation.pattern) == ("stuck_cycle", "monologue")
    call = Turn(text="I will look.", calls=[ToolCall(id="a", name="t")])
    assert check_turns([call] * 5) is None


def test_results_are_compared_without_their_blanks() -> None:
    assert result_digest("a  b\n") == result_digest("a b")
    assert result_digest("a") != result_digest("b")
