"""The knowledge around symbols, fetched once."""

from __future__ import annotations

from collections.abc import Iterable

from boyd.models import Triple
from boyd.plugin.graph import Graph


class Neighbours:
    """What is known of symbols, in both directions, without what is about the agent.

    Symbols are fetched together, in two calls; asking about one that was not fetched is an error.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._out: dict[str, list[Triple]] = {}
        self._into: dict[str, list[Triple]] = {}

    def fetch(self, symbols: Iterable[str]) -> None:
        """Fetch those that were not fetched before."""
        new = sorted(set(symbols) - self._out.keys())
        if new:
            self._out |= _knowledge(self._graph.out_many(new))
            self._into |= _knowledge(self._graph.into_many(new))

    def out(self, symbol: str) -> list[Triple]:
        """What is known about it."""
        return self._out[symbol]

    def into(self, symbol: str) -> list[Triple]:
        """What is known that names it as its object."""
        return self._into[symbol]

    def degree(self, symbol: str) -> int:
        """How many facts there are about it and with it."""
        return len(self._out[symbol]) + len(self._into[symbol])

    def around(self, symbols: Iterable[str]) -> set[str]:
        """The symbols at the other ends."""
        known = list(symbols)
        objects = {fact.object for symbol in known for fact in self._out[symbol]}
        return objects | {fact.subject for symbol in known for fact in self._into[symbol]}


def _knowledge(found: dict[str, list[Triple]]) -> dict[str, list[Triple]]:
    return {
        symbol: [triple for triple in triples if not triple.is_metadata]
        for symbol, triples in found.items()
    }
