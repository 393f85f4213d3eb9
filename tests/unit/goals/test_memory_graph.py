"""The graph for tests behaves as the one in Redis does."""

from __future__ import annotations

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boyd.models import Triple
from boyd.plugin.context import Graph
from boyd.store.keys import GraphKeys
from boyd.store.plugin_state import FactGraph
from boyd.store.server.scripts import Scripts
from boyd.testing.lab import MemoryGraph

CLIENT = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)
KEYS = GraphKeys("test", "facts")
SCRIPTS = Scripts(CLIENT).of(KEYS)

SYMBOLS = ["Mars", "red planets", "redPlanet", "goal:1"]
PREDICATES = ["is-a", "is red", "agent:has_status"]
WORDS = ["mars", "red", "planet", "goal", "agent", "status"]

triples = st.builds(
    Triple,
    subject=st.sampled_from(SYMBOLS),
    predicate=st.sampled_from(PREDICATES),
    object=st.sampled_from(SYMBOLS),
    confidence=st.sampled_from([0.25, 0.5, 1.0]),
    source=st.sampled_from([None, "seen"]),
)


def looks(graph: Graph) -> list[object]:
    """All that can be seen of a graph."""
    return [
        list(graph.all()),
        [graph.page(after, 2) for after in (None, *(fact.place for fact in graph.all()))],
        graph.out_many(SYMBOLS),
        graph.into_many(SYMBOLS),
        [graph.out(symbol) for symbol in SYMBOLS],
        [graph.into(symbol) for symbol in SYMBOLS],
        [graph.with_predicate(predicate) for predicate in PREDICATES],
        [graph.with_predicate(predicate, 1) for predicate in PREDICATES],
        graph.degrees(SYMBOLS),
        graph.symbols_with(WORDS),
        graph.symbols_with(WORDS, 2),
        graph.size(),
        graph.revision(),
    ]


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(triples, st.lists(triples, max_size=4)), max_size=12))
def test_both_graphs_look_the_same_whatever_is_done(
    steps: list[Triple | list[Triple]],
) -> None:
    CLIENT.flushall()
    memory, stored = MemoryGraph(), FactGraph(CLIENT, SCRIPTS, KEYS)
    for step in steps:
        if isinstance(step, list):
            assert memory.add(step) == stored.add(step)
        else:
            parts = (step.subject, step.predicate, step.object)
            assert memory.remove(*parts) == stored.remove(*parts)

    assert looks(memory) == looks(stored)
