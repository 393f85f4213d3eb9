"""Goals, those above and those below."""

from __future__ import annotations

from typing import Any

import pytest

from boyd_goals.api_models import NewGoal
from boyd_goals.goal_tree import (
    GoalError,
    above,
    active_goals,
    add_goal,
    below,
    decompose,
    get_goal,
    goal_of,
    is_open,
    is_stalled,
    metadata,
    set_status,
    standing_errors,
    symbol,
)
from boyd_goals.progress import ensure_plan
from boyd_goals.sessions import claim
from boyd_goals.state import Config, GoalEvidence, GoalSession, GoalStatus
from goals_kit import CONFIG, NOW, a_goal, check, empty, having, later, patch_goals, stall_goals


def family(criteria: str = "alpha beta, gamma delta") -> tuple[GoalSession, str, list[str]]:
    """A session with a goal that was split, its id, and those of its sub-goals."""
    session, [id] = having(criteria)
    session = decompose(stall_goals(session, id), id, NOW, CONFIG)
    return session, id, session.goals[id].children


def put(session: GoalSession, id: str, status: GoalStatus, **fields: Any) -> GoalSession:
    fields.setdefault("reason", "said so")
    after = set_status(session, id, status, later(1), CONFIG, **fields)
    check(after, CONFIG)
    return after


def fulfil(session: GoalSession, id: str, text: str = "", cycle: int = 1) -> GoalSession:
    """The session in which that goal was completed, with a text as evidence for its criteria."""
    goal = session.goals[id]
    evidence = GoalEvidence(criterion=goal.criteria, cycle=cycle, tool="reason", text=text)
    return put(patch_goals(session, id, evidence=[evidence]), id, "Completed")


def statuses(session: GoalSession, *ids: str) -> list[str]:
    return [session.goals[id].status for id in ids]


def test_a_goal_has_the_defaults_of_the_seed() -> None:
    session, goal = add_goal(empty(), " Find mammals ", NOW, CONFIG)

    assert (goal.description, goal.criteria) == ("Find mammals", "Find mammals")
    assert (goal.priority, goal.status, goal.stall_threshold) == (128, "Active", 5)
    assert (goal.parent, goal.children, goal.depth) == (None, [], 0)
    assert (goal.cycles_worked, goal.last_progress_cycle) == (0, 0)
    assert session.goals == {goal.id: goal}


def test_a_new_goal_keeps_the_given_values() -> None:
    _, goal = add_goal(empty(), "d", NOW, CONFIG, criteria="c", priority=0, stall_threshold=1)

    assert (goal.criteria, goal.priority, goal.stall_threshold) == ("c", 0, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"description": " "},
        {"description": "x" * 901},
        {"description": "x", "criteria": "y" * 901},
        {"description": "x", "priority": -1},
        {"description": "x", "priority": 256},
        {"description": "x", "stall_threshold": 0},
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(GoalError):
        add_goal(empty(), now=NOW, config=CONFIG, **fields)


@pytest.mark.parametrize("priority", [0, 255])
def test_priorities_reach_from_0_to_255(priority: int) -> None:
    assert add_goal(empty(), "x", NOW, CONFIG, priority=priority)[1].priority == priority


def test_blank_criteria_are_the_description() -> None:
    assert add_goal(empty(), "x", NOW, CONFIG, criteria="  ")[1].criteria == "x"


def test_the_highest_priority_is_first_and_of_equal_ones_the_oldest() -> None:
    session, [a, b, c, d] = having("a", "b", "c", "d")
    session = patch_goals(patch_goals(session, c, priority=129), d, status="Suspended")

    assert [goal.id for goal in active_goals(session)] == [c, a, b]


def test_goals_of_different_sessions_have_different_ids() -> None:
    first, second = (
        having("a")[1],
        add_goal(empty().patched({"id": "other"}), "a", NOW, CONFIG)[1].id,
    )

    assert first != [second]
    assert len(set(having(*["same"] * 50)[1])) == 50


def test_a_goal_is_found_by_its_symbol() -> None:
    session, [id] = having("a")

    assert goal_of(session, symbol(id)) == session.goals[id]
    assert goal_of(session, id) is None
    with pytest.raises(GoalError):
        get_goal(session, "unknown")


def test_too_many_goals_forget_the_oldest_finished_ones() -> None:
    config = Config(max_goals=3)
    session, [a, b, c] = having("a", "b", "c", config=config)
    session = put(put(session, b, "Completed"), a, "Failed")
    session, d = add_goal(session, "d", NOW, config)

    assert list(session.goals) == [b, c, d.id]
    session, e = add_goal(session, "e", NOW, config)
    assert list(session.goals) == [c, d.id, e.id]
    with pytest.raises(GoalError, match="3 goals"):
        add_goal(session, "f", NOW, config)


def test_a_pruned_goal_is_removed_from_its_parent_and_plans() -> None:
    config = Config(max_goals=3)
    session, parent, [first, second] = family()
    session = ensure_plan(session, first, [], has_knowledge=True)
    session = put(session, first, "Completed")
    session, _ = add_goal(session, "more", NOW, config)

    assert session.goals[parent].children == [second]
    assert first not in session.plans
    check(session, config)


def test_a_goal_outlives_the_one_it_was_split_off() -> None:
    config = Config(max_goals=3)
    session, parent, [first, second] = family()
    session, _ = add_goal(put(session, parent, "Completed"), "more", NOW, config)

    assert parent not in session.goals
    assert [session.goals[id].parent for id in (first, second)] == [None, None]
    check(session, config)


@pytest.mark.parametrize(
    ("worked", "last", "threshold", "expected"),
    [
        (0, 0, 5, False),
        (4, 0, 5, False),
        (5, 0, 5, True),
        (6, 0, 5, True),
        (9, 5, 5, False),
        (10, 5, 5, True),
        (1, 0, 1, True),
        (1, 1, 1, False),
        (0, 5, 5, False),
    ],
)
def test_a_goal_stalls_at_its_threshold(
    worked: int, last: int, threshold: int, expected: bool
) -> None:
    goal = a_goal(cycles_worked=worked, last_progress_cycle=last, stall_threshold=threshold)

    assert is_stalled(goal) is expected


@pytest.mark.parametrize("status", ["Completed", "Failed"])
def test_an_ended_goal_cannot_change_its_status(status: GoalStatus) -> None:
    session, [id] = having("a")
    session = put(session, id, status)

    assert put(session, id, status) is session
    for other in {"Active", "Suspended", "Completed", "Failed"} - {status}:
        with pytest.raises(GoalError, match=status):
            put(session, id, other)  # type: ignore[arg-type]


def test_a_goal_does_not_fail_without_a_reason() -> None:
    session, [id] = having("a")
    with pytest.raises(GoalError, match="reason"):
        put(session, id, "Failed", reason=None)

    assert put(session, id, "Failed", reason="x" * 600).goals[id].reason == "x" * 497 + "..."


def test_a_goal_is_put_off_and_goes_on() -> None:
    session, [id] = having("a")
    off = put(session, id, "Suspended", reason="later")
    on = put(off, id, "Active", reason=None)

    assert (off.goals[id].status, off.goals[id].reason) == ("Suspended", "later")
    assert (on.goals[id].status, on.goals[id].reason) == ("Active", None)
    assert put(on, id, "Active") is on


@pytest.mark.parametrize("status", ["Completed", "Failed"])
def test_nothing_below_a_goal_that_has_ended_is_worked_on(status: GoalStatus) -> None:
    session, parent, children = family("alpha, beta, gamma")
    first = children[0]
    session = patch_goals(session, first, criteria="x, y")
    session = decompose(stall_goals(session, first), first, NOW, CONFIG)
    session = ensure_plan(session, children[1], [], has_knowledge=True)
    session, claimed = claim(session, "me", NOW, CONFIG)
    session = put(session, children[2], "Completed")
    session = put(session, parent, status)

    assert claimed
    assert [goal.status for goal in below(session, session.goals[parent])] == [
        *["Failed"] * 4,
        "Completed",
    ]
    assert not any(map(is_open, session.goals.values()))
    assert session.plans[children[1]].status == "Superseded"


def test_a_parent_waits_while_a_sub_goal_is_open() -> None:
    session, parent, [first, second] = family()
    session = put(session, first, "Completed")

    assert statuses(session, parent, second) == ["Suspended", "Active"]


def test_a_sub_goal_that_completes_is_progress_of_the_one_above() -> None:
    session, parent, [first, _] = family()
    session = put(patch_goals(session, parent, stalled=True), first, "Completed")
    goal = session.goals[parent]

    assert (goal.stalled, goal.last_progress_cycle) == (False, 5)


def test_a_parent_completes_with_the_evidence_and_the_results_of_its_sub_goals() -> None:
    session, parent, [first, second] = family()
    session = fulfil(fulfil(session, first, "one"), second, "two", cycle=2)
    goal = session.goals[parent]

    assert (goal.status, goal.result) == ("Completed", "one\ntwo")
    assert [(evidence.criterion, evidence.cycle) for evidence in goal.evidence] == [
        ("alpha beta", 1),
        ("gamma delta", 2),
    ]


def test_a_parent_split_by_its_description_is_judged_by_what_its_sub_goals_found() -> None:
    session, [parent] = having("red, green")
    session = patch_goals(stall_goals(session, parent), parent, criteria="alpha beta")
    session = decompose(session, parent, NOW, CONFIG)
    first, second = session.goals[parent].children
    met = fulfil(fulfil(session, first, "red"), second, "alpha and beta")
    unmet = fulfil(fulfil(session, first, "alpha"), second, "beta")

    assert statuses(met, parent) == ["Completed"]
    assert met.goals[parent].result == "alpha and beta"
    assert statuses(unmet, parent) == ["Active"]


def test_a_parent_whose_criteria_are_not_met_goes_on() -> None:
    session, parent, [first, second] = family()
    session = put(fulfil(session, first), second, "Completed")
    goal = session.goals[parent]

    assert (goal.status, len(goal.evidence), goal.result) == ("Active", 1, None)
    assert goal.reason == "all sub-goals are completed, but the criteria are not met"
    assert not is_stalled(goal)


def test_parents_complete_up_to_the_top() -> None:
    session, [parent] = having("a1 b1, a2 b2, a3 b3")
    config = Config(max_children=2)
    session = decompose(stall_goals(session, parent), parent, NOW, config)
    first, rest = session.goals[parent].children
    session = decompose(stall_goals(session, rest), rest, NOW, config)
    lowest = session.goals[rest].children
    session = fulfil(fulfil(fulfil(session, first), lowest[0]), lowest[1])

    assert statuses(session, parent, first, rest, *lowest) == ["Completed"] * 5


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Failed", "Active", "Suspended"),
        ("Failed", "Completed", "Active"),
        ("Failed", "Failed", "Active"),
        ("Completed", "Failed", "Active"),
        ("Failed", "Suspended", "Active"),
        ("Suspended", "Failed", "Active"),
        ("Completed", "Suspended", "Suspended"),
        ("Suspended", "Completed", "Suspended"),
        ("Suspended", "Suspended", "Suspended"),
    ],
)
def test_a_parent_goes_on_when_one_has_failed_and_nothing_below_is_worked_on(
    first: GoalStatus, second: GoalStatus, expected: str
) -> None:
    session, parent, [one, two] = family()
    session = put(put(session, one, first), two, second)
    goal = session.goals[parent]

    assert goal.status == expected
    assert expected == "Suspended" or not is_stalled(goal)


def test_a_sub_goal_that_was_split_itself_is_worked_on() -> None:
    session, parent, [first, second] = family()
    session = patch_goals(session, second, criteria="x, y")
    session = decompose(stall_goals(session, second), second, NOW, CONFIG)
    session = put(session, first, "Failed")

    assert statuses(session, parent, second) == ["Suspended", "Suspended"]


def test_a_split_goal_is_put_off_with_all_below_it_and_goes_on_with_them() -> None:
    session, parent, [first, second] = family()
    session = put(session, first, "Completed")
    off = put(session, second, "Suspended")
    everything = put(session, parent, "Suspended")
    on = put(off, parent, "Active")

    assert everything is session, "it waits already"
    assert statuses(on, parent, first, second) == ["Suspended", "Completed", "Active"]
    assert put(on, parent, "Active") is on


def test_a_goal_that_goes_on_after_its_sub_goals_can_be_put_off_with_the_rest() -> None:
    session, parent, [first, second] = family()
    session = put(put(session, first, "Suspended"), second, "Failed")
    session = put(session, first, "Active")
    off = put(session, parent, "Suspended")

    assert statuses(session, parent, first) == ["Active", "Active"]
    assert statuses(off, parent, first) == ["Suspended", "Suspended"]


def test_ancestors_are_returned_nearest_first() -> None:
    session, parent, [_, second, _] = family("alpha beta, gamma and alpha delta")

    assert [goal.id for goal in above(session, session.goals[second])] == [parent]


def test_metadata_links_goals_both_ways() -> None:
    session, parent, [first, second] = family("a,b")
    above = {(triple.predicate, triple.object) for triple in metadata(session.goals[parent])}
    under = {(triple.predicate, triple.object) for triple in metadata(session.goals[first])}

    assert above == {
        ("agent:has_description", "desc:a,b"),
        ("agent:has_status", "status:suspended"),
        ("agent:has_priority", "priority:128"),
        ("agent:has_criteria", "criteria:a,b"),
        ("agent:child_goal", symbol(first)),
        ("agent:child_goal", symbol(second)),
    }
    assert under == {
        ("agent:has_description", "desc:a"),
        ("agent:has_status", "status:active"),
        ("agent:has_priority", "priority:128"),
        ("agent:has_criteria", "criteria:a"),
        ("agent:parent_goal", symbol(parent)),
    }
    assert all(triple.subject == symbol(parent) for triple in metadata(session.goals[parent]))
    assert all(triple.is_metadata for triple in metadata(session.goals[first]))


def test_metadata_of_the_longest_goal_fits_the_graph() -> None:
    assert max(len(triple.object) for triple in metadata(a_goal("x" * 2000))) == 1000


def test_only_what_is_active_or_put_off_is_open() -> None:
    open_ones = [
        s for s in ("Active", "Suspended", "Completed", "Failed") if is_open(a_goal(status=s))
    ]

    assert open_ones == ["Active", "Suspended"]


def test_more_standing_goals_than_a_session_holds_are_an_error() -> None:
    goals = [NewGoal(description=f"goal {number}") for number in range(3)]
    config = Config(max_goals=2)
    assert list(standing_errors(goals[:2], config)) == []
    [error] = standing_errors(goals, config)
    assert "there are 3" in error
    assert "max_goals" in error


def test_the_error_of_a_standing_goal_is_a_sentence_behind_its_place() -> None:
    [error] = standing_errors([NewGoal(description="  ")], Config())
    assert error == "goals.0: the description must not be empty"
