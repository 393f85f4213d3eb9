"""When an investigation is told to stop and think."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.llm.messages import ToolOutcome, ToolUse, is_error
from boyd.llm.reflection import BASES, MAX_ERRORS, OODAReflection, ReflectionAction
from boyd.llm.synthesis import digest
from boyd.models.investigation import Category, Profile

ACTIVE: list[Profile] = ["research", "general"]


class Told:
    """An investigation of which each call is new, unless its arguments are given."""

    def __init__(
        self,
        profile: Profile = "research",
        category: Category = "search",
        limit: int | None = None,
    ) -> None:
        self.reflection = OODAReflection(profile, limit=limit)
        self.category = category
        self.made = 0

    def turn(self, *results: str, **fields: Any) -> ReflectionAction:
        """A turn whose calls end so: `ok`, `bad` or a status that is neither."""
        uses, outcomes = [], []
        given_text = fields.pop("text", None)
        for result in results:
            self.made += 1
            use = {"arguments": {"q": self.made}, "category": self.category, **fields}
            uses.append(ToolUse(id=f"c{self.made}", name="look", **use))
            status = {"ok": "succeeded", "bad": "failed"}.get(result, result)
            text = given_text or f"text {self.made}"
            outcomes.append(ToolOutcome(f"c{self.made}", status, text, result == "bad"))  # type: ignore[arg-type]
        return self.reflection.observe(uses, outcomes)


def test_research_must_answer_from_its_evidence_after_three_calls() -> None:
    dialogue = Told()
    kinds = [dialogue.turn("ok").kind for _ in range(2)]
    action = dialogue.turn("ok")
    assert kinds == ["none", "micro"]
    assert (action.kind, action.strip_tools, action.terminate) == ("synthesis", True, False)
    assert action.reason == "threshold"
    assert action.inject_message is not None
    assert all(f"text {n}" in action.inject_message for n in (1, 2, 3))


def test_base_three_and_two_errors_leave_one_success() -> None:
    dialogue = Told()
    assert [dialogue.turn("bad").kind, dialogue.turn("bad").kind] == ["none", "none"]
    assert dialogue.turn("ok").kind == "synthesis"


def test_errors_after_a_success_count_as_well() -> None:
    dialogue = Told()
    assert [dialogue.turn(result).kind for result in ("ok", "bad")] == ["none", "micro"]
    assert dialogue.turn("bad").kind == "synthesis"


@pytest.mark.parametrize("profile", ACTIVE)
@pytest.mark.parametrize("errors", range(12))
def test_the_threshold_is_the_base_less_the_errors_and_one_at_least(
    profile: Profile, errors: int
) -> None:
    dialogue = Told(profile)
    if errors:
        errors = min(errors, MAX_ERRORS - 1)
        assert dialogue.turn(*["bad"] * errors).kind == "none"
    threshold = max(1, BASES[profile] - errors)
    kinds = [dialogue.turn("ok").kind for _ in range(threshold)]
    assert kinds[-1] == "synthesis"
    assert "synthesis" not in kinds[:-1]
    half = -(-threshold // 2)
    assert kinds.count("micro") == (1 if half < threshold else 0)
    if "micro" in kinds:
        assert kinds.index("micro") == half - 1


def test_calls_are_counted_and_not_turns() -> None:
    assert Told().turn("ok", "ok", "ok").kind == "synthesis"


def test_synthesis_goes_before_the_half_when_both_are_due_in_one_turn() -> None:
    dialogue = Told("general")
    action = dialogue.turn(*["ok"] * 8)
    assert action.kind == "synthesis"
    assert action.stats["microReflected"] is False


def test_the_note_at_half_of_the_calls_is_given_once() -> None:
    dialogue = Told("general")
    dialogue.turn(*["ok"] * 3)
    kinds = [dialogue.turn(result).kind for result in ("ok", "bad", "bad", "bad")]
    assert kinds == ["micro", "none", "none", "none"]
    assert dialogue.turn("bad").kind == "synthesis"


@pytest.mark.parametrize(("profile", "limit", "half"), [("execution", 20, 10), ("general", 4, 2)])
def test_the_half_is_that_of_the_calls_that_there_are(
    profile: Profile, limit: int, half: int
) -> None:
    dialogue = Told(profile, limit=limit)
    actions = [dialogue.turn("ok") for _ in range(limit - 1)]
    kinds = [action.kind for action in actions]

    assert (kinds.count("micro"), kinds.index("micro")) == (1, half - 1)
    assert f"{half} of {limit}" in str(actions[half - 1].inject_message)


def test_execution_gets_no_early_note_at_half_of_the_calls() -> None:
    dialogue = Told("execution", limit=100)
    assert "micro" not in [dialogue.turn("ok").kind for _ in range(30)]


@pytest.mark.parametrize("profile", ACTIVE)
def test_waiting_uses_no_calls_up(profile: Profile) -> None:
    dialogue = Told(profile)
    kinds = {dialogue.turn("ok", arguments={"job": 1}, poll=True).kind for _ in range(30)}
    assert kinds == {"none"}


@pytest.mark.parametrize("status", ["denied", "expired", "withdrawn", "interrupted", "skipped"])
def test_denials_and_interruptions_count_neither_as_success_nor_as_error(status: str) -> None:
    dialogue = Told()
    for _ in range(10):
        assert dialogue.turn(status).kind == "none"
    assert (dialogue.reflection.stats["successes"], dialogue.reflection.stats["errors"]) == (0, 0)
    assert dialogue.reflection.evidence == []


def test_errors_are_failures_and_refusals_and_not_what_a_person_has_denied() -> None:
    assert is_error("failed")
    assert is_error("refused")
    assert not is_error("succeeded")
    assert not is_error("denied")


@pytest.mark.parametrize("profile", ACTIVE)
def test_errors_alone_never_reflect_before_there_are_six(profile: Profile) -> None:
    dialogue = Told(profile)
    kinds = [dialogue.turn("bad").kind for _ in range(MAX_ERRORS)]
    assert kinds == ["none"] * (MAX_ERRORS - 1) + ["synthesis"]
    action = Told(profile).turn(*["bad"] * MAX_ERRORS)
    assert action.reason == "max_errors"
    assert action.strip_tools
    assert action.inject_message is not None
    assert "cannot proceed" in action.inject_message
    assert "text 6" in action.inject_message


def test_the_same_call_anywhere_before_is_pointed_out() -> None:
    dialogue = Told("general")
    dialogue.turn("ok", arguments={"q": "a", "n": 1})
    dialogue.turn("ok", arguments={"q": "b"})
    action = dialogue.turn("ok", arguments={"n": 1.0, "q": "a"})
    assert action.kind == "duplicate"
    assert not action.strip_tools
    assert action.inject_message is not None
    assert "look" in action.inject_message


def test_the_same_call_twice_in_one_turn_is_pointed_out() -> None:
    dialogue = Told("general")
    assert dialogue.turn("ok", "ok", arguments={}).kind == "duplicate"


def test_asking_again_is_what_a_poll_is_for() -> None:
    dialogue = Told("general")
    assert [dialogue.turn("ok", arguments={}, poll=True).kind for _ in range(3)] == ["none"] * 3


def test_notes_due_in_one_turn_are_one_message() -> None:
    dialogue = Told("general")
    dialogue.turn("ok", "ok", "ok", arguments={"q": 1})
    action = dialogue.turn("ok", arguments={"q": 1})
    assert action.kind == "micro"
    assert action.inject_message is not None
    assert "already made this call" in action.inject_message
    assert "half of your tool calls" in action.inject_message


def test_two_turns_without_an_answer_end_in_a_digest() -> None:
    dialogue = Told()
    dialogue.turn("ok", "ok", "ok")
    retry = dialogue.turn("skipped")
    assert (retry.kind, retry.strip_tools, retry.terminate) == ("retry", True, False)
    assert retry.inject_message
    last = dialogue.reflection.observe([], [])
    assert (last.kind, last.terminate, last.inject_message) == ("digest", True, None)
    assert "text 2" in digest(dialogue.reflection.evidence, str(last.reason))


def test_execution_is_advised_once_and_keeps_its_tools() -> None:
    dialogue = Told("execution", "execution")
    actions = [dialogue.turn("ok") for _ in range(20)]
    kinds = [action.kind for action in actions]
    assert kinds.count("advice") == 1
    assert kinds.index("advice") == BASES["execution"] - 1
    assert not any(action.strip_tools or action.terminate for action in actions)
    assert "verified" in str(actions[BASES["execution"] - 1].inject_message)


def test_failing_execution_gets_one_advice_and_keeps_its_tools() -> None:
    dialogue = Told("execution")
    actions = [dialogue.turn("bad") for _ in range(MAX_ERRORS + 3)]
    assert [action.kind for action in actions].count("advice") == 1
    assert not any(action.strip_tools for action in actions)


def test_off_counts_and_says_nothing() -> None:
    dialogue = Told("off")
    actions = [dialogue.turn("ok", arguments={}) for _ in range(20)]
    assert {action.kind for action in actions} == {"none"}
    assert all(action.inject_message is None for action in actions)
    assert actions[-1].stats["duplicates"] == 19
    assert dialogue.reflection.evidence


@pytest.mark.parametrize(
    ("category", "word"),
    [("search", "cite"), ("execution", "verified"), ("delegation", "who did what")],
)
def test_the_instruction_fits_the_category(category: Category, word: str) -> None:
    action = Told(category=category).turn("ok", "ok", "ok")
    assert action.inject_message is not None
    assert word in action.inject_message


def test_results_that_say_the_same_again_are_enough() -> None:
    dialogue = Told("general")
    text = " ".join(f"word{n}" for n in range(40))
    kinds = [dialogue.turn("ok", text=f"{text} {n}").kind for n in range(5)]
    assert kinds == ["none", "none", "stale", "micro", "synthesis"]
    assert dialogue.reflection.stats["reason"] == "no_novelty"


def test_calls_and_results_must_belong_together() -> None:
    reflection = OODAReflection("general")
    use = ToolUse("a", "look", {}, "search")
    with pytest.raises(ValueError, match="expected the result of"):
        reflection.observe([use], [ToolOutcome("b", "succeeded", "", False)])
    with pytest.raises(ValueError, match="shorter"):
        reflection.observe([use], [])


def test_an_unreadable_state_is_refused_and_one_of_another_release_is_not() -> None:
    with pytest.raises(ValueError, match="errors"):
        OODAReflection("general", {"errors": "many"})
    assert OODAReflection("general", {"errors": 2, "unheardOf": 1}).stats["threshold"] == 6


TURNS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["ok", "bad", "denied"]), st.integers(0, 4), st.text(max_size=9)),
        max_size=3,
    ),
    max_size=12,
)


@given(TURNS, st.sampled_from(["research", "general", "execution", "off"]))
def test_a_reflection_that_travels_as_json_does_the_same(turns: Any, profile: Profile) -> None:
    stays, travels = OODAReflection(profile), OODAReflection(profile)
    for turn in turns:
        uses = [ToolUse(str(n), "t", {"n": use[1]}, "search") for n, use in enumerate(turn)]
        results = [
            ToolOutcome(str(n), "succeeded" if status == "ok" else "failed", text, status == "bad")
            for n, (status, _, text) in enumerate(turn)
        ]
        travels = OODAReflection(profile, json.loads(json.dumps(travels.state)))
        action = stays.observe(uses, results)
        assert travels.observe(uses, results) == action
        assert action.inject_message or not (action.strip_tools and not action.terminate)
        if profile in {"execution", "off"}:
            assert not action.strip_tools
    assert travels.state == stays.state
    assert travels.evidence == stays.evidence


@given(TURNS)
def test_no_profile_goes_on_with_its_tools_after_the_threshold(turns: Any) -> None:
    dialogue = Told()
    for turn in turns:
        action = dialogue.turn(*[status for status, _, _ in turn])
        stats = action.stats
        reached = int(str(stats["successes"])) >= int(str(stats["threshold"]))
        assert action.strip_tools == (reached or stats["reason"] is not None)
