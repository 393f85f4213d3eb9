"""Every five cycles the agent looks at how it does."""

from __future__ import annotations

from typing import Any

import pytest

from boyd_goals.goal_tree import symbol
from boyd_goals.memory import consolidate
from boyd_goals.psyche import ReflectionReport, ToolInsight, is_due, look_back, new_psyche, reflect
from boyd_goals.state import Config, GoalSession
from goals_kit import CONFIG, NOW, empty, having, later, patch_goals, remembering, report_outcome

OFF = Config(reflect_every=0)


def reflect_and_look(session: GoalSession, cycle: int = 5) -> tuple[GoalSession, ReflectionReport]:
    return reflect(session, cycle, later(1), CONFIG), look_back(session, cycle, CONFIG)


def kinds(report: ReflectionReport) -> list[tuple[str, int | None]]:
    return [(adjustment.kind, adjustment.priority) for adjustment in report.adjustments]


@pytest.mark.parametrize(
    ("cycle", "config", "due"),
    [
        (0, CONFIG, False),
        (4, CONFIG, False),
        (5, CONFIG, True),
        (6, CONFIG, False),
        (10, CONFIG, True),
        (5, OFF, False),
        (3, Config(reflect_every=3), True),
    ],
)
def test_reflection_is_due_every_five_cycles(cycle: int, config: Config, due: bool) -> None:
    assert is_due(cycle, config) is due


@pytest.mark.parametrize(
    ("states", "uses", "successes", "ineffective"),
    [
        (["done"], 1, 1, False),
        (["failed"], 1, 0, False),
        (["failed", "failed"], 2, 0, True),
        (["done", "failed"], 2, 1, False),
        (["done", "failed", "failed"], 3, 1, False),
        (["done", "failed", "failed", "failed"], 4, 1, True),
        (["done", "vetoed", "pending", "vetoed"], 1, 1, False),
    ],
)
def test_a_tool_is_ineffective_below_three_in_ten(
    states: list[str], uses: int, successes: int, ineffective: bool
) -> None:
    session, [id] = having("alpha beta gamma", failed_plans=-9)
    for state in states:
        session = report_outcome(session, id, state, output="an error has failed")

    expected = ToolInsight(tool="kg_query", uses=uses, successes=successes, ineffective=ineffective)
    assert reflect_and_look(session)[1].tools == [expected]


def test_a_vetoed_tool_does_not_count_as_used() -> None:
    session, [id] = having("alpha")

    assert reflect_and_look(report_outcome(session, id, "vetoed"))[1].tools == []


def test_three_in_ten_itself_is_effective() -> None:
    session, [id] = having("alpha beta gamma", failed_plans=-99)
    for state in ["done"] * 3 + ["failed"] * 7:
        session = report_outcome(session, id, state)

    assert not reflect_and_look(session)[1].tools[0].ineffective


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cycles_worked": 7}, []),
        ({"cycles_worked": 8}, [("DecreasePriority", 98), ("SuggestNewGoal", 138)]),
        ({"cycles_worked": 8, "last_progress_cycle": 1}, []),
        (
            {"cycles_worked": 9, "last_progress_cycle": 1},
            [("DecreasePriority", 98), ("SuggestNewGoal", 138)],
        ),
        ({"cycles_worked": 15}, [("DecreasePriority", 98), ("SuggestNewGoal", 138)]),
        ({"cycles_worked": 16}, [("SuggestAbandon", None), ("SuggestNewGoal", 138)]),
        ({"cycles_worked": 8, "priority": 20}, [("SuggestNewGoal", 30)]),
        (
            {"cycles_worked": 8, "priority": 21},
            [("DecreasePriority", 0), ("SuggestNewGoal", 31)],
        ),
        (
            {"cycles_worked": 8, "priority": 250},
            [("DecreasePriority", 220), ("SuggestNewGoal", 255)],
        ),
        ({"cycles_worked": 8, "children": ["x"]}, [("DecreasePriority", 98)]),
        ({"cycles_worked": 99, "status": "Suspended"}, []),
    ],
)
def test_a_stagnant_goal_matters_less(
    fields: dict[str, Any], expected: list[tuple[str, int | None]]
) -> None:
    session, [id] = having("alpha", **fields)
    after, report = reflect_and_look(session)
    applied = [priority for kind, priority in expected if kind == "DecreasePriority"]

    assert kinds(report) == expected
    assert after.goals[id].priority == (applied or [session.goals[id].priority])[0]
    assert after.goals[id].status == session.goals[id].status
    assert list(after.goals) == [id]


@pytest.mark.parametrize(
    ("worked", "priority", "output", "expected"),
    [
        (2, 128, "alpha", 148),
        (1, 128, "alpha", 128),
        (2, 229, "alpha", 249),
        (2, 230, "alpha", 230),
        (2, 128, "nothing", 128),
    ],
)
def test_a_goal_that_has_got_on_matters_more(
    worked: int, priority: int, output: str, expected: int
) -> None:
    session, [id] = having("alpha beta gamma", cycles_worked=worked, priority=priority)
    session, _ = reflect_and_look(report_outcome(session, id, output=output))

    assert session.goals[id].priority == expected


def test_progress_counts_for_one_reflection() -> None:
    session, [id] = having("alpha beta gamma", cycles_worked=5)
    session, _ = reflect_and_look(report_outcome(session, id, output="alpha"), 1)
    session, report = reflect_and_look(report_outcome(session, id), 5)

    assert report.adjustments == []
    assert session.goals[id].priority == 148


def test_the_summary_is_remembered() -> None:
    session, [id, _] = having("alpha", "beta")
    session = patch_goals(
        report_outcome(report_outcome(session, id, "failed"), id, "failed"), id, cycles_worked=8
    )
    session, report = reflect_and_look(remembering(*[0.5] * 12, session=session))
    entry = session.memory[-1]

    assert report.summary == (
        "Reflection at cycle 5: 1 tools used (1 ineffective), 2 goals (1 stagnant), "
        "memory pressure 12%, 2 adjustments recommended."
    )
    assert (entry.content, entry.kind, entry.relevance) == (report.summary, "Reflection", 0.8)
    assert (entry.source_cycle, entry.timestamp) == (5, later(1))


def test_advice_is_remembered_with_the_goals_it_concerns() -> None:
    session, [stuck, going] = having("alpha", "beta gamma delta")
    session = patch_goals(session, stuck, cycles_worked=16)
    session = patch_goals(session, going, cycles_worked=4)
    session, _ = reflect_and_look(report_outcome(session, going, output="beta"))
    entry = session.memory[-2]

    assert (entry.kind, entry.symbols) == ("Reflection", [symbol(stuck), symbol(going)])
    assert entry.content == (
        f'Advice after cycle 5: give up "alpha" ({stuck}): no progress in 16 cycles;'
        f' split "alpha" ({stuck}) by hand into separate goals;'
        f' "beta gamma delta" ({going}) now has priority 148: it makes progress'
    )
    session = remembering(*[0.1] * 5, session=session)
    _, episodes = consolidate(session, {}, 9, later(9), CONFIG, on_demand=True)
    assert [episode.summary[:20] for episode in episodes] == ["Advice after cycle 5"]


def test_the_psyche_evolves_with_it() -> None:
    session, [id, _] = having("alpha beta gamma", "other", cycles_worked=16)
    session = session.model_copy(update={"psyche": new_psyche()})
    session, _ = reflect_and_look(
        report_outcome(report_outcome(session, id, tool="reason"), id, tool="reason")
    )

    assert session.psyche
    assert session.psyche.weights["sage"] == 0.72
    assert (session.psyche.shadow_encounters, session.psyche.individuation) == (2, 0.12)


@pytest.mark.parametrize("cycle", [4, 5])
def test_there_is_one_reflection_for_a_cycle(cycle: int) -> None:
    session, _ = having("alpha", cycles_worked=8)
    session, _ = reflect_and_look(session)

    assert reflect(session, cycle, NOW, CONFIG) is session
    assert session.reflected == 5


def test_to_look_back_changes_nothing() -> None:
    assert look_back(empty(), 5, CONFIG).summary == (
        "Reflection at cycle 5: 0 tools used (0 ineffective), 0 goals (0 stagnant), "
        "memory pressure 0%, 0 adjustments recommended."
    )
