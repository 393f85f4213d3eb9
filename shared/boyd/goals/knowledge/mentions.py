"""The symbols that a text speaks of, the nearest to its words first."""

from __future__ import annotations

from collections.abc import Sequence

from boyd.plugin.graph import Graph
from boyd.words import is_place, terms, tokens, words

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
