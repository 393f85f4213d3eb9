"""Going round in circles is noticed before the next call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.llm.loop_detection import (
    Executed,
    Planned,
    Violation,
    check,
    check_turns,
    result_digest,
    turn_warning,
    warning,
)
from boyd.llm.messages import Turn
from boyd.models.investigation import ToolCall


def done(*calls: str, **fields: Any) -> list[Executed]:
    """Calls that were made: `a` gave `ra`, `a:x` gave x."""
    split = [call.partition(":")[::2] for call in calls]
    return [Executed(f"tool-{c}", c, result or f"r{c}", **fields) for c, result in split]


def plan(call: str, **fields: Any) -> Planned:
    return Planned(f"tool-{call}", call, **fields)


def played(script: list[str], **fields: Any) -> tuple[int, int, Violation | None]:
    """How many of the calls were asked for and made until a guard tripped."""
    history: list[Executed] = []
    for asked, call in enumerate(script, 1):
        name = call.partition(":")[0]
        trip = check(history, plan(name, **fields))
        if trip:
            return asked, len(history), trip
        history += done(call, **fields)
    return len(script), len(history), None


def test_the_third_identical_call_is_not_made() -> None:
    asked, made, trip = played(["a"] * 50)
    assert (asked, made) == (3, 2)
    assert trip is not None
    assert (trip.ending, trip.pattern, trip.period) == ("doom_loop", "identical", 1)
    assert trip.indexes == (0, 1, 2)
    assert trip.signatures == ("a",)
    assert "three times" in trip.sentence


def test_other_results_do_not_help_an_identical_call() -> None:
    assert played(["a:1", "a:2", "a:3"])[:2] == (3, 2)


def test_another_call_in_between_does() -> None:
    assert played(["a", "a", "b", "a", "a", "c"])[2] is None


def test_two_calls_in_turn_take_six_requests_and_five_executions() -> None:
    asked, made, trip = played(["a", "b"] * 20)
    assert (asked, made) == (6, 5)
    assert trip is not None
    assert (trip.ending, trip.pattern, trip.period) == ("stuck_cycle", "cycle", 2)
    assert trip.indexes == (0, 1, 2, 3, 4, 5)
    assert trip.signatures == ("a", "b")


@pytest.mark.parametrize(("block", "period"), [("ab", 2), ("abc", 3), ("aab", 3), ("abcd", 4)])
def test_a_round_of_two_to_four_calls_is_not_finished_a_third_time(block: str, period: int) -> None:
    asked, made, trip = played(["x", *block * 5])
    assert (asked, made) == (1 + 3 * period, 3 * period)
    assert trip is not None
    assert trip.period == period
    assert trip.indexes == tuple(range(1, 3 * period + 1))


def test_a_round_of_five_is_none() -> None:
    assert played(list("abcde") * 5)[2] is None


@pytest.mark.parametrize("changed", range(5))
def test_a_result_that_has_changed_makes_it_no_circle(changed: int) -> None:
    script = list("ababa")
    script[changed] += ":new"
    assert check(done(*script), plan("b")) is None


def test_a_call_that_cannot_be_made_is_answered_three_times_and_ends_it_the_fourth() -> None:
    history: list[Executed] = []
    for number in range(1, 4):
        assert check(history, plan("a", runnable=False)) is None
        history += done("a", runnable=False, error=f"no such tool, request {number}")
    trip = check(history, plan("a", runnable=False))
    assert trip is not None
    assert (trip.ending, trip.pattern, trip.indexes) == (
        "repeated_error",
        "repeated_error",
        (0, 1, 2, 3),
    )
    assert "no such tool" in trip.sentence


def test_another_error_or_another_call_begins_anew() -> None:
    one, two = (done("a", runnable=False, error=error) for error in ("x", "y"))
    assert check([*one, *one, *two], plan("a", runnable=False)) is None
    assert check([*one, *one, *one], plan("b", runnable=False)) is None
    assert check([*one, *done("b"), *one, *one], plan("a", runnable=False)) is None


def test_a_poll_may_be_repeated_while_its_result_changes() -> None:
    assert played([f"a:{n}" for n in range(50)], poll=True)[2] is None
    assert played(["a:1", "a:1", "a:1", "a:2"] * 10, poll=True)[2] is None


def test_a_poll_that_has_given_the_same_four_times_is_not_asked_again() -> None:
    asked, made, trip = played(["a:1", *["a:2"] * 10], poll=True)
    assert (asked, made) == (6, 5)
    assert trip is not None
    assert (trip.ending, trip.pattern) == ("doom_loop", "poll")


def test_a_poll_that_fails_ends_as_an_error_that_repeats() -> None:
    history = done("a", "a", "a", poll=True, error="timed out after 5 s")
    trip = check(history, plan("a", poll=True))
    assert trip is not None
    assert trip.ending == "repeated_error"


def test_each_guard_warns_once_before_it_trips() -> None:
    patterns = [nudge and nudge.pattern for nudge in (warning(done(*"aa")), warning(done(*"abab")))]
    assert patterns == ["identical", "cycle"]
    assert warning(done(*"a")) is None
    assert warning(done(*"aba")) is None
    assert warning(done(*"ababa")) is None
    assert warning([]) is None


def test_a_warning_of_an_error_quotes_it() -> None:
    fails = done(*"aaa", runnable=False, error="no tool `lok`")
    nudge = warning(fails)
    assert nudge is not None
    assert nudge.pattern == "repeated_error"
    assert "no tool `lok`" in nudge.text
    assert warning(fails[:2]) is None


def test_a_poll_is_warned_of_at_three() -> None:
    nudge = warning(done(*"aaa", poll=True))
    assert nudge is not None
    assert nudge.pattern == "poll"
    assert warning(done(*"aa", poll=True)) is None


def test_a_warning_is_about_any_call_of_the_last_turn() -> None:
    history = done(*"aab")
    assert warning(history, 1) is None
    nudge = warning(history, 2)
    assert nudge is not None
    assert nudge.pattern == "identical"


@given(st.lists(st.sampled_from("abc"), max_size=40), st.booleans())
def test_what_is_checked_ends_and_is_explained(script: list[str], poll: bool) -> None:
    asked, made, trip = played(script, poll=poll)
    if trip is None:
        assert made == len(script)
        return
    assert made == asked - 1
    assert trip.indexes[-1] == made
    assert len(trip.signatures) == trip.period
    assert trip.sentence.endswith(".")


def test_two_empty_turns_in_a_row_end_it_and_one_is_pointed_out() -> None:
    empty, call = Turn(text=" …"), Turn(calls=[ToolCall(id="a", name="t")])
    assert check_turns([empty]) is None
    first = turn_warning([empty])
    assert first is not None
    assert first.pattern == "empty"
    trip = check_turns([call, empty, empty])
    assert trip is not None
    assert (trip.ending, trip.indexes) == ("empty_turns", (1, 2))
    assert check_turns([empty, call, empty]) is None
    assert check_turns([empty, Turn(text="x"), empty]) is None
    assert check_turns([empty, Turn(finish="length"), empty]) is None
    assert check_turns([]) is None
    assert turn_warning([]) is None


def test_the_same_words_three_times_without_a_call_end_it() -> None:
    turns = [Turn(text=text) for text in ("I will look.", "<think>x</think>I  will look.", "x")]
    same = turns[:2]
    second = turn_warning(same)
    assert second is not None
    assert second.pattern == "monologue"
    assert check_turns(turns) is None
    trip = check_turns([*same, turns[0]])
    assert trip is not None
    assert (trip.ending, trip.pattern) == ("stuck_cycle", "monologue")
    call = Turn(text="I will look.", calls=[ToolCall(id="a", name="t")])
    assert check_turns([call] * 5) is None


def test_results_are_compared_without_their_blanks() -> None:
    assert result_digest("a  b\n") == result_digest("a b")
    assert result_digest("a") != result_digest("b")
