"""Working memory and episodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd_goals.goal_tree import symbol
from boyd_goals.memory import (
    MemoryNote,
    consolidate,
    consult,
    is_consolidation_due,
    newest,
    pressure,
    push,
    recall,
    score,
    uninformative_entries,
)
from boyd_goals.state import Config, Episode, GoalSession
from goals_kit import CONFIG, NOW, empty, having, later, remembering

SMALL = Config(working_memory_capacity=4)
TEN = Config(working_memory_capacity=10)


def ids(session: GoalSession) -> list[int]:
    return [entry.id for entry in session.memory]


@pytest.mark.parametrize(
    ("relevances", "kept_ids"),
    [
        ([0.6, 0.6, 0.6], [1, 2, 3]),
        ([0.6, 0.6, 0.6, 0.6], [1, 2, 3, 4]),
        ([0.6, 0.6, 0.6, 0.6, 0.6], [2, 3, 4, 5]),
        ([0.9, 0.4, 0.1, 0.9, 0.6], [1, 3, 4, 5]),
        ([0.9, 0.49, 0.5, 0.1, 0.6, 0.6], [1, 3, 5, 6]),
        ([0.9, 0.5, 0.6, 0.5, 0.7], [1, 3, 4, 5]),
        ([0.9, 0.5, 0.6, 0.5, 0.7, 0.7], [1, 3, 5, 6]),
        ([0.9, 0.9, 0.9, 0.9, 0.1, 0.2], [2, 3, 4, 6]),
    ],
)
def test_the_oldest_of_low_relevance_goes_else_the_least_relevant_and_oldest(
    relevances: list[float], kept_ids: list[int]
) -> None:
    assert ids(remembering(*relevances, config=SMALL)) == kept_ids


def test_the_default_capacity_is_a_hundred() -> None:
    assert len(remembering(*[0.6] * 103).memory) == 100


@given(
    st.integers(1, 6),
    st.lists(st.floats(-1, 2), max_size=40),
    st.integers(1, 6),
)
def test_capacity_is_never_exceeded_and_no_id_is_given_twice(
    capacity: int, relevances: list[float], smaller: int
) -> None:
    config = Config(working_memory_capacity=capacity)
    session, ids_seen = empty(), []
    for number, relevance in enumerate(relevances):
        if number == len(relevances) // 2:
            config = Config(working_memory_capacity=smaller)
        session = remembering(relevance, session=session, config=config)
        ids_seen.append(session.memory[-1].id)
        assert len(session.memory) <= config.working_memory_capacity
        assert 0 <= session.memory[-1].relevance <= 1

    assert ids_seen == list(range(1, len(relevances) + 1))
    assert ids(session) == sorted(ids(session))


def test_an_entry_keeps_its_fields_and_truncates_its_content() -> None:
    note = MemoryNote(
        content="é" * 1001,
        kind="Action",
        relevance=0.6,
        source_cycle=3,
        now=later(1),
        symbols=["b", "a", "b"],
        tool="reason",
        success=True,
    )
    session = push(empty(), note, CONFIG)
    entry = session.memory[0]

    assert entry.content == "é" * 997 + "..."
    assert (entry.symbols, entry.kind, entry.timestamp) == (["b", "a"], "Action", later(1))
    assert (entry.source_cycle, entry.reference_count) == (3, 0)
    assert (entry.tool, entry.success, session.updated_at) == ("reason", True, later(1))


def test_references_are_counted_when_an_entry_is_consulted() -> None:
    session = consult(consult(remembering(0.5, 0.5, 0.5), [1, 1, 3, 99]), [3])

    assert [entry.reference_count for entry in session.memory] == [1, 0, 2]
    assert consult(session, [99]) is session
    assert consult(session, []) is session


def test_the_newest_come_first() -> None:
    session = remembering(*[0.5] * 7)

    assert [entry.id for entry in newest(session)] == [7, 6, 5, 4, 3]
    assert [entry.id for entry in newest(session, 1)] == [7]


@pytest.mark.parametrize(
    ("count", "config", "due"),
    [
        (8, TEN, False),
        (9, TEN, True),
        (9, Config(working_memory_capacity=10, auto_consolidate=False), False),
        (80, CONFIG, False),
        (81, CONFIG, True),
    ],
)
def test_memory_consolidates_strictly_above_the_limit(
    count: int, config: Config, due: bool
) -> None:
    session = remembering(*[0.6] * count, config=config)

    assert pressure(session, config) == count / config.working_memory_capacity
    assert is_consolidation_due(session, config) is due


@pytest.mark.parametrize(
    ("relevance", "symbols", "references", "degrees", "expected"),
    [
        (0.0, [], 0, {}, 0.075),
        (1.0, [], 4, {}, 0.725),
        (0.6, ["x"], 0, {}, 0.45),
        (0.7, ["x"], 0, {}, 0.5),
        (0.6, ["x"], 0, {"x": 5}, 0.375),
        (0.6, ["x", "y"], 0, {"x": 10}, 0.375),
        (0.6, ["x"], 1, {}, 0.4875),
        (0.6, ["x"], 4, {}, 0.6),
        (0.6, ["x"], 5, {}, 0.6),
        (0.6, ["near"], 0, {}, 0.61),
        (0.6, ["GOAL"], 0, {}, 0.65),
        (0.6, ["GOAL", "near"], 0, {}, 0.65),
        (0.6, ["goal:unknown"], 0, {}, 0.45),
        (1.0, ["GOAL"], 4, {}, 1.0),
    ],
)
def test_a_score_is_half_relevance_and_half_goal_novelty_and_utility(
    relevance: float,
    symbols: list[str],
    references: int,
    degrees: dict[str, int],
    expected: float,
) -> None:
    session, [id] = having("find mammals")
    names = [symbol(id) if name == "GOAL" else name for name in symbols]
    entry = remembering(relevance, session=session, symbols=names).memory[0]
    entry = entry.patched({"reference_count": references})

    assert score(session, entry, degrees, {"near"}) == pytest.approx(expected)


@pytest.mark.parametrize(("relevance", "count"), [(0.7, 5), (0.69, 0)])
def test_the_threshold_itself_is_kept(relevance: float, count: int) -> None:
    session = remembering(*[relevance] * 10, config=TEN, symbols=["x"])
    session, episodes = consolidate(session, {}, 1, NOW, TEN)

    assert len(episodes) == session.consolidated == len(session.episodes) == count
    assert ids(session) == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("count", "left"),
    [(100, 50), (81, 50), (51, 50), (50, 50), (20, 20)],
)
def test_memory_is_freed_down_to_half_of_it(count: int, left: int) -> None:
    session = remembering(*[0.6] * count)
    after, _ = consolidate(session, {}, 1, NOW, CONFIG)

    assert ids(after) == ids(session)[count - left :]
    assert count > left or after is session


def test_the_newest_five_stay_whatever_the_capacity() -> None:
    config = Config(working_memory_capacity=6, consolidate_down_to=0.0)
    session, _ = consolidate(remembering(*[0.6] * 6, config=config), {}, 1, NOW, config)

    assert ids(session) == [2, 3, 4, 5, 6]


def test_the_current_cycle_stays() -> None:
    config = Config(working_memory_capacity=10, consolidate_down_to=0.0)
    session = remembering(0.6, 0.6, config=config, source_cycle=1)
    session = remembering(0.6, 0.6, config=config, source_cycle=2, session=session)
    session = remembering(*[0.6] * 6, config=config, source_cycle=1, session=session)
    session, _ = consolidate(session, {}, 2, NOW, config)

    assert ids(session) == [3, 4, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("on_demand", [False, True])
def test_a_second_consolidation_finds_nothing_to_do(on_demand: bool) -> None:
    session = remembering(*[0.9, 0.1] * 50, symbols=["x"])
    once, episodes = consolidate(session, {}, 1, NOW, CONFIG, on_demand=on_demand)
    twice, again = consolidate(once, {}, 1, NOW, CONFIG, on_demand=on_demand)

    assert len(episodes) == (48 if on_demand else 25)
    assert twice is once
    assert again == []


def test_on_demand_what_is_worth_it_is_kept_and_the_rest_is_not_forgotten() -> None:
    session = remembering(*[0.9, 0.1] * 5, symbols=["x"])
    session, episodes = consolidate(session, {}, 1, NOW, CONFIG, on_demand=True)

    assert [episode.id for episode in episodes] == ["wm-1", "wm-3", "wm-5"]
    assert ids(session) == [2, 4, 6, 7, 8, 9, 10]


def test_an_episode_says_what_was_learned_for_which_goal() -> None:
    session, [id, other] = having("find mammals", "find planets")
    names = ["mammal", symbol(id), symbol(other)]
    session = remembering(
        0.6, session=session, content="x" * 300, symbols=names, tool="reason", kind="Action"
    )
    session = remembering(*[0.1] * 5, session=session)
    session, [episode] = consolidate(session, {}, 1, later(9), CONFIG, on_demand=True)

    assert episode == Episode(
        id="wm-1",
        timestamp=NOW,
        goal=id,
        summary="x" * 197 + "...",
        learnings=["mammal", symbol(other)],
        tools=["reason"],
        relevance=0.65,
        derivation_kind="AgentConsolidation",
    )


@pytest.mark.parametrize(
    ("fields", "teaches"),
    [
        ({"kind": "Observation", "symbols": ["GOAL"]}, False),
        ({"kind": "Decision", "symbols": ["GOAL", "whale"], "tool": "kg_query"}, False),
        ({"kind": "Inference", "symbols": ["GOAL", "whale"]}, True),
        ({"kind": "Inference", "symbols": ["GOAL", "nothing"]}, False),
        ({"kind": "Action", "symbols": ["GOAL", "whale"], "tool": "kg_query"}, True),
        ({"kind": "Action", "symbols": ["GOAL"], "tool": "kg_query", "success": True}, False),
        ({"kind": "Action", "symbols": ["GOAL"], "tool": "kg_query", "success": False}, True),
        ({"kind": "Action", "symbols": ["GOAL"], "tool": "http_fetch", "success": True}, True),
        ({"kind": "Action", "symbols": ["whale"], "tool": "memory_recall"}, False),
        ({"kind": "Observation", "symbols": ["GOAL"], "tool": "user_interact"}, True),
        ({"kind": "Reflection", "symbols": ["GOAL"]}, True),
        ({"kind": "Reflection"}, False),
    ],
)
def test_only_what_teaches_something_becomes_an_episode(
    fields: dict[str, Any], teaches: bool
) -> None:
    session, [id] = having("find mammals")
    names = [symbol(id) if name == "GOAL" else name for name in fields.pop("symbols", [])]
    session = remembering(0.9, session=session, symbols=names, **fields)
    session = remembering(*[0.1] * 5, session=session, content="newer")
    idle = uninformative_entries(session, {"whale": 2, symbol(id): 3})
    _, episodes = consolidate(session, {}, 1, NOW, CONFIG, without=idle, on_demand=True)

    assert (1 not in idle, len(episodes)) == (teaches, int(teaches))


def test_consolidated_memories_are_not_consolidated_again() -> None:
    session = remembering(0.9, 0.9, symbols=["whale"], kind="Inference")
    session = remembering(*[0.1] * 5, session=session, content="newer")
    first = uninformative_entries(session, {"whale": 2})
    after, _ = consolidate(session, {}, 1, NOW, CONFIG, without=first, on_demand=True)

    assert 2 in first
    assert len(after.episodes) == 1
    again = remembering(0.9, session=after, symbols=["whale"], kind="Inference")
    assert again.memories in uninformative_entries(again, {"whale": 2})


@pytest.mark.parametrize(
    ("fields", "summary"),
    [
        ({"kind": "Action", "tool": "reason", "success": True}, "reason: a; b"),
        ({"kind": "Action", "tool": "reason", "success": False}, "reason failed: a; b"),
        ({"kind": "Inference", "content": "Orient: 3 triples"}, "came to mind: whale, krill"),
        (
            {"content": "Which?\nAnswer of ann: blue", "tool": "user_interact"},
            "Answer of ann: blue",
        ),
        ({"content": "as it is"}, "as it is"),
    ],
)
def test_an_episode_can_be_read(fields: dict[str, Any], summary: str) -> None:
    session, [id] = having("find mammals")
    names = [symbol(id), "whale", "krill"]
    details = {"content": "Tool result (reason):\na\nb", "kind": "Observation", **fields}
    session = remembering(0.9, session=session, symbols=names, **details)
    session = remembering(*[0.1] * 5, session=session)
    _, [episode] = consolidate(session, {}, 1, NOW, CONFIG, on_demand=True)

    assert (episode.summary, episode.learnings) == (summary, ["whale", "krill"])


def test_only_the_newest_episodes_are_kept() -> None:
    config = Config(working_memory_capacity=20, max_episodes=3)
    session = remembering(*[0.9] * 20, config=config, symbols=["x"])
    session, episodes = consolidate(session, {}, 1, NOW, config)

    assert len(episodes) == session.consolidated == 10
    assert [episode.id for episode in session.episodes] == ["wm-8", "wm-9", "wm-10"]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3)), max_size=40),
    st.integers(0, 3),
    st.booleans(),
)
def test_consolidation_takes_only_what_it_may(
    entries: list[tuple[float, int]], cycle: int, on_demand: bool
) -> None:
    config = Config(working_memory_capacity=20)
    session = empty()
    for relevance, source in entries:
        session = remembering(
            relevance, session=session, config=config, source_cycle=source, symbols=["x"]
        )
    after, episodes = consolidate(session, {}, cycle, NOW, config, on_demand=on_demand)
    consolidated = [entry for entry in session.memory if entry not in after.memory]

    assert not {entry.id for entry in consolidated} & set(ids(session)[-5:])
    assert all(entry.source_cycle != cycle for entry in consolidated)
    assert {episode.id for episode in episodes} <= {f"wm-{entry.id}" for entry in consolidated}
    assert all(episode.relevance >= 0.5 for episode in episodes)
    assert len(after.memory) >= min(10, len(session.memory)) or on_demand


def episode(id: str, second: float = 0, **fields: Any) -> Episode:
    defaults = {"id": id, "timestamp": later(second), "summary": "", "relevance": 0.5}
    return Episode(**{**defaults, **fields})


@pytest.mark.parametrize(
    ("query", "k", "expected"),
    [
        (["mammal"], 9, ["wm-3", "wm-1"]),
        (["mammals"], 9, ["wm-3", "wm-1"]),
        (["Whale of the sea", "dive"], 9, ["wm-2", "wm-4", "wm-3", "wm-1"]),
        (["whale"], 1, ["wm-4"]),
        (["wm-2"], 9, ["wm-2"]),
        (["goal:7"], 9, ["wm-1"]),
        (["7"], 9, ["wm-1"]),
        (["reason"], 9, ["wm-2"]),
        (["the"], 9, []),
        (["goal"], 9, ["wm-3"]),
        (["unknown"], 9, []),
        ([], 9, []),
        (["mammal"], 0, []),
        (["mammal"], -1, []),
    ],
)
def test_recall_ranks_by_overlap_then_newest_then_relevance(
    query: list[str], k: int, expected: list[str]
) -> None:
    episodes = [
        episode("wm-1", 1, summary="The whales", learnings=["mammal"], goal="7"),
        episode("wm-2", 2, summary="whales dive in the sea", tools=["reason"]),
        episode("wm-3", 3, summary="a goal: whales", learnings=["Mammal"], relevance=0.6),
        episode("wm-4", 3, summary="whale", relevance=0.7),
    ]

    assert [memory.id for memory in recall(episodes, query, k)] == expected
