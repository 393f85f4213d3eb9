"""Spreading activation: what comes to mind when something is thought of (M12)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from boyd.models import Triple
from boyd.plugin.context import Graph


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


#: What is left of activation after a hop.
DECAY = 0.85
#: How much of a fact's confidence counts against its direction.
AGAINST = 0.5
#: How many symbols are expanded at one distance, the most active first.
WIDTH = 500
#: Ways of the same worth are a tie, in whichever order they multiply.
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Activated:
    """A symbol that activation has reached.

    Attributes:
        symbol: its label.
        confidence: of the best way to it: the product of its hops.
        hops: how many that are.
        via: the last fact on that way.
    """

    symbol: str
    confidence: float
    hops: int
    via: Triple


def activate(
    graph: Graph,
    seeds: Collection[str],
    *,
    top_k: int = 10,
    max_depth: int = 1,
    min_confidence: float = 0.1,
    predicates: Collection[str] | None = None,
) -> list[Activated]:
    """The symbols that are most active after the seeds, without them; ties by label.

    A hop is worth the confidence of its fact times `DECAY`, against the direction of the fact
    `AGAINST` of that. A symbol has the worth of the best of all ways to it of at most *max_depth*
    hops, and what is worth less than *min_confidence* is left out, and not gone on from. One
    distance costs two calls to the graph.

    Args:
        graph: what is known.
        seeds: where activation begins, each with 1.
        top_k: how many are wanted.
        max_depth: how many hops a way may have.
        min_confidence: the least that a symbol must be worth.
        predicates: the only ones to go along; None: all.
    """
    neighbours = Neighbours(graph)
    worth = dict.fromkeys(seeds, 1.0)
    found: dict[str, Activated] = {}
    frontier = dict(worth)
    for depth in range(1, max_depth + 1):
        widest = sorted(frontier, key=lambda symbol: (-frontier[symbol], symbol))[:WIDTH]
        neighbours.fetch(widest)
        reached: dict[str, float] = {}
        for start, end, fact, factor in _hops(neighbours, widest, predicates):
            value = round(frontier[start] * factor, _DIGITS)
            if value >= min_confidence and value > worth.get(end, 0.0):
                worth[end] = reached[end] = value
                found[end] = Activated(end, value, depth, fact)
        frontier = reached
    ordered = sorted(found.values(), key=lambda one: (-one.confidence, one.symbol))
    return ordered[:top_k]


def _hops(
    neighbours: Neighbours, symbols: Iterable[str], predicates: Collection[str] | None
) -> Iterator[tuple[str, str, Triple, float]]:
    """Every hop from those symbols: from where, to where, along which fact, and its worth."""
    for symbol in symbols:
        for fact in neighbours.out(symbol):
            if predicates is None or fact.predicate in predicates:
                yield symbol, fact.object, fact, fact.confidence * DECAY
        for fact in neighbours.into(symbol):
            if predicates is None or fact.predicate in predicates:
                yield symbol, fact.subject, fact, fact.confidence * DECAY * AGAINST
