"""The symbols that a goal speaks of, the nearest first."""

from __future__ import annotations

import pytest

from boyd.models import Triple
from boyd.plugin.context import Graph
from boyd.testing.lab import MemoryGraph
from boyd_goals.knowledge.association import find_mentions


def graph_of(graph: Graph, *labels: str) -> Graph:
    """The graph in which each of those labels has a fact."""
    graph.add(Triple(subject=label, predicate="p", object="o") for label in labels)
    return graph


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("Explore Action", ["BuyAction", "Action"], ["Action", "BuyAction"]),
        ("Explore actions", ["action plan b", "Actions", "Action plan"], None),
        ("Find out what it is", ["CheckOutAction", "OutOfStock", "About", "Find"], ["Find"]),
        ("red planets", ["planet", "red", "Red planet"], ["Red planet", "red", "planet"]),
        ("number 77", ["Number 7", "Number 77 of b"], ["Number 77 of b", "Number 7"]),
        ("Read /srv/a.txt about b.", ["/srv/a.txt", "txt", "srv"], ["/srv/a.txt"]),
    ],
)
def test_labels_with_the_fewest_other_words_come_first(
    text: str, labels: list[str], expected: list[str] | None
) -> None:
    mentions = find_mentions(graph_of(MemoryGraph(), *labels), text, 10)

    assert mentions == (expected or ["Actions", "Action plan", "action plan b"])
