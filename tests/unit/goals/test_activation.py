"""Symbols activated by those of a goal."""

from __future__ import annotations

from typing import Any

import pytest

from boyd.models import Triple
from boyd.testing.lab import MemoryGraph
from boyd_goals.knowledge import association
from boyd_goals.knowledge.association import Activation, activate


def fact(subject: str, object: str, confidence: float = 1.0, predicate: str = "knows") -> Triple:
    return Triple(subject=subject, predicate=predicate, object=object, confidence=confidence)


def active(graph: MemoryGraph, *seeds: str, **options: Any) -> dict[str, float]:
    return {
        activation.symbol: activation.confidence for activation in activate(graph, seeds, **options)
    }


def test_a_fact_is_followed_in_full_and_against_its_direction_at_half() -> None:
    graph = MemoryGraph([fact("a", "b"), fact("c", "a")])

    assert active(graph, "a") == {"b": 0.85, "c": 0.425}


def test_a_way_is_worth_the_product_of_its_confidences_with_a_decay_per_hop() -> None:
    graph = MemoryGraph([fact("a", "b", 0.8), fact("b", "c", 0.5), fact("d", "c", 0.9)])
    worth = active(graph, "a", max_depth=3, min_confidence=0.0)

    assert worth["b"] == pytest.approx(0.85 * 0.8)
    assert worth["c"] == pytest.approx(0.85**2 * 0.8 * 0.5)
    assert worth["d"] == pytest.approx(0.85**3 * 0.8 * 0.5 * 0.9 * 0.5)


def test_a_symbol_has_the_worth_of_its_best_way_not_of_the_shortest() -> None:
    facts = [fact("a", "c", 0.2), fact("a", "b"), fact("b", "c"), fact("c", "d")]
    activations = {
        activation.symbol: activation
        for activation in activate(MemoryGraph(facts), ["a"], max_depth=3)
    }

    assert activations["c"] == Activation("c", 0.7225, 2, facts[2])
    assert activations["d"].confidence == pytest.approx(0.85**3)


def test_no_way_has_more_hops_than_allowed() -> None:
    facts = [fact("a", "c", 0.2), fact("a", "b"), fact("b", "c"), fact("c", "d")]

    assert active(MemoryGraph(facts), "a", max_depth=2) == {
        "b": 0.85,
        "c": 0.7225,
        "d": round(0.2 * 0.85**2, 9),
    }
    assert active(MemoryGraph(facts), "a", max_depth=0) == {}


def test_symbols_below_the_confidence_are_left_out_and_not_expanded() -> None:
    graph = MemoryGraph([fact("a", "b", 0.2), fact("b", "c"), fact("a", "d", 0.1)])

    assert active(graph, "a", max_depth=2, min_confidence=0.17) == {"b": 0.17}
    assert active(graph, "a", max_depth=2, min_confidence=0.1701) == {}


def test_the_best_come_first_ties_by_label_and_no_more_than_are_wanted() -> None:
    graph = MemoryGraph([fact("a", name, 0.5) for name in "edcb"] + [fact("a", "z")])

    assert [activation.symbol for activation in activate(graph, ["a"], top_k=4)] == [
        "z",
        "b",
        "c",
        "d",
    ]


def test_several_seeds_are_taken_together_and_are_not_among_the_results() -> None:
    graph = MemoryGraph([fact("a", "b"), fact("b", "c"), fact("a", "c", 0.5)])

    assert active(graph, "a", "b") == {"c": 0.85}
    assert active(graph) == {}
    assert active(graph, "unknown") == {}


def test_facts_about_the_agent_are_not_followed() -> None:
    graph = MemoryGraph([fact("a", "b", predicate="agent:has_status"), fact("a", "c")])

    assert active(graph, "a", max_depth=2) == {"c": 0.85}


def test_only_the_wanted_predicates_are_followed() -> None:
    graph = MemoryGraph([fact("a", "b"), fact("a", "c", predicate="is-a"), fact("d", "a")])

    assert active(graph, "a", predicates=["is-a"]) == {"c": 0.85}


def test_a_loop_ends() -> None:
    graph = MemoryGraph([fact("a", "b"), fact("b", "a"), fact("b", "b")])

    assert active(graph, "a", max_depth=50) == {"b": 0.85}


def test_a_hop_costs_two_calls_however_many_symbols_there_are() -> None:
    graph = MemoryGraph([fact("a", f"b{n}") for n in range(50)])
    graph.add([fact(f"b{n}", f"c{n}") for n in range(50)])
    graph.calls.clear()
    activate(graph, ["a"], max_depth=2)

    assert graph.calls == ["out_many", "into_many"] * 2


def test_of_very_many_symbols_the_most_active_are_gone_on_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(association, "WIDTH", 1)
    graph = MemoryGraph([fact("a", "b", 0.5), fact("a", "c", 0.9), fact("b", "d"), fact("c", "e")])

    assert active(graph, "a", max_depth=2).keys() == {"b", "c", "e"}
