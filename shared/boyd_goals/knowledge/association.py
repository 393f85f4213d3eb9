"""Associations between symbols, and gaps in the knowledge around a goal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boyd.models import Triple
from boyd.plugin.context import Graph
from boyd.text.tokenizer import is_place, terms, tokens, words
from boyd_goals.knowledge.turtle import GOAL, IS_A

#: Labels per word of a text that are compared, those with the fewest other words first.
_LABELS = 50
#: Activation left after a hop, and the share left in a hop against the direction of a fact.
DECAY, AGAINST = 0.85, 0.5
#: The most symbols expanded per distance, most active first.
WIDTH = 500
#: Weights in a comparison: the same fact, the same relation, a word of the label.
SAME_FACT, SAME_RELATION, SAME_WORD = 2, 1, 1
#: The most symbols compared with one, those with most common neighbours first.
COMPARED = 100
#: Rounding makes equal values tie regardless of the order of multiplication.
_DIGITS = 9
_UNLIKE = 0.5

#: Weighted features of a symbol.
_Features: TypeAlias = dict[tuple[str, ...], int]


def find_mentions(graph: Graph, text: str, most: int) -> list[str]:
    """Up to *most* symbols that *text* mentions.

    Addresses and paths come first, then the labels with the fewest words missing from the text, the
    most words in common, a literal occurrence, and the earliest one.
    """
    sought = terms(text)
    labels_by_word = graph.symbols_with(sought, _LABELS) if sought else {}
    every = {label for some in labels_by_word.values() for label in some}
    labels = [label for label in every if not label.startswith(GOAL)]
    places = list(dict.fromkeys(token for token in tokens(text) if is_place(token)))
    degrees = graph.degrees(places) if places else {}
    existing = [place for place in places if degrees[place]]
    ranked = sorted(labels, key=lambda label: _distance(label, text.casefold(), sought))
    return list(dict.fromkeys([*existing, *ranked]))[:most]


def _distance(label: str, text: str, sought: Sequence[str]) -> tuple[int, int, bool, int, str]:
    own = words(label)
    matched = [place for place, word in enumerate(sought) if word in own]
    is_literal = label.casefold() in text
    return (len(own) - len(matched), -len(matched), not is_literal, matched[0], label)


class Neighbours:
    """The facts by subject (`out`) and by object (`into`), without those about the agent.

    Symbols are fetched together, in two calls, before they are used.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.out: dict[str, list[Triple]] = {}
        self.into: dict[str, list[Triple]] = {}

    def fetch(self, symbols: Iterable[str]) -> None:
        """Fetch the symbols that were not fetched before."""
        new = sorted(set(symbols) - self.out.keys())
        if new:
            self.out |= _knowledge(self._graph.out_many(new))
            self.into |= _knowledge(self._graph.into_many(new))

    def degree(self, symbol: str) -> int:
        """The number of facts with the symbol."""
        return len(self.out[symbol]) + len(self.into[symbol])

    def around(self, symbols: Iterable[str]) -> set[str]:
        """The direct neighbours of those symbols."""
        starts = list(symbols)
        objects = {fact.object for symbol in starts for fact in self.out[symbol]}
        return objects | {fact.subject for symbol in starts for fact in self.into[symbol]}


def _knowledge(facts: dict[str, list[Triple]]) -> dict[str, list[Triple]]:
    return {
        symbol: [triple for triple in triples if not triple.is_metadata]
        for symbol, triples in facts.items()
    }


@dataclass(frozen=True, slots=True)
class Activation:
    """A symbol reached by activation: the value and length of the best path, and its last fact."""

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
) -> list[Activation]:
    """The symbols most activated by the seeds, without the seeds; ties by label.

    A hop multiplies by the confidence of its fact and `DECAY`, and by `AGAINST` against the
    direction of the fact. A symbol has the value of the best path of at most *max_depth* hops;
    below *min_confidence* it is left out. Each distance costs two calls to the graph.
    *predicates* restricts the facts to follow.
    """
    neighbours = Neighbours(graph)
    worth = dict.fromkeys(seeds, 1.0)
    activated: dict[str, Activation] = {}
    frontier = dict(worth)
    for depth in range(1, max_depth + 1):
        widest = sorted(frontier, key=lambda symbol: (-frontier[symbol], symbol))[:WIDTH]
        neighbours.fetch(widest)
        reached: dict[str, float] = {}
        for start, end, fact, factor in _hops(neighbours, widest):
            if predicates is not None and fact.predicate not in predicates:
                continue
            value = round(frontier[start] * factor, _DIGITS)
            if value >= min_confidence and value > worth.get(end, 0.0):
                worth[end] = reached[end] = value
                activated[end] = Activation(end, value, depth, fact)
        frontier = reached
    ordered = sorted(activated.values(), key=lambda item: (-item.confidence, item.symbol))
    return ordered[:top_k]


def _hops(
    neighbours: Neighbours, symbols: Iterable[str]
) -> Iterator[tuple[str, str, Triple, float]]:
    """All hops from those symbols: start, end, fact and factor."""
    for symbol in symbols:
        for fact in neighbours.out[symbol]:
            yield symbol, fact.object, fact, fact.confidence * DECAY
        for fact in neighbours.into[symbol]:
            yield symbol, fact.subject, fact, fact.confidence * DECAY * AGAINST


@dataclass(frozen=True, slots=True)
class Similar:
    """A symbol similar to another: above 0.5 (nothing in common), up to 1 (identical)."""

    symbol: str
    similarity: float


def similar(graph: Graph, symbol: str, top_k: int = 5) -> list[Similar]:
    """The symbols most similar to that one; ties by label."""
    return similar_many(graph, [symbol], top_k)[symbol]


def similar_many(
    graph: Graph, symbols: Collection[str], top_k: int = 5
) -> dict[str, list[Similar]]:
    """The most similar symbols for each of those, in six calls to the graph.

    Symbols with a common neighbour are compared by their facts in both directions and the words of
    their labels: 0.5 + 0.5·cos of these features.
    """
    neighbours = Neighbours(graph)
    neighbours.fetch(symbols)
    neighbours.fetch(neighbours.around(symbols))
    compared = {symbol: _candidates(neighbours, symbol) for symbol in symbols}
    neighbours.fetch(candidate for candidates in compared.values() for candidate in candidates)
    every = {*symbols, *(candidate for candidates in compared.values() for candidate in candidates)}
    features = {symbol: _features(neighbours, symbol) for symbol in every}
    return {symbol: _nearest(symbol, compared[symbol], features)[:top_k] for symbol in symbols}


def _candidates(neighbours: Neighbours, symbol: str) -> list[str]:
    """The symbols with common neighbours, those with most of them first."""
    shared: Counter[str] = Counter()
    for middle in neighbours.around([symbol]):
        shared.update(neighbours.around([middle]) - {symbol})
    return sorted(shared, key=lambda other: (-shared[other], other))[:COMPARED]


def _nearest(
    symbol: str, candidates: Iterable[str], features: Mapping[str, _Features]
) -> list[Similar]:
    own = features[symbol]
    matches = [
        Similar(candidate, round(_likeness(own, features[candidate]), _DIGITS))
        for candidate in candidates
    ]
    like = [match for match in matches if match.similarity > _UNLIKE]
    return sorted(like, key=lambda match: (-match.similarity, match.symbol))


def _features(neighbours: Neighbours, symbol: str) -> _Features:
    features: _Features = {("word", word): SAME_WORD for word in words(symbol)}
    for fact in neighbours.out[symbol]:
        features[("out", fact.predicate)] = SAME_RELATION
        features[("out", fact.predicate, fact.object)] = SAME_FACT
    for fact in neighbours.into[symbol]:
        features[("into", fact.predicate)] = SAME_RELATION
        features[("into", fact.predicate, fact.subject)] = SAME_FACT
    return features


def _likeness(own: _Features, other: _Features) -> float:
    product = sum(weight * other.get(feature, 0) for feature, weight in own.items())
    lengths = math.prod(sum(weight**2 for weight in each.values()) for each in (own, other))
    return _UNLIKE + 0.5 * product / math.sqrt(lengths) if lengths else _UNLIKE


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
        symbol: [match.symbol for match in matches if match.similarity >= ALIKE]
        for symbol, matches in likes.items()
    }
    neighbours.fetch(peer for alike in peers.values() for peer in alike)
    for symbol, alike in peers.items():
        own = _predicates(neighbours, symbol)
        for predicate, share in _shares(neighbours, alike).items():
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
    members = {kind: subjects[:MEMBERS] for kind, subjects in members.items()}
    neighbours.fetch(member for subjects in members.values() for member in subjects)
    usual = {
        kind: {
            name for name, share in _shares(neighbours, subjects).items() if share > MOST_MEMBERS
        }
        for kind, subjects in members.items()
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
