"""Leanings and the shadow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd_goals.psyche import (
    ARCHETYPES,
    ToolInsight,
    action_text,
    check_shadow,
    count_encounter,
    evolve,
    new_psyche,
)
from boyd_goals.state import Danger, Psyche, ShadowPattern


def tool_insight(tool: str, successes: int, uses: int, *, ineffective: bool = False) -> ToolInsight:
    return ToolInsight(tool=tool, uses=uses, successes=successes, ineffective=ineffective)


@pytest.mark.parametrize(
    ("insights", "sage"),
    [
        ([], 0.7),
        ([tool_insight("reason", 2, 2)], 0.72),
        ([tool_insight("reason", 1, 1)], 0.7),
        ([tool_insight("reason", 7, 10)], 0.7),
        ([tool_insight("reason", 71, 100)], 0.72),
        ([tool_insight("reason", 0, 2, ineffective=True)], 0.68),
        ([tool_insight("reason", 2, 2), tool_insight("kg_query", 2, 2)], 0.74),
        ([tool_insight("reason", 2, 2), tool_insight("kg_query", 0, 2, ineffective=True)], 0.7),
        ([tool_insight("unknown", 2, 2)], 0.7),
    ],
)
def test_weights_shift_with_what_works(insights: list[ToolInsight], sage: float) -> None:
    psyche = evolve(Psyche(), insights, 0, 5)

    assert psyche.weights["sage"] == sage
    assert psyche.rebalance_count == (sage != 0.7)
    assert psyche.last_evolution_cycle == 5


@pytest.mark.parametrize(
    ("weight", "insight", "expected"),
    [
        (0.94, tool_insight("reason", 2, 2), 0.95),
        (0.95, tool_insight("reason", 2, 2), 0.95),
        (0.11, tool_insight("reason", 0, 2, ineffective=True), 0.1),
        (0.1, tool_insight("reason", 0, 2, ineffective=True), 0.1),
    ],
)
def test_weights_stay_in_their_bounds(weight: float, insight: ToolInsight, expected: float) -> None:
    before = Psyche.model_validate({"weights": {**Psyche().weights, "sage": weight}})
    psyche = evolve(before, [insight], 0, 5)

    assert psyche.weights["sage"] == expected
    assert psyche.rebalance_count == (weight != expected)


@pytest.mark.parametrize(
    ("encounters", "abandoned", "individuation"),
    [(0, 0, 0.1), (1, 0, 0.11), (0, 2, 0.12), (4, 1, 0.15), (5, 0, 0.15), (90, 3, 0.15)],
)
def test_individuation_grows_with_what_the_shadow_met(
    encounters: int, abandoned: int, individuation: float
) -> None:
    psyche = evolve(Psyche(shadow_encounters=encounters), [], abandoned, 5)

    assert psyche.individuation == individuation
    assert psyche.shadow_encounters == encounters + abandoned


def test_individuation_ends_at_one() -> None:
    assert evolve(Psyche(individuation=0.99, shadow_encounters=5), [], 0, 5).individuation == 1.0


@pytest.mark.parametrize("cycle", [4, 5])
def test_the_psyche_evolves_once_for_a_cycle(cycle: int) -> None:
    psyche = evolve(Psyche(), [tool_insight("reason", 2, 2)], 1, 5)

    assert evolve(psyche, [tool_insight("reason", 2, 2)], 1, cycle) is psyche


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(sorted(ARCHETYPES)), st.booleans()), max_size=20),
        max_size=30,
    )
)
def test_weights_always_stay_within_bounds(cycles: list[list[tuple[str, bool]]]) -> None:
    psyche = Psyche()
    for number, tools in enumerate(cycles, 1):
        insights = [tool_insight(tool, 3 * good, 3, ineffective=not good) for tool, good in tools]
        psyche = evolve(psyche, insights, len(tools), number)

    assert all(0.1 <= weight <= 0.95 for weight in psyche.weights.values())
    assert 0.1 <= psyche.individuation <= 1


@pytest.mark.parametrize(
    ("tool", "danger", "params", "vetoed", "bias"),
    [
        ("kg_query", "Safe", {"symbol": "x"}, False, 0.0),
        ("shell_exec", "Danger", {"command": "ls"}, False, 0.3),
        ("http_fetch", "Cautious", {"url": "http://x"}, False, 0.0),
        ("shell_exec", "Danger", {"command": "RM   -rf /"}, True, 0.3),
        ("shell_exec", "Danger", {"argv": ["rm", "-rf", "/"]}, True, 0.3),
        ("shell_exec", "Danger", {"command": "rm\n-rf /"}, True, 0.3),
        ("sql", "Safe", {"query": {"text": "Drop Table users"}}, True, 0.0),
        ("user_interact", "Safe", {"question": "shall I delete all?"}, True, 0.0),
    ],
)
def test_the_default_shadow_stops_what_destroys(
    tool: str, danger: Danger, params: dict[str, Any], vetoed: bool, bias: float
) -> None:
    verdict = check_shadow(new_psyche(), tool, danger, action_text(tool, params))

    assert bool(verdict.veto) is vetoed
    assert verdict.bias == bias


@pytest.mark.parametrize(
    ("threshold", "danger", "matches"),
    [
        ("Safe", "Safe", True),
        ("Cautious", "Safe", False),
        ("Cautious", "Cautious", True),
        ("Cautious", "Danger", True),
        ("Danger", "Cautious", False),
        (None, "Danger", False),
    ],
)
def test_danger_counts_from_its_threshold(
    threshold: Danger | None, danger: Danger, matches: bool
) -> None:
    pattern = ShadowPattern(name="p", danger=threshold, triggers=["", " "])

    assert bool(check_shadow(Psyche(shadow=[pattern]), "t", danger, "text").veto) is matches


def test_the_first_veto_wins_and_biases_are_summed() -> None:
    def pattern(name: str, veto: bool, severity: float) -> ShadowPattern:
        return ShadowPattern(name=name, triggers=["x"], veto=veto, severity=severity)

    patterns = [pattern("a", False, 0.25), pattern("b", True, 1), pattern("c", True, 1)]
    patterns.append(pattern("d", False, 0.5))
    verdict = check_shadow(Psyche(shadow=patterns), "t", "Safe", "X")

    assert verdict.veto == patterns[1]
    assert (verdict.bias, [bias.name for bias in verdict.against]) == (0.75, ["a", "d"])


def test_without_a_psyche_nothing_is_stopped() -> None:
    assert check_shadow(None, "shell_exec", "Danger", "rm -rf /") == (None, [])


def test_encounters_are_counted() -> None:
    assert count_encounter(count_encounter(Psyche())).shadow_encounters == 2
