"""Gaps in the knowledge around a goal (`gap_analysis`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boyd.plugin.context import Graph
from boyd_goals.knowledge.association import Neighbours, similar_many
from boyd_goals.knowledge.vocabulary import GOAL, IS_A

GapKind: TypeAlias = Literal["dead-end", "missing-predicate", "incomplete-type"]

#: The distance and the number of symbols to examine.
DEPTH, MOST = 2, 200
#: The number of facts that make a symbol well connected.
CONNECTED = 2
#: The most similar symbols, and members of its type, to compare a symbol with.
PEERS, MEMBERS = 5, 100
#: The least similarity of peers.
ALIKE = 0.6
#: A predicate is usual if a greater share of peers, or of members of a type, has it.
MOST_PEERS, MOST_MEMBERS = 0.5, 0.6
_ENOUGH = 2
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap in the knowledge about a symbol, with its severity from 0 to 1."""

    kind: GapKind
    symbol: str
    severity: float
    detail: str
    predicates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GapReport:
    """The gaps, most severe first, the share of well-connected symbols, and their number."""

    gaps: tuple[Gap, ...]
    coverage: float
    examined: int


def find_gaps(graph: Graph, starts: Collection[str], max_gaps: int = 10) -> GapReport:
    """The gaps of symbols within two hops of *starts*.

    A dead end has fewer than two facts. A predicate is missing if more than half of the five most
    similar symbols have it. A type is incomplete in a member without the predicates of more than
    60 % of its members. It takes two dozen calls to the graph, however many symbols there are.
    """
    neighbours = Neighbours(graph)
    depths = _depths(neighbours, starts)
    gaps = [
        *_dead_ends(neighbours, depths),
        *_missing_predicates(graph, neighbours, depths),
        *_incomplete_types(neighbours, depths),
    ]
    gaps.sort(key=lambda gap: (-gap.severity, gap.symbol, gap.kind, gap.predicates))
    connected = [symbol for symbol in depths if neighbours.degree(symbol) >= CONNECTED]
    coverage = len(connected) / len(depths) if depths else 0.0
    return GapReport(tuple(gaps[:max_gaps]), coverage, len(depths))


def _depths(neighbours: Neighbours, starts: Collection[str]) -> dict[str, int]:
    """Fetch the nearest `MOST` symbols, and return their distances, without goals."""
    depths = dict.fromkeys(sorted(set(starts))[:MOST], 0)
    frontier = list(depths)
    neighbours.fetch(frontier)
    for depth in range(1, DEPTH + 1):
        around = sorted(neighbours.around(frontier) - depths.keys())
        frontier = around[: MOST - len(depths)]
        neighbours.fetch(frontier)
        depths |= dict.fromkeys(frontier, depth)
    return {symbol: depth for symbol, depth in depths.items() if not symbol.startswith(GOAL)}


def _dead_ends(neighbours: Neighbours, depths: Mapping[str, int]) -> Iterator[Gap]:
    for symbol, depth in depths.items():
        degree = neighbours.degree(symbol)
        if degree < CONNECTED:
            severity = 0.9 if depth <= 1 else 0.7 / depth
            detail = f"{degree or 'no'} fact{'' if degree == 1 else 's'} about {symbol!r}"
            yield Gap("dead-end", symbol, severity, detail)


def _missing_predicates(
    graph: Graph, neighbours: Neighbours, symbols: Collection[str]
) -> Iterator[Gap]:
    likes = similar_many(graph, symbols, PEERS)
    peers = {
        symbol: [one.symbol for one in found if one.similarity >= ALIKE]
        for symbol, found in likes.items()
    }
    neighbours.fetch(peer for found in peers.values() for peer in found)
    for symbol, found in peers.items():
        own = _predicates(neighbours, symbol)
        for predicate, share in _shares(neighbours, found).items():
            if share > MOST_PEERS and predicate not in own:
                detail = f"{share:.0%} of the symbols like {symbol!r} have {predicate!r}"
                severity = round(0.8 * share, _DIGITS)
                yield Gap("missing-predicate", symbol, severity, detail, (predicate,))


def _incomplete_types(neighbours: Neighbours, symbols: Collection[str]) -> Iterator[Gap]:
    types = {
        symbol: [fact.object for fact in neighbours.out[symbol] if fact.predicate == IS_A]
        for symbol in symbols
    }
    every = {kind for kinds in types.values() for kind in kinds}
    neighbours.fetch(every)
    members = {
        kind: sorted(fact.subject for fact in neighbours.into[kind] if fact.predicate == IS_A)
        for kind in every
    }
    members = {kind: found[:MEMBERS] for kind, found in members.items()}
    neighbours.fetch(member for found in members.values() for member in found)
    usual = {
        kind: {name for name, share in _shares(neighbours, found).items() if share > MOST_MEMBERS}
        for kind, found in members.items()
    }
    for symbol, kinds in types.items():
        for kind in kinds:
            missing = sorted(usual[kind] - _predicates(neighbours, symbol))
            if missing:
                detail = f"{symbol!r} lacks what most of {kind!r} have: {', '.join(missing)}"
                severity = round(0.75 * len(missing) / len(usual[kind]), _DIGITS)
                yield Gap("incomplete-type", symbol, severity, detail, tuple(missing))


def _predicates(neighbours: Neighbours, symbol: str) -> set[str]:
    return {fact.predicate for fact in neighbours.out[symbol]}


def _shares(neighbours: Neighbours, symbols: Collection[str]) -> dict[str, float]:
    """The share of those symbols with each predicate; empty for fewer than two."""
    if len(symbols) < _ENOUGH:
        return {}
    counts = Counter(name for symbol in symbols for name in _predicates(neighbours, symbol))
    return {name: counts[name] / len(symbols) for name in sorted(counts)}
