"""What plugins see of a graph of facts (M11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from boyd.models import Triple
from boyd.models.graph import Place


class Graph(Protocol):
    """Facts that all workers share, found by subject, object, predicate and word.

    A fact is there once, with the greatest confidence it was ever added with. Labels that a graph
    does not know have no facts. Lists are in the order of their labels. Each call but `all`,
    `page` and a large `add` is one round trip or two, however many labels it is given.
    """

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; how many were new, or surer than before.

        Raises:
            PayloadTooLarge: the graph would become too large.
            ValueError: a label cannot be stored.
        """

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; whether it was there."""

    def out(self, symbol: str) -> list[Triple]:
        """The facts about a symbol."""

    def into(self, symbol: str) -> list[Triple]:
        """The facts that name a symbol as their object."""

    def out_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts about each of those symbols."""

    def into_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts that name each of those symbols as their object."""

    def with_predicate(self, predicate: str, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts with that predicate, the first ones in the order of their labels."""

    def degrees(self, symbols: Sequence[str]) -> dict[str, int]:
        """How many facts each of those symbols is subject or object of."""

    def symbols_with(self, words: Collection[str], limit: int = 1000) -> dict[str, list[str]]:
        """For each of those words, as `boyd.words` has them, up to *limit* labels that hold it.

        Those with the fewest other words come first, then by label. They are labels of subjects,
        predicates and objects of knowledge: what an agent notes of its own work (`agent:…`) is
        none.
        """

    def size(self) -> int:
        """How many facts there are."""

    def revision(self) -> int:
        """How often it was changed."""

    def page(self, after: Place | None = None, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts in the order of their labels: the first ones, or those *after* one.

        Whoever reads page by page sees each fact once that is there all the while.
        """

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels.

        What is added or removed meanwhile may be among them or not.
        """
