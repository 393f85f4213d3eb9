"""Claims of workers on goals."""

from __future__ import annotations

from boyd_goals.sessions import claim, is_held, release
from boyd_goals.state import GoalSession
from goals_kit import CONFIG, NOW, empty, having, later, patch_goals


def claim_goal(
    session: GoalSession, owner: str, seconds: float = 0
) -> tuple[GoalSession, str, int]:
    """A claim, the goal, and its fence."""
    after, goal = claim(session, owner, later(seconds), CONFIG)
    assert goal
    assert after.goals[goal.id] == goal
    return after, goal.id, goal.fence


def test_each_claims_another_goal_and_the_rest_none() -> None:
    session, [a, b] = having("a", "b")
    session = patch_goals(session, b, priority=200)
    session, first, _ = claim_goal(session, "one")
    session, second, _ = claim_goal(session, "two")

    assert (first, second) == (b, a)
    assert claim(session, "three", NOW, CONFIG) == (session, None)


def test_only_active_goals_are_claimed() -> None:
    session, _ = having("a", "b", status="Suspended")

    assert claim(session, "me", NOW, CONFIG) == (session, None)
    assert claim(empty(), "me", NOW, CONFIG)[1] is None


def test_a_claim_lasts_as_long_as_its_lease_and_the_next_has_a_higher_fence() -> None:
    session, [id] = having("a")
    session, _, fence = claim_goal(session, "one")

    assert session.goals[id].leased_until == NOW.timestamp() + 300
    assert claim(session, "two", later(299.9), CONFIG)[1] is None
    assert claim_goal(session, "two", 300) == (claim_goal(session, "two", 300)[0], id, fence + 1)


def test_a_repeated_claim_keeps_the_goal_and_its_fence() -> None:
    session, [a, b] = having("a", "b")
    session, first, fence = claim_goal(session, "one")
    session = patch_goals(session, b, priority=255)
    session, again, same = claim_goal(session, "one", 200)

    assert (again, same) == (first, fence) == (a, 1)
    assert is_held(session.goals[a], later(499))
    assert claim_goal(session, "one", 500)[1:] == (b, 1), "the lease was over"


def test_a_lapsed_claim_cannot_release_the_claim_of_another() -> None:
    session, [id] = having("a")
    session, _, old = claim_goal(session, "one")
    session, _, new = claim_goal(session, "two", 400)

    assert release(session, id, old, NOW) is session
    assert release(session, "unknown", 1, NOW) is session
    freed = release(session, id, new, NOW)
    assert not is_held(freed.goals[id], later(400))
    assert release(freed, id, new, NOW) is freed
    assert claim_goal(freed, "three", 400)[2] == new + 1
