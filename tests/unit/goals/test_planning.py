"""Plans and other plans."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from boyd_goals.progress import (
    Need,
    backtrack,
    ensure_plan,
    is_exhausted,
    make_plan,
    next_step,
    supersede,
    tick,
)
from boyd_goals.state import ToolPlan
from goals_kit import CONFIG, a_goal, having, patch_goals

HOST = ["file_io", "shell_exec"]


def tools(plan: ToolPlan) -> list[str]:
    return [step.tool for step in plan.steps]


def statuses(plan: ToolPlan) -> list[str]:
    return [step.status for step in plan.steps]


def a_plan() -> ToolPlan:
    """One of kg_query, reason, file_io."""
    needs: list[Need] = ["knowledge", "reasoning", "external"]
    return make_plan(a_goal(), needs, has_knowledge=True, external=["file_io"])


@pytest.mark.parametrize(
    ("attempt", "needs", "has_knowledge", "expected"),
    [
        (0, [], False, ["kg_query", "similarity_search"]),
        (0, [], True, ["reason"]),
        (2, ["knowledge"], True, ["kg_query", "reason"]),
        (0, ["reasoning"], False, ["kg_query", "similarity_search", "reason"]),
        (0, ["external"], False, ["kg_query", *HOST]),
        (0, ["external"], True, HOST),
        (0, ["external", "reasoning"], True, ["reason", *HOST]),
        (1, [], False, ["memory_recall", "kg_query"]),
        (1, [], True, ["memory_recall", "reason", "kg_query"]),
        (3, ["knowledge"], True, ["memory_recall", "reason", "kg_query"]),
        (1, ["external"], False, ["memory_recall", "kg_query", *HOST]),
    ],
)
def test_even_attempts_explore_and_odd_ones_reason_first(
    attempt: int, needs: Collection[Need], has_knowledge: bool, expected: list[str]
) -> None:
    plan = make_plan(a_goal(), needs, has_knowledge=has_knowledge, external=HOST, attempt=attempt)

    assert tools(plan) == expected
    assert plan.strategy == f"Attempt {attempt + 1}: {' → '.join(expected)}"
    assert (plan.attempt, plan.status) == (attempt, "Active")


def test_with_nothing_to_do_a_plan_looks_up_what_is_known() -> None:
    assert tools(make_plan(a_goal(), ["external"], has_knowledge=True)) == ["kg_query"]


@pytest.mark.parametrize(
    ("attempt", "used", "first"),
    [
        (0, {"memory_recall": 1}, "Pending"),
        (1, {}, "Pending"),
        (1, {"memory_recall": 1}, "Skipped"),
    ],
)
def test_another_plan_skips_a_first_step_that_was_tried(
    attempt: int, used: dict[str, int], first: str
) -> None:
    plan = make_plan(a_goal(used=used), [], has_knowledge=True, attempt=attempt)

    assert plan.steps[0].status == first
    assert next_step(plan) is not None


def test_the_only_step_is_never_skipped() -> None:
    plan = make_plan(a_goal(used={"kg_query": 1}), ["external"], has_knowledge=True, attempt=2)

    assert statuses(plan) == ["Pending"]


def test_a_step_advances_only_by_its_own_tool() -> None:
    plan = a_plan()

    assert tick(plan, "reason") is plan
    assert statuses(tick(plan, "kg_query")) == ["Completed", "Pending", "Pending"]


def test_a_plan_is_complete_with_its_last_step_though_the_first_was_skipped() -> None:
    plan = make_plan(a_goal(used={"memory_recall": 1}), [], has_knowledge=False, attempt=1)
    plan = tick(plan, "kg_query")

    assert (statuses(plan), plan.status) == (["Skipped", "Completed"], "Completed")
    assert tick(plan, "kg_query") is plan
    assert backtrack(plan, "kg_query", "late") is plan


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("reason", ["Completed", "Failed", "Skipped"]),
        ("shell_exec", ["Completed", "Skipped", "Skipped"]),
    ],
)
def test_any_tool_that_fails_fails_the_plan(tool: str, expected: list[str]) -> None:
    plan = backtrack(tick(a_plan(), "kg_query"), tool, "why")

    assert (statuses(plan), plan.status, plan.reason) == (expected, "Failed", "why")
    assert next_step(plan) is None


def test_a_superseded_plan_has_nothing_left_to_do() -> None:
    plan = supersede(tick(a_plan(), "kg_query"), "split")

    assert (statuses(plan), plan.status) == (["Completed", "Skipped", "Skipped"], "Superseded")
    assert supersede(plan, "again") is plan


@pytest.mark.parametrize(("failed", "given_up"), [(0, False), (2, False), (3, True), (4, True)])
def test_three_failed_plans_are_enough(failed: int, given_up: bool) -> None:
    assert is_exhausted(a_goal(failed_plans=failed), CONFIG) is given_up


def test_a_goal_has_one_plan_at_a_time_and_the_next_is_another_attempt() -> None:
    session, [id] = having("find mammals")
    first = ensure_plan(session, id, [], has_knowledge=True)
    failed = backtrack(first.plans[id], "reason", "why")
    second = ensure_plan(
        first.model_copy(update={"plans": {id: failed}}), id, [], has_knowledge=True
    )

    assert ensure_plan(first, id, [], has_knowledge=True) is first
    assert (first.plans[id].attempt, second.plans[id].attempt) == (0, 1)


@pytest.mark.parametrize("status", ["Suspended", "Completed", "Failed"])
def test_no_plan_is_made_for_a_goal_that_nobody_works_on(status: str) -> None:
    session, [id] = having("find mammals")
    session = patch_goals(session, id, status=status)

    assert ensure_plan(session, id, [], has_knowledge=True) is session
    assert ensure_plan(session, "unknown", [], has_knowledge=True) is session
