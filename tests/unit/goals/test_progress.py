"""How far a goal has got."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.plugins.goals.progress import evaluate, is_met, is_metadata, knowledge_words, ratio
from boyd.plugins.goals.state import Config
from goals_kit import CONFIG, a_goal

FOUR = "alpha beta gamma delta"


@pytest.mark.parametrize(
    ("matched", "graph", "output", "progress", "after"),
    [
        ([], [], "", "NoChange", []),
        ([], [], "alpha", "Advanced", ["alpha"]),
        ([], ["alpha"], "", "Advanced", ["alpha"]),
        ([], ["alpha"], "alpha", "Advanced", ["alpha"]),
        ([], ["alpha"], "betas", "Completed", ["alpha", "beta"]),
        ([], ["gamma", "delta", "more"], "", "Completed", ["gamma", "delta"]),
        (["alpha"], ["alpha"], "alpha", "NoChange", ["alpha"]),
        (["alpha"], [], "", "NoChange", ["alpha"]),
        (["alpha"], [], "beta", "Completed", ["alpha", "beta"]),
        (["alpha"], [], "alphabet", "NoChange", ["alpha"]),
        (["alpha"], [], "criteria: beta", "NoChange", ["alpha"]),
        (["alpha"], [], '"goal:1" -> agent:has_description -> "desc:beta"', "NoChange", ["alpha"]),
    ],
)
def test_a_goal_gets_on_when_more_is_matched_than_ever_before(
    matched: list[str], graph: list[str], output: str, progress: str, after: list[str]
) -> None:
    goal = a_goal(FOUR, matched=matched)

    assert evaluate(goal, graph, output, True, CONFIG) == (progress, after)


@pytest.mark.parametrize(
    ("completion", "count", "progress"),
    [
        (0.5, 1, "Advanced"),
        (0.5, 2, "Completed"),
        (0.75, 2, "Advanced"),
        (0.75, 3, "Completed"),
        (1.0, 3, "Advanced"),
        (1.0, 4, "Completed"),
        (0.51, 2, "Advanced"),
        (0.0, 1, "Completed"),
        (0.0, 0, "NoChange"),
    ],
)
def test_the_ratio_that_completes_is_configured(
    completion: float, count: int, progress: str
) -> None:
    config = Config(completion_ratio=completion)
    found = FOUR.split()[:count]

    assert evaluate(a_goal(FOUR), found, "", True, config).progress == progress


def test_a_failed_tool_tells_nothing() -> None:
    goal = a_goal(FOUR, matched=["alpha"])

    assert evaluate(goal, FOUR.split(), FOUR, False, CONFIG) == ("Failed", ["alpha"])


def test_criteria_without_keywords_are_never_met() -> None:
    goal = a_goal("...")

    assert evaluate(goal, ["alpha"], "alpha", True, CONFIG) == ("NoChange", [])
    assert ratio(goal, ["alpha"]) == 0.0


def test_the_criteria_count_and_not_the_description() -> None:
    goal = a_goal("find alpha", criteria="beta")

    assert evaluate(goal, ["alpha"], "", True, CONFIG).progress == "NoChange"
    assert evaluate(goal, ["beta"], "", True, CONFIG).progress == "Completed"


@given(st.lists(st.sampled_from([*FOUR.split(), "other"]), max_size=8))
def test_what_was_found_stays_found_and_the_second_time_is_no_progress(found: list[str]) -> None:
    goal = a_goal(FOUR)
    first = evaluate(goal, found, "", True, CONFIG)
    again = evaluate(goal.patched({"matched": first.matched}), found, "", True, CONFIG)

    assert again.matched == first.matched
    assert again.progress in ("NoChange", "Completed")
    assert (first.progress == "Completed") == is_met(goal, first.matched, CONFIG)


@pytest.mark.parametrize("label", ["goal:1", "Status:active", "episode:x", "agent:said"])
def test_metadata_is_no_knowledge(label: str) -> None:
    assert is_metadata(label)
    assert not is_metadata(f"about {label}")


def test_lines_about_the_goal_itself_are_passed_over() -> None:
    assert knowledge_words("Status:active secret\nplanets\n x desc:secret") == {"planet"}
