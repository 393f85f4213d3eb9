"""Which symbols stand in the graph as another one does (`similarity_search`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from boyd.models import Triple
from boyd.plugin.context import Graph
from boyd.plugins.goals.knowledge.activation import Neighbours
from boyd.tokenizer import is_place, terms, tokens, words

#: How many labels are looked at for each word, those with the fewest other words first.
_LABELS = 50


def mentioned(graph: Graph, text: str, most: int) -> list[str]:
    """Up to *most* symbols that *text* speaks of.

    First the addresses and paths that it names, as far as they are symbols. Then the labels with
    the fewest words that the text does not have; of those, labels that have more of its words,
    labels that stand in the text as they are, and those whose words come earlier in it.
    """
    sought = terms(text)
    found = graph.symbols_with(sought, _LABELS) if sought else {}
    labels = {label for some in found.values() for label in some}
    places = _known(graph, [token for token in tokens(text) if is_place(token)])
    ranked = sorted(labels, key=lambda label: _distance(label, text.casefold(), sought))
    return list(dict.fromkeys([*places, *ranked]))[:most]


def _distance(label: str, text: str, sought: Sequence[str]) -> tuple[int, int, bool, int, str]:
    own = words(label)
    matched = [place for place, word in enumerate(sought) if word in own]
    is_literal = label.casefold() in text
    return (len(own) - len(matched), -len(matched), not is_literal, matched[0], label)


def _known(graph: Graph, labels: Sequence[str]) -> list[str]:
    degrees = graph.degrees(labels) if labels else {}
    return [label for label in dict.fromkeys(labels) if degrees[label]]


#: How much the same relation to the same symbol, the same relation, and a word of the label count.
SAME_FACT, SAME_RELATION, SAME_WORD = 2, 1, 1
#: How many symbols are compared with each, those with the most neighbours in common first.
COMPARED = 100
_DIGITS = 9
_UNLIKE = 0.5

#: What a symbol is compared by, and how much each counts.
_Features: TypeAlias = dict[tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Similar:
    """A symbol like another: above 0.5 (nothing in common), up to 1 (the same in all)."""

    symbol: str
    similarity: float


def similar(graph: Graph, symbol: str, top_k: int = 5) -> list[Similar]:
    """The symbols most like that one, the most similar first; ties by label."""
    return similar_many(graph, [symbol], top_k)[symbol]


def similar_many(
    graph: Graph, symbols: Collection[str], top_k: int = 5
) -> dict[str, list[Similar]]:
    """For each of those symbols the ones most like it, in six calls to the graph.

    Compared are symbols with a neighbour in common, by what is known of them in both directions and
    by the words of their labels: 0.5 + 0.5·cos of these features.
    """
    neighbours = Neighbours(graph)
    neighbours.fetch(symbols)
    neighbours.fetch(neighbours.around(symbols))
    compared = {symbol: _candidates(neighbours, symbol) for symbol in symbols}
    neighbours.fetch(one for candidates in compared.values() for one in candidates)
    comparison = _Comparison(neighbours)
    return {symbol: comparison.nearest(symbol, compared[symbol])[:top_k] for symbol in symbols}


def _candidates(neighbours: Neighbours, symbol: str) -> list[str]:
    """The symbols that share neighbours with that one, those that share most first."""
    shared: Counter[str] = Counter()
    for middle in neighbours.around([symbol]):
        shared.update(neighbours.around([middle]) - {symbol})
    return sorted(shared, key=lambda one: (-shared[one], one))[:COMPARED]


class _Comparison:
    """What symbols are compared by."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._known: dict[str, _Features] = {}

    def nearest(self, symbol: str, candidates: Iterable[str]) -> list[Similar]:
        own = self._of(symbol)
        found = [Similar(one, round(_likeness(own, self._of(one)), _DIGITS)) for one in candidates]
        like = [one for one in found if one.similarity > _UNLIKE]
        return sorted(like, key=lambda one: (-one.similarity, one.symbol))

    def _of(self, symbol: str) -> _Features:
        if symbol not in self._known:
            out, into = self._neighbours.out(symbol), self._neighbours.into(symbol)
            self._known[symbol] = _features(symbol, out, into)
        return self._known[symbol]


def _features(symbol: str, out: Iterable[Triple], into: Iterable[Triple]) -> _Features:
    found: _Features = {("word", word): SAME_WORD for word in words(symbol)}
    for fact in out:
        found[("out", fact.predicate)] = SAME_RELATION
        found[("out", fact.predicate, fact.object)] = SAME_FACT
    for fact in into:
        found[("into", fact.predicate)] = SAME_RELATION
        found[("into", fact.predicate, fact.subject)] = SAME_FACT
    return found


def _likeness(one: _Features, other: _Features) -> float:
    product = sum(weight * other.get(feature, 0) for feature, weight in one.items())
    lengths = math.prod(sum(weight**2 for weight in each.values()) for each in (one, other))
    return _UNLIKE + 0.5 * product / math.sqrt(lengths) if lengths else _UNLIKE
