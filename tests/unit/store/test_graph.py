"""A graph of facts keeps what is surest, finds by every part, and forgets whole."""

from __future__ import annotations

import fakeredis
import pytest

from boyd.errors import PayloadTooLarge
from boyd.models import Triple
from boyd.store import FactGraph, Store
from boyd.store import plugin_state as module


@pytest.fixture
def graph() -> FactGraph:
    """An empty graph."""
    client = fakeredis.FakeRedis(decode_responses=True)
    return Store(client).agent("atlas").graph("facts")


def fact(subject: str, predicate: str, object: str, confidence: float = 1.0) -> Triple:
    """A fact."""
    return Triple(subject=subject, predicate=predicate, object=object, confidence=confidence)


def test_a_fact_is_found_by_subject_object_and_predicate(graph: FactGraph) -> None:
    orbit = fact("Mars", "orbits", "Sun", 0.9)
    graph.add([orbit, fact("Venus", "orbits", "Sun"), fact("Mars", "is-a", "planet")])

    assert orbit in graph.out("Mars")
    assert {triple.subject for triple in graph.into("Sun")} == {"Mars", "Venus"}
    assert {triple.subject for triple in graph.with_predicate("orbits")} == {"Mars", "Venus"}
    assert graph.degrees(["Mars", "Sun", "Pluto"]) == {"Mars": 2, "Sun": 2, "Pluto": 0}
    assert graph.size() == 3
    assert len(list(graph.all())) == 3


def test_a_fact_that_comes_again_keeps_its_best_confidence(graph: FactGraph) -> None:
    assert graph.add([fact("Mars", "orbits", "Sun", 0.5)]) == 1
    assert graph.add([fact("Mars", "orbits", "Sun", 0.9)]) == 1
    before = graph.revision()
    assert graph.add([fact("Mars", "orbits", "Sun", 0.4)]) == 0

    assert [triple.confidence for triple in graph.out("Mars")] == [0.9]
    assert (graph.size(), graph.revision()) == (1, before)


def test_the_surest_of_one_batch_wins_wherever_it_stands(graph: FactGraph) -> None:
    graph.add([fact("a", "b", "c", 0.2), fact("a", "b", "c", 0.8), fact("a", "b", "c", 0.5)])

    assert [triple.confidence for triple in graph.out("a")] == [0.8]


def test_labels_are_found_by_their_words_in_any_number(graph: FactGraph) -> None:
    graph.add([fact("Red planets", "hasColour", "rusty red")])

    assert graph.symbols_with({"planet", "colour", "blue"}) == {
        "planet": ["Red planets"],
        "colour": ["hasColour"],
        "blue": [],
    }


def test_facts_about_the_agents_own_work_are_not_searched(graph: FactGraph) -> None:
    graph.add([fact("goal:1", "agent:has_status", "status:active")])

    assert graph.out("goal:1")
    assert graph.symbols_with({"active", "goal", "status"}) == {
        "active": [],
        "goal": [],
        "status": [],
    }


def test_a_removed_fact_takes_its_labels_with_it_unless_others_use_them(graph: FactGraph) -> None:
    graph.add([fact("Mars", "orbits", "Sun"), fact("Venus", "orbits", "Sun")])
    assert graph.remove("Mars", "orbits", "Sun")
    assert not graph.remove("Mars", "orbits", "Sun")

    assert graph.symbols_with({"mar", "sun"}) == {"mar": [], "sun": ["Sun"]}
    assert graph.out("Mars") == []
    assert graph.size() == 1


def test_a_graph_that_is_full_takes_nothing_of_a_batch(
    graph: FactGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    graph.add([fact("a", "b", "c")])
    with pytest.raises(PayloadTooLarge):
        graph.add([fact("d", "e", "f"), fact("g", "h", "i")])

    assert graph.size() == 1


def test_many_facts_go_in_several_steps_and_come_back_whole(graph: FactGraph) -> None:
    assert graph.add([fact(f"s{n}", "p", f"o{n}") for n in range(1000)]) == 1000

    assert graph.size() == 1000
    assert len(graph.out_many([f"s{n}" for n in range(1000)])) == 1000


def test_a_label_with_a_control_character_is_refused(graph: FactGraph) -> None:
    with pytest.raises(ValueError, match="control character"):
        graph.add([fact("a\x1fb", "p", "o")])

    assert graph.size() == 0


def test_graphs_and_agents_are_apart() -> None:
    store = Store(fakeredis.FakeRedis(decode_responses=True))
    store.agent("a").graph("facts").add([fact("x", "y", "z")])

    assert store.agent("a").graph("other").size() == 0
    assert store.agent("b").graph("facts").size() == 0
