"""The outcome of a decision is applied once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd_goals.goal_tree import decompose, set_status
from boyd_goals.judgement import StepFinding
from boyd_goals.outcome import (
    DecisionOutcome,
    ModelVerdict,
    apply_outcome,
    begin_cycle,
    check_outcome,
)
from boyd_goals.progress import ensure_plan
from boyd_goals.psyche import new_psyche
from boyd_goals.sessions import claim
from boyd_goals.state import Config, GoalEvidence, Score
from goals_kit import CONFIG, NOW, check, empty, having, later, report_outcome, stall_goals

FOUR = "alpha beta gamma delta"


def outcome(cycle: int, goal: str, **fields: Any) -> DecisionOutcome:
    defaults: dict[str, Any] = {"cycle": cycle, "goal": goal, "tool": "kg_query", "state": "done"}
    if "output" in fields:
        defaults["findings"] = [StepFinding(lines=[fields["output"]], is_asked=True)]
    return DecisionOutcome(**{**defaults, **fields})


def test_the_first_cycle_is_one() -> None:
    session = begin_cycle(empty(), later(1))

    assert (session.cycle, session.applied, session.updated_at) == (1, 0, later(1))


def test_a_cycle_that_finds_more_is_progress() -> None:
    session, [id] = having(FOUR)
    session = report_outcome(report_outcome(session, id), id, output="alpha")
    goal = session.goals[id]

    assert (goal.cycles_worked, goal.last_progress_cycle, goal.matched) == (2, 2, ["alpha"])
    assert [decision.progress for decision in session.decisions] == ["NoChange", "Advanced"]
    assert [
        decision.found for decision in report_outcome(session, id, output="alpha").decisions
    ] == [
        [],
        ["alpha"],
        [],
    ]
    assert session.applied == 2


def test_a_goal_whose_criteria_are_met_is_completed_with_the_step_the_evidence_and_the_result() -> (
    None
):
    session, [id] = having(FOUR)
    session = report_outcome(report_outcome(session, id), id, output="beta follows alpha")
    goal = session.goals[id]

    assert (goal.status, goal.reason) == (
        "Completed",
        "the criteria are met: alpha beta gamma delta by kg_query in cycle 2",
    )
    assert goal.evidence == [
        GoalEvidence(criterion=FOUR, cycle=2, tool="kg_query", text="beta follows alpha")
    ]
    assert goal.result == "beta follows alpha"
    assert session.decisions[-1].progress == "Completed"
    assert session.decisions[-1].found == ["alpha", "beta"]
    check(session, CONFIG)


def test_words_that_never_meet_complete_no_goal() -> None:
    session, [id] = having(FOUR)
    for word in FOUR.split():
        session = report_outcome(session, id, output=word)

    assert [decision.progress for decision in session.decisions] == ["Advanced"] * 4
    assert (session.goals[id].status, session.goals[id].evidence) == ("Active", [])


def test_each_criterion_is_fulfilled_by_a_step_of_its_own() -> None:
    session, [id] = having("alpha beta, gamma delta")
    session = report_outcome(session, id, output="alpha beta")
    assert (session.goals[id].status, session.goals[id].result) == ("Active", None)
    session = report_outcome(session, id, tool="reason", output="delta of gamma")
    goal = session.goals[id]

    assert [(evidence.criterion, evidence.tool, evidence.cycle) for evidence in goal.evidence] == [
        ("alpha beta", "kg_query", 1),
        ("gamma delta", "reason", 2),
    ]
    assert goal.result == "alpha beta\ndelta of gamma"


VERDICT = ModelVerdict(
    is_met=True,
    answer="It is alpha.",
    evidence=[GoalEvidence(criterion=FOUR, cycle=1, tool="kg_query", text="something")],
)


def test_the_verdict_of_the_model_decides_either_way() -> None:
    session, [id] = having(FOUR)
    met = report_outcome(session, id, output="nothing of the kind", verdict=VERDICT).goals[id]
    unmet = report_outcome(session, id, output=FOUR, verdict=ModelVerdict(is_met=False))
    silent = report_outcome(session, id, verdict=VERDICT.patched({"answer": ""})).goals[id]

    assert (met.status, met.result, met.evidence) == (
        "Completed",
        "It is alpha.",
        VERDICT.evidence,
    )
    assert (silent.status, silent.result) == ("Completed", "something")
    assert unmet.goals[id].status == "Active"
    assert unmet.decisions[-1].progress == "Advanced"


def test_one_record_says_what_was_decided_and_what_came_of_it() -> None:
    session, [id] = having(FOUR)
    session = report_outcome(
        session,
        id,
        tool="reason",
        params_digest="d",
        score=Score(base=0.98),
        output="x" * 300,
        duration=1.5,
    )
    [record] = session.decisions

    assert (record.cycle, record.goal, record.tool) == (1, id, "reason")
    assert (record.params_digest, record.breakdown, record.progress) == (
        "d",
        Score(base=0.98).breakdown,
        "NoChange",
    )
    assert (record.detail, record.at, record.duration) == ("x" * 197 + "...", NOW, 1.5)


def test_the_last_three_tools_and_all_uses_are_remembered() -> None:
    session, [id] = having(FOUR)
    for tool in ("a", "b", "a", "c"):
        session = report_outcome(session, id, tool=tool)

    assert session.goals[id].recent == ["b", "a", "c"]
    assert session.goals[id].used == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(("failures", "status"), [(1, "Active"), (2, "Active"), (3, "Failed")])
def test_a_goal_fails_after_three_failed_plans(failures: int, status: str) -> None:
    session, [id] = having(FOUR)
    for _ in range(failures):
        session = ensure_plan(session, id, [], has_knowledge=True)
        session = report_outcome(session, id, "failed", tool="reason", output="no rule")
        assert session.plans[id].status == "Failed"
        assert session.decisions[-1].progress == "Failed"

    goal = session.goals[id]
    assert (goal.status, goal.failed_plans) == (status, failures)
    assert session.plans[id].attempt == failures - 1
    if status == "Failed":
        assert goal.reason == "backtracking exhausted: reason failed: no rule"
    check(session, CONFIG)


def test_failures_are_counted_though_there_was_no_plan() -> None:
    session, [id] = having(FOUR)
    for _ in range(3):
        session = report_outcome(session, id, "failed")

    assert session.goals[id].reason == "backtracking exhausted: kg_query failed"


def test_a_sub_goal_that_fails_lets_the_goal_above_go_on() -> None:
    session, [id] = having("alpha, beta")
    session = report_outcome(stall_goals(session, id), id)
    session = decompose(session, id, NOW, CONFIG)
    for child in session.goals[id].children:
        for _ in range(3):
            session = report_outcome(session, child, "failed")

    assert session.goals[id].status == "Active"
    check(session, CONFIG)


@pytest.mark.parametrize(("state", "progress"), [("vetoed", None), ("pending", "Pending")])
def test_a_veto_or_an_approval_is_neither_progress_nor_failure(
    state: str, progress: str | None
) -> None:
    session, [id] = having(FOUR)
    before = ensure_plan(session, id, [], has_knowledge=True)
    after = report_outcome(before, id, state, tool="reason", output=FOUR)
    goal = after.goals[id]

    assert (goal.cycles_worked, goal.failed_plans, goal.matched) == (0, 0, [])
    assert (goal.status, after.plans) == ("Active", before.plans)
    assert (goal.recent, goal.used) == (["reason"], {"reason": 1})
    assert after.decisions[-1].progress == progress


def test_a_veto_is_an_encounter_with_the_shadow() -> None:
    session, [id] = having(FOUR)
    session = session.model_copy(update={"psyche": new_psyche()})
    session = report_outcome(report_outcome(session, id, "vetoed"), id, "pending")

    assert session.psyche
    assert session.psyche.shadow_encounters == 1


def test_an_answered_approval_is_applied_while_another_worker_holds_the_goal() -> None:
    session, [id] = having(FOUR)
    session = report_outcome(session, id, "pending", tool="reason")
    session, _ = claim(session, "another", NOW, CONFIG)
    answer = outcome(1, id, tool="reason", output="alpha")
    after = apply_outcome(session, answer, NOW, CONFIG)

    assert after.goals[id].used == {"reason": 1}
    assert after.goals[id].matched == ["alpha"]
    assert after.goals[id].owner == "another"
    assert [decision.progress for decision in after.decisions] == ["Advanced"]
    assert apply_outcome(after, answer, NOW, CONFIG) is after


def test_a_step_of_the_plan_that_finds_nothing_is_no_progress() -> None:
    session, [id] = having(FOUR)
    session = ensure_plan(session, id, ["knowledge"], has_knowledge=False)
    session = report_outcome(
        report_outcome(session, id, tool="kg_query"), id, tool="similarity_search"
    )

    assert [decision.progress for decision in session.decisions] == ["NoChange", "NoChange"]
    assert session.plans[id].status == "Completed"
    assert session.goals[id].last_progress_cycle == 0


def test_progress_takes_the_flag_away() -> None:
    session, [id] = having(FOUR, stalled=True)

    assert report_outcome(session, id).goals[id].stalled
    assert not report_outcome(session, id, output="alpha").goals[id].stalled


@pytest.mark.parametrize("state", ["done", "failed", "vetoed", "pending"])
def test_an_outcome_applied_twice_changes_nothing(state: str) -> None:
    session, [id] = having(FOUR)
    result = outcome(1, id, state=state, output="alpha")
    once = apply_outcome(session, result, NOW, CONFIG)

    assert check_outcome(once, result, CONFIG) == "duplicate"
    assert apply_outcome(once, result, later(9), CONFIG) is once


def test_cycles_may_end_in_another_order_than_they_began_in() -> None:
    session, [id] = having(FOUR)
    for cycle in (2, 1, 3):
        session = apply_outcome(session, outcome(cycle, id), NOW, CONFIG)

    assert [decision.cycle for decision in session.decisions] == [1, 2, 3]
    assert (session.goals[id].cycles_worked, session.applied, session.cycle) == (3, 3, 3)


def test_a_lower_fence_is_refused() -> None:
    session, [id] = having(FOUR)
    session, _ = claim(session, "slow", NOW, CONFIG)
    session, _ = claim(session, "fast", later(400), CONFIG)
    slow, fast = outcome(1, id, fence=1), outcome(2, id, fence=2)

    assert check_outcome(session, slow, CONFIG) == "stale"
    assert apply_outcome(session, slow, NOW, CONFIG) is session
    after = apply_outcome(session, fast, NOW, CONFIG)
    assert (after.goals[id].cycles_worked, after.goals[id].owner) == (1, None)
    assert check_outcome(after, slow, CONFIG) == "stale"


def test_a_goal_that_is_not_there_is_refused() -> None:
    assert check_outcome(empty(), outcome(1, "1"), CONFIG) == "unknown-goal"
    assert apply_outcome(empty(), outcome(1, "1"), NOW, CONFIG) == empty()


@pytest.mark.parametrize("status", ["Suspended", "Completed"])
@pytest.mark.parametrize("state", ["done", "failed"])
def test_an_outcome_does_not_overwrite_a_status_set_meanwhile(status: Any, state: str) -> None:
    session, [id] = having(FOUR, failed_plans=2)
    session = set_status(session, id, status, NOW, CONFIG, reason="a person said so")
    session = report_outcome(session, id, state, output=FOUR)

    assert session.goals[id].status == status
    assert session.goals[id].cycles_worked == 1


def test_only_the_last_decisions_are_remembered_and_older_cycles_are_over() -> None:
    config = Config(max_decisions=3)
    session, [id] = having(FOUR)
    for cycle in (5, 3, 2, 4, 6):
        session = apply_outcome(session, outcome(cycle, id), NOW, config)

    assert [decision.cycle for decision in session.decisions] == [4, 5, 6]
    for cycle in range(1, 7):
        assert check_outcome(session, outcome(cycle, id), config) == "duplicate"


@given(
    st.lists(
        st.tuples(
            st.integers(1, 6),
            st.sampled_from(["done", "failed", "vetoed", "pending"]),
            st.integers(0, 2),
            st.sampled_from(FOUR.split()),
        ),
        max_size=25,
    )
)
def test_any_redelivery_in_any_order_counts_each_cycle_once(
    deliveries: list[tuple[int, str, int, str]],
) -> None:
    session, [id] = having(FOUR, fence=1)
    for cycle, state, fence, output in deliveries:
        result = outcome(cycle, id, state=state, fence=fence, output=output)
        after = apply_outcome(session, result, NOW, CONFIG)
        again = apply_outcome(after, result, NOW, CONFIG)
        assert again is after
        assert (after is session) == (check_outcome(session, result, CONFIG) is not None)
        session = after

    worked = [
        decision for decision in session.decisions if decision.progress not in (None, "Pending")
    ]
    assert session.goals[id].cycles_worked == len(worked)
    assert sum(session.goals[id].used.values()) == len(session.decisions)
    check(session, CONFIG)
