"""A graph of facts in this process: what `ctx.graph` gives, without Redis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from boyd.models import Triple
from boyd.models.situation import Place
from boyd.tokenizer import words as words_of

#: Redis keeps the parts of a fact apart with it, so no label may hold it.
_BETWEEN = "\x1f"


class MemoryGraph:
    """Implements `boyd.plugin.context.Graph` with dicts; for tests, and for one thread.

    Attributes:
        calls: the names of the methods that were called, to count round trips.
    """

    def __init__(self, triples: Iterable[Triple] = ()) -> None:
        self._facts: dict[Place, Triple] = {}
        self._revision = 0
        self.calls: list[str] = []
        self.add(triples)
        self.calls.clear()

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; how many were new, or surer than before."""
        self.calls.append("add")
        added = 0
        for triple in list(triples):
            if any(_BETWEEN in part for part in triple.place):
                raise ValueError("a label holds the control character 0x1f")
            old = self._facts.get(triple.place)
            if old is None or triple.confidence > old.confidence:
                self._facts[triple.place] = triple
                added += 1
        self._revision += added > 0
        return added

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; whether it was there."""
        self.calls.append("remove")
        there = self._facts.pop((subject, predicate, object), None) is not None
        self._revision += there
        return there

    def out(self, symbol: str) -> list[Triple]:
        """The facts about a symbol."""
        return self.out_many([symbol])[symbol]

    def into(self, symbol: str) -> list[Triple]:
        """The facts that name a symbol as their object."""
        return self.into_many([symbol])[symbol]

    def out_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts about each of those symbols."""
        self.calls.append("out_many")
        found: dict[str, list[Triple]] = {symbol: [] for symbol in symbols}
        for triple in self._ordered():
            if triple.subject in found:
                found[triple.subject].append(triple)
        return found

    def into_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts that name each of those symbols as their object."""
        self.calls.append("into_many")
        found: dict[str, list[Triple]] = {symbol: [] for symbol in symbols}
        for triple in self._ordered():
            if triple.object in found:
                found[triple.object].append(triple)
        return found

    def with_predicate(self, predicate: str, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts with that predicate."""
        self.calls.append("with_predicate")
        return [triple for triple in self._ordered() if triple.predicate == predicate][:limit]

    def degrees(self, symbols: Sequence[str]) -> dict[str, int]:
        """How many facts each of those symbols is subject or object of."""
        self.calls.append("degrees")
        ends = [end for triple in self._facts.values() for end in (triple.subject, triple.object)]
        return {symbol: ends.count(symbol) for symbol in symbols}

    def symbols_with(self, words: Collection[str], limit: int = 1000) -> dict[str, list[str]]:
        """For each of those words, up to *limit* labels of knowledge that hold it."""
        self.calls.append("symbols_with")
        holding: defaultdict[str, set[str]] = defaultdict(set)
        for triple in self._facts.values():
            for label in () if triple.is_metadata else triple.place:
                for word in words_of(label):
                    holding[word].add(label)
        ordered = {
            word: sorted(holding[word], key=lambda label: (len(words_of(label)), label))
            for word in words
        }
        return {word: labels[:limit] for word, labels in ordered.items()}

    def size(self) -> int:
        """How many facts there are."""
        return len(self._facts)

    def revision(self) -> int:
        """How often it was changed."""
        return self._revision

    def page(self, after: Place | None = None, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts in the order of their labels, those *after* one."""
        self.calls.append("page")
        return [one for one in self._ordered() if after is None or one.place > after][:limit]

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels."""
        self.calls.append("all")
        yield from self._ordered()

    def _ordered(self) -> list[Triple]:
        return [self._facts[key] for key in sorted(self._facts)]
