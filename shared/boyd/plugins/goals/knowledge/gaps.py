"""What is not known around a goal (`gap_analysis`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boyd.plugin.context import Graph
from boyd.plugins.goals.knowledge.association import Neighbours, similar_many
from boyd.plugins.goals.knowledge.vocabulary import GOAL, IS_A

GapKind: TypeAlias = Literal["dead-end", "missing-predicate", "incomplete-type"]

#: How far from the goal is looked.
DEPTH = 2
#: How many symbols are looked at.
MOST = 200
#: A symbol with so many facts is well connected.
CONNECTED = 2
#: With how many similar symbols one is compared, and with how many of its type at most.
PEERS, MEMBERS = 5, 100
#: Less similar symbols are no peers.
ALIKE = 0.6
#: A predicate is usual when a greater share of peers, or of the members of a type, has it.
MOST_PEERS, MOST_MEMBERS = 0.5, 0.6
_ENOUGH = 2
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that is not known of a symbol.

    Attributes:
        kind: what kind of gap.
        symbol: of what.
        severity: 0 to 1.
        detail: in words.
        predicates: those that are missing.
    """

    kind: GapKind
    symbol: str
    severity: float
    detail: str
    predicates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GapReport:
    """The gaps around a goal.

    Attributes:
        gaps: the most severe first.
        coverage: the share of symbols that are well connected, 0 when there are none.
        examined: how many symbols that are.
    """

    gaps: tuple[Gap, ...]
    coverage: float
    examined: int


def find_gaps(graph: Graph, starts: Collection[str], max_gaps: int = 10) -> GapReport:
    """The gaps of the symbols within two hops of *starts*, the starts among them.

    A dead end has fewer than two facts. A predicate is missing when more than half of the five most
    similar symbols have it. A type is incomplete in a member that lacks what more than 60 % of its
    members have. All of it takes two dozen calls to the graph, however many symbols there are.
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
    """How far the symbols around are, of the nearest `MOST`, without goals; they are fetched."""
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
                detail = f"{share:.0%} of what is like {symbol!r} has {predicate!r}"
                severity = round(0.8 * share, _DIGITS)
                yield Gap("missing-predicate", symbol, severity, detail, (predicate,))


def _incomplete_types(neighbours: Neighbours, symbols: Collection[str]) -> Iterator[Gap]:
    types = {symbol: _types(neighbours, symbol) for symbol in symbols}
    every = {kind for kinds in types.values() for kind in kinds}
    neighbours.fetch(every)
    members = {kind: _members(neighbours, kind) for kind in every}
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
    return {fact.predicate for fact in neighbours.out(symbol)}


def _types(neighbours: Neighbours, symbol: str) -> list[str]:
    return [fact.object for fact in neighbours.out(symbol) if fact.predicate == IS_A]


def _members(neighbours: Neighbours, kind: str) -> list[str]:
    facts = neighbours.into(kind)
    return sorted(fact.subject for fact in facts if fact.predicate == IS_A)[:MEMBERS]


def _shares(neighbours: Neighbours, symbols: Collection[str]) -> dict[str, float]:
    """Which share of those symbols has each predicate; nothing when there are not two."""
    if len(symbols) < _ENOUGH:
        return {}
    counts = Counter(name for symbol in symbols for name in _predicates(neighbours, symbol))
    return {name: counts[name] / len(symbols) for name in sorted(counts)}
