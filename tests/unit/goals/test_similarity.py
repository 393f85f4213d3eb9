"""Symbols with similar facts: `similarity_search`."""

from __future__ import annotations

import pytest

from boyd.models import Triple
from boyd.testing.lab import MemoryGraph
from boyd_goals.knowledge import association as module
from boyd_goals.knowledge.association import similar, similar_many


def facts(*lines: str) -> list[Triple]:
    parts = [line.split() for line in lines]
    return [Triple(subject=s, predicate=p, object=o) for s, p, o in parts]


SKY = MemoryGraph(
    facts(
        *("Mars is-a Planet", "Mars orbits Sun", "Mars has-moon Phobos"),
        *("Venus is-a Planet", "Venus orbits Sun"),
        *("Halley is-a Comet", "Halley orbits Sun"),
        "Bob likes Sun",
    )
)


def test_symbols_are_ranked_by_shared_neighbours() -> None:
    matches = similar(SKY, "Mars")

    assert [match.symbol for match in matches] == ["Venus", "Halley"]
    assert matches[0].similarity == pytest.approx(0.5 + 0.5 * 10 / (16 * 11) ** 0.5)


def test_a_neighbour_without_shared_facts_is_not_similar() -> None:
    assert "Bob" not in [match.symbol for match in similar(SKY, "Mars")]


def test_the_same_in_all_but_the_label_is_nearly_1_and_ties_go_by_label() -> None:
    graph = MemoryGraph(facts(*[f"{name} orbits Sun" for name in "cbad"]))

    matches = similar(graph, "a", top_k=2)

    assert [match.symbol for match in matches] == ["b", "c"]
    assert matches[0].similarity == matches[1].similarity == pytest.approx(0.956, abs=0.001)


def test_words_of_labels_count() -> None:
    graph = MemoryGraph(
        [
            Triple(subject=name, predicate="measured-by", object="Station")
            for name in ("air temperature", "water temperature", "humidity")
        ]
    )

    assert [match.symbol for match in similar(graph, "air temperature")] == [
        "water temperature",
        "humidity",
    ]


def test_facts_about_the_agent_do_not_make_symbols_similar() -> None:
    graph = MemoryGraph(facts("a agent:has_status Active", "b agent:has_status Active"))

    assert similar(graph, "a") == []


def test_nothing_is_like_what_is_unknown() -> None:
    assert similar(SKY, "unknown") == []


def test_any_number_of_symbols_takes_six_calls() -> None:
    SKY.calls.clear()
    matches = similar_many(SKY, ["Mars", "Venus", "Halley"], top_k=1)

    assert SKY.calls == ["out_many", "into_many"] * 3
    [match] = matches["Halley"]
    assert match.symbol == "Venus"
    assert match.similarity == pytest.approx(0.773, abs=0.001)


def test_of_very_many_symbols_those_that_share_most_neighbours_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "COMPARED", 1)

    assert [match.symbol for match in similar(SKY, "Mars")] == ["Venus"]
