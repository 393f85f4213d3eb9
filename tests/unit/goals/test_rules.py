"""Inferences from known facts: `infer_rules`."""

from __future__ import annotations

import pytest

from boyd.models import Triple
from boyd.testing.lab import MemoryGraph
from boyd_goals.knowledge import reasoning
from boyd_goals.knowledge.reasoning import infer
from boyd_goals.knowledge.turtle import canonical


def fact(subject: str, predicate: str, object: str, confidence: float = 1.0) -> Triple:
    return Triple(subject=subject, predicate=predicate, object=object, confidence=confidence)


def infer_all(*facts: Triple) -> dict[tuple[str, str, str], float]:
    triples = [inference.triple for inference in infer(MemoryGraph(facts))]
    return {
        (triple.subject, triple.predicate, triple.object): triple.confidence for triple in triples
    }


@pytest.mark.parametrize(
    ("predicate", "factor"), [("is-a", 0.95), ("part-of", 0.90), ("has-a", 0.85)]
)
def test_three_predicates_are_transitive_each_with_its_factor(
    predicate: str, factor: float
) -> None:
    facts = fact("a", predicate, "b", 0.8), fact("b", predicate, "c", 0.6)

    assert infer_all(*facts) == {("a", predicate, "c"): pytest.approx(factor * 0.7)}


def test_likeness_is_symmetric() -> None:
    assert infer_all(fact("a", "similar-to", "b", 0.4)) == {("b", "similar-to", "a"): 0.4}


def test_parents_have_children_and_children_parents() -> None:
    facts = fact("a", "parent-of", "b", 0.4), fact("d", "child-of", "c", 0.3)

    assert infer_all(*facts) == {("b", "child-of", "a"): 0.4, ("c", "parent-of", "d"): 0.3}


def test_contents_are_part_of_the_container_and_of_all_around_it() -> None:
    facts = fact("house", "contains", "room"), fact("house", "part-of", "town", 0.9)

    assert infer_all(*facts) == {
        ("room", "part-of", "house"): 1.0,
        ("room", "part-of", "town"): pytest.approx(0.9 * 0.95),
    }


def test_membership_extends_to_superclasses() -> None:
    facts = (
        fact("Rex", "is-a", "Dog"),
        fact("Dog", "subclass-of", "Mammal"),
        fact("Mammal", "subclass-of", "Animal"),
    )

    assert infer_all(*facts).keys() == {
        ("Rex", "is-a", "Mammal"),
        ("Rex", "is-a", "Animal"),
        ("Dog", "subclass-of", "Animal"),
    }


def test_it_ends_when_nothing_new_follows() -> None:
    chain = [fact(f"{n}", "is-a", f"{n + 1}") for n in range(8)]

    assert len(infer(MemoryGraph(chain))) == 8 * 9 / 2 - 8
    assert infer(MemoryGraph(chain), max_iterations=0) == []


def test_an_iteration_takes_one_step_from_all_that_was_known_before() -> None:
    chain = [fact(f"{n}", "is-a", f"{n + 1}") for n in range(4)]
    inferences = infer(MemoryGraph(chain), max_iterations=1)

    assert [(inference.triple.subject, inference.triple.object) for inference in inferences] == [
        *[("0", "2"), ("1", "3"), ("2", "4")],
    ]


def test_nothing_follows_of_a_symbol_and_itself_and_a_loop_ends() -> None:
    facts = fact("a", "is-a", "b"), fact("b", "is-a", "a"), fact("c", "similar-to", "c")

    assert infer_all(*facts) == {}


def test_known_facts_are_not_inferred_again() -> None:
    facts = fact("a", "is-a", "b"), fact("b", "is-a", "c"), fact("a", "is-a", "c", 0.1)

    assert infer_all(*facts) == {}


def test_of_several_ways_the_surest_counts() -> None:
    facts = (
        *(fact("a", "is-a", "b", 0.4), fact("b", "is-a", "d", 0.4)),
        *(fact("a", "is-a", "c", 0.8), fact("c", "is-a", "d", 0.8)),
    )
    [inference] = infer(MemoryGraph(facts))

    assert inference.triple.confidence == pytest.approx(0.76)
    assert inference.antecedents == facts[2:]


def test_a_fact_says_which_rule_it_comes_from() -> None:
    facts = fact("a", "is-a", "b"), fact("b", "is-a", "c")
    [inference] = infer(MemoryGraph(facts))

    assert inference.rule == "is-a-transitive"
    assert inference.triple.source == "rule:is-a-transitive"
    assert inference.antecedents == facts


def test_facts_below_the_confidence_are_not_inferred() -> None:
    graph = MemoryGraph([fact("a", "similar-to", "b", 0.1), fact("c", "similar-to", "d", 0.09)])

    assert [inference.triple.subject for inference in infer(graph)] == ["b"]
    assert infer(graph, min_confidence=0.2) == []


def test_no_more_than_a_thousand_facts_follow_at_once_the_surest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = [fact(f"a{n:04}", "similar-to", f"b{n:04}", 1 - n / 10_000) for n in range(1200)]
    inferences = infer(MemoryGraph(facts))

    assert reasoning.MOST_NEW == 1000
    assert [inference.triple.object for inference in inferences] == [
        f"a{n:04}" for n in range(1000)
    ]


def test_the_graph_is_read_once_for_each_predicate_and_not_changed() -> None:
    graph = MemoryGraph([fact(f"{n}", "is-a", f"{n + 1}") for n in range(8)])
    infer(graph)

    assert graph.calls == ["with_predicate"] * 8
    assert graph.size() == 8


@pytest.mark.parametrize(
    ("written", "canonical_name"),
    [
        ("isA", "is-a"),
        ("is a", "is-a"),
        ("Part Of", "part-of"),
        ("isPartOf", "part-of"),
        ("has_part", "contains"),
        ("subClassOf", "subclass-of"),
        ("orbits", "orbits"),
        ("hasMoon", "has-moon"),
        ("agent:has_status", "agent:has_status"),
        ("--", "--"),
    ],
)
def test_predicates_are_spelled_in_one_way(written: str, canonical_name: str) -> None:
    assert canonical(written) == canonical_name
