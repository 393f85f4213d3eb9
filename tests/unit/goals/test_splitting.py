"""A goal that has stalled is split once."""

from __future__ import annotations

import pytest

from boyd_goals.goal_tree import decompose, decompose_stalled, give_up_stuck, parts_of
from boyd_goals.progress import ensure_plan
from boyd_goals.sessions import claim
from boyd_goals.state import Config, GoalSession
from goals_kit import CONFIG, NOW, a_goal, check, having, patch_goals, report_outcome, stall_goals


def split(criteria: str, config: Config = CONFIG, **fields: object) -> tuple[GoalSession, str]:
    session, [id] = having(criteria)
    session = patch_goals(stall_goals(session, id), id, **fields)
    session = decompose(session, id, NOW, config)
    check(session, config)
    return session, id


def test_a_stalled_goal_waits_and_its_parts_are_worked_on() -> None:
    session, id = split("red, green and blue", stall_threshold=4)
    parent = session.goals[id]
    children = [session.goals[child] for child in parent.children]

    assert (parent.status, parent.reason) == ("Suspended", "split into 3 sub-goals")
    assert [child.description for child in children] == ["red", "green", "blue"]
    assert [child.criteria for child in children] == ["red", "green", "blue"]
    assert [child.priority for child in children] == [128, 123, 118]
    assert [child.order for child in children] == [2, 3, 4]
    assert {(c.status, c.parent, c.depth, c.stall_threshold) for c in children} == {
        ("Active", id, 1, 4)
    }


@pytest.mark.parametrize(("priority", "expected"), [(255, [255, 250, 245]), (7, [7, 2, 0])])
def test_parts_are_less_important_one_after_the_other(priority: int, expected: list[int]) -> None:
    session, id = split("red, green and blue", priority=priority)

    assert [session.goals[child].priority for child in session.goals[id].children] == expected


@pytest.mark.parametrize(
    ("description", "criteria", "parts"),
    [
        ("x, y", "a, b", ["a", "b"]),
        ("x, y", "alone", ["x", "y"]),
        ("alone", "alone", []),
        ("sand", "understanding", []),
        ("a, A", "b, B, b", []),
        ("x", "a, b, A", ["a", "b"]),
    ],
)
def test_criteria_are_split_first_and_the_description_else(
    description: str, criteria: str, parts: list[str]
) -> None:
    assert parts_of(a_goal(description, criteria=criteria), CONFIG) == parts


@pytest.mark.parametrize(
    ("count", "last"), [(10, "p9"), (11, "p9, p10"), (13, "p9, p10, p11, p12")]
)
def test_there_are_at_most_ten_parts_and_nothing_is_lost(count: int, last: str) -> None:
    parts = parts_of(a_goal(", ".join(f"p{number}" for number in range(count))), CONFIG)

    assert len(parts) == 10
    assert parts[-1] == last


def test_parts_of_parts_are_deeper_until_they_are_not_split() -> None:
    session, id = split("a, b, c, d, e, f, g", Config(max_children=2))
    for depth in (1, 2, 3):
        id = session.goals[id].children[-1]
        assert session.goals[id].depth == depth
        session = decompose(stall_goals(session, id), id, NOW, Config(max_children=2))
        check(session, CONFIG)

    assert session.goals[id].description == "d, e, f, g"
    assert (session.goals[id].stalled, session.goals[id].children) == (True, [])


@pytest.mark.parametrize(("depth", "is_split"), [(0, True), (2, True), (3, False)])
def test_a_goal_is_split_at_most_three_times(depth: int, is_split: bool) -> None:
    assert bool(parts_of(a_goal("a, b", depth=depth), CONFIG)) is is_split


@pytest.mark.parametrize(("priority", "lower"), [(128, 98), (30, 0), (10, 0)])
def test_a_goal_that_cannot_be_split_is_flagged_and_loses_priority(
    priority: int, lower: int
) -> None:
    session, id = split("alone", priority=priority)
    goal = session.goals[id]

    assert (goal.status, goal.stalled, goal.priority) == ("Active", True, lower)
    assert list(session.goals) == [id]
    assert decompose(session, id, NOW, CONFIG) is session


def test_a_goal_that_goes_on_after_its_parts_is_not_split_again() -> None:
    session, id = split("red, green")
    session = patch_goals(session, *session.goals[id].children, status="Completed")
    session = decompose(patch_goals(session, id, status="Active"), id, NOW, CONFIG)

    assert session.goals[id].stalled
    assert len(session.goals) == 3


def test_only_what_has_stalled_and_is_active_is_split() -> None:
    session, [id] = having("red, green")
    suspended = patch_goals(stall_goals(session, id), id, status="Suspended")

    assert decompose(session, id, NOW, CONFIG) is session
    assert decompose(suspended, id, NOW, CONFIG) is suspended
    assert decompose(session, "unknown", NOW, CONFIG) is session


def test_a_goal_is_split_once() -> None:
    session, id = split("red, green")

    assert decompose(session, id, NOW, CONFIG) is session


def test_a_goal_that_is_split_is_free_and_has_no_plan() -> None:
    session, [id] = having("red, green")
    session = ensure_plan(stall_goals(session, id), id, [], has_knowledge=True)
    session, _ = claim(session, "me", NOW, CONFIG)
    session = decompose(session, id, NOW, CONFIG)

    assert (session.goals[id].owner, session.goals[id].leased_until) == (None, 0.0)
    assert session.goals[id].fence == 1
    assert session.plans[id].status == "Superseded"


def test_without_room_for_its_parts_a_goal_is_not_split() -> None:
    session, id = split("red, green", Config(max_goals=2))

    assert session.goals[id].stalled


def test_finished_goals_make_room_for_parts() -> None:
    config = Config(max_goals=3)
    session, [id, done] = having("red, green", "other", config=config)
    session = patch_goals(stall_goals(session, id), done, status="Completed")
    session = decompose(session, id, NOW, config)

    assert done not in session.goals
    assert len(session.goals[id].children) == 2


def test_all_that_has_stalled_is_split_at_once() -> None:
    session, [a, b, c] = having("red, green", "alone", "blue, black")
    session = decompose_stalled(stall_goals(session, a, b), NOW, CONFIG)

    assert [session.goals[id].status for id in (a, b, c)] == ["Suspended", "Active", "Active"]
    assert session.goals[b].stalled
    assert len(session.goals) == 5


def flag_goal(without: int = 10) -> tuple[GoalSession, str]:
    """A session with a goal that was flagged, after so many cycles without progress."""
    session, [id] = having("alone")
    return patch_goals(session, id, stalled=True, cycles_worked=without, last_progress_cycle=0), id


@pytest.mark.parametrize(("without", "status"), [(9, "Active"), (10, "Failed")])
def test_a_flagged_goal_that_stalls_again_fails(without: int, status: str) -> None:
    session, id = flag_goal(without)
    goal = give_up_stuck(session, NOW, CONFIG).goals[id]

    assert goal.status == status
    if status == "Failed":
        assert goal.reason == "no progress in 10 cycles, and nothing to split"


def test_a_goal_that_is_not_flagged_is_not_given_up() -> None:
    session, id = flag_goal()
    session = patch_goals(session, id, stalled=False)

    assert give_up_stuck(session, NOW, CONFIG) is session


def test_a_goal_that_has_asked_a_person_is_not_given_up() -> None:
    session, id = flag_goal()
    session = patch_goals(session, id, question="q")

    assert give_up_stuck(session, NOW, CONFIG) is session


def test_a_goal_that_waits_for_an_approval_is_not_given_up_before_it_is_answered() -> None:
    session, id = flag_goal()
    waiting = report_outcome(session, id, "pending", tool="shell_exec", approval="a")
    refused = report_outcome(
        waiting, id, "refused", tool="shell_exec", approval="a", cycle=waiting.cycle
    )

    assert give_up_stuck(waiting, NOW, CONFIG) is waiting
    assert give_up_stuck(refused, NOW, CONFIG).goals[id].status == "Failed"


def test_a_goal_that_waits_for_an_approval_is_not_split_before_it_is_answered() -> None:
    session, [id] = having("red, green")
    waiting = report_outcome(session, id, "pending", tool="shell_exec", approval="a")
    waiting = stall_goals(waiting, id)
    refused = report_outcome(
        waiting, id, "refused", tool="shell_exec", approval="a", cycle=waiting.cycle
    )

    assert decompose(waiting, id, NOW, CONFIG) is waiting
    assert len(decompose(refused, id, NOW, CONFIG).goals) == 3
