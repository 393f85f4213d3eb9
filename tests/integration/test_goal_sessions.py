"""Many processes change one session at once, and nothing is lost and nothing doubled."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import pytest

from boyd.store import Store
from boyd_goals.goal_tree import set_status
from boyd_goals.state import GoalSession
from goal_hammer import AGENT, CONFIG, CYCLES, KEY, PLUGIN, PUSHES, Account, hammer
from goals_kit import NOW, check, having, stall_goals

PROCESSES = 4

pytestmark = [pytest.mark.real, pytest.mark.slow]


def run_hammers(url: str, *goals: str) -> list[Account]:
    """Run the processes, and return the changes that each reports."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        arguments = [repeat(goal) for goal in goals]
        return list(pool.map(hammer, repeat(url), range(PROCESSES), *arguments))


@pytest.mark.long
def test_many_processes_lose_and_double_nothing(redis_url: str, store: Store) -> None:
    session, [worked, split, *_] = having("alpha beta", "red, green and blue", "more", "and more")
    session = set_status(session, worked, "Suspended", NOW, CONFIG)
    state = store.agent(AGENT).state(PLUGIN)
    state.set(KEY, stall_goals(session, split).to_wire())

    accounts = run_hammers(redis_url, worked, split)

    session = GoalSession.model_validate(state.get(KEY))
    check(session, CONFIG)
    pushed = sorted(id for account in accounts for id in account.pushed)
    assert pushed == list(range(1, PROCESSES * PUSHES + 1))
    assert session.memories == len(pushed)
    assert max(account.largest for account in accounts) <= CONFIG.working_memory_capacity

    claims = [entry for account in accounts for entry in account.claimed]
    assert len(claims) == len(set(claims)) > 0
    assert sum(goal.fence for goal in session.goals.values()) == len(claims)
    assert all(goal.owner is None for goal in session.goals.values())

    applied = sorted(cycle for account in accounts for cycle in account.applied)
    assert (
        applied == list(range(1, CYCLES + 1)) == [decision.cycle for decision in session.decisions]
    )
    assert session.goals[worked].cycles_worked == CYCLES
    assert session.goals[worked].used == {f"tool{cycle}": 1 for cycle in applied}

    assert sum(account.split for account in accounts) == 1
    assert len(session.goals[split].children) == 3
    assert len(session.goals) == session.made == 7

    kept_ids = [id for account in accounts for id in account.kept]
    assert len(kept_ids) == len(set(kept_ids)) == session.consolidated > 0
    assert {episode.id for episode in session.episodes} <= set(kept_ids)
