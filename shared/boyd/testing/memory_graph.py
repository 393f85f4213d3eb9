"""An in-memory implementation of `ctx.graph`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from boyd.models import Place, Triple
from boyd.text.tokenizer import words as words_of

#: Redis separates the parts of a fact with it, so no label may contain it.
_SEPARATOR = "\x1f"


class MemoryGraph:
    """Implements `boyd.plugin.context.Graph` with dicts, for tests with a single thread.

    `calls` lists the names of called methods, to count round trips.
    """

    def __init__(self, triples: Iterable[Triple] = ()) -> None:
        self._facts: dict[Place, Triple] = {}
        self._revision = 0
        self.calls: list[str] = []
        self.add(triples)
        self.calls.clear()

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; return the number that are new or have a higher confidence."""
        self.calls.append("add")
        added = 0
        for triple in list(triples):
            if any(_SEPARATOR in part for part in triple.place):
                raise ValueError("a label contains the control character 0x1f")
            old = self._facts.get(triple.place)
            if old is None or triple.confidence > old.confidence:
                self._facts[triple.place] = triple
                added += 1
        self._revision += added > 0
        return added

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; return True if it existed."""
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
        """The number of facts with each of those symbols as subject or object."""
        self.calls.append("degrees")
        ends = [end for triple in self._facts.values() for end in (triple.subject, triple.object)]
        return {symbol: ends.count(symbol) for symbol in symbols}

    def symbols_with(self, words: Collection[str], limit: int = 1000) -> dict[str, list[str]]:
        """For each of those words, up to *limit* labels of knowledge that contain it."""
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
        """The number of facts."""
        return len(self._facts)

    def revision(self) -> int:
        """The number of changes."""
        return self._revision

    def page(self, after: Place | None = None, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts in the order of their labels, behind *after*."""
        self.calls.append("page")
        return [fact for fact in self._ordered() if after is None or fact.place > after][:limit]

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels."""
        self.calls.append("all")
        yield from self._ordered()

    def _ordered(self) -> list[Triple]:
        return [self._facts[key] for key in sorted(self._facts)]
