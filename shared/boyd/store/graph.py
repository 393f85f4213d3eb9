"""Graphs of facts: a hash of all, and sets that find them by subject, object, predicate and word.

Every label can be looked for by its words, and so can those of facts that are knowledge; what an
agent notes of its own work (`agent:…`) is found by its labels only (M11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from boyd.errors import PayloadTooLarge
from boyd.models import Triple
from boyd.store.client import Client, translated
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts
from boyd.words import words

#: The most facts of one graph.
MOST = 1_000_000
#: How many facts are added in one step, and read in one.
BATCH = 200
PAGE = 1000

#: Between the parts of a fact in keys and members; no label holds it.
_BETWEEN = "\x1f"


class FactGraph:
    """One graph of one agent; implements `boyd.plugin.Graph`."""

    def __init__(self, client: Client, scripts: Scripts, keys: Keys, name: str) -> None:
        self._client = client
        self._scripts = scripts
        self._prefix = keys.graph(name)
        self._facts = self._prefix + "facts"
        self._meta = self._prefix + "meta"

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; how many were new, or surer than before.

        Every `BATCH` of them is one step.

        Raises:
            PayloadTooLarge: the graph would hold more than `MOST`; the batch was not added.
            ValueError: a label cannot be stored.
        """
        known = list(triples)
        added = 0
        for at in range(0, len(known), BATCH):
            facts: list[Any] = []
            of_labels: list[str] = []
            for triple in known[at : at + BATCH]:
                own = [] if triple.is_metadata else _label_words(triple)
                facts += [*_parts(triple), triple.confidence, triple.source or ""]
                facts += [int(not triple.is_metadata), len(own)]
                of_labels += own
            args = [self._prefix, MOST, len(facts), *facts, *of_labels]
            found = self._scripts.run("add_facts", [self._facts, self._meta], args)
            if found < 0:
                raise PayloadTooLarge(f"a graph holds at most {MOST} facts")
            added += found
        return added

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; whether it was there."""
        triple = Triple(subject=subject, predicate=predicate, object=object)
        own = [] if triple.is_metadata else _label_words(triple)
        args = [self._prefix, *_parts(triple), int(not triple.is_metadata), *own]
        return bool(self._scripts.run("remove_fact", [self._facts, self._meta], args))

    def out(self, symbol: str) -> list[Triple]:
        """The facts about a symbol."""
        return self.out_many([symbol])[symbol]

    def into(self, symbol: str) -> list[Triple]:
        """The facts that name a symbol as their object."""
        return self.into_many([symbol])[symbol]

    def out_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts about each of those symbols."""
        found = self._members("out:", symbols)
        pairs = {s: [tuple(m.split(_BETWEEN)) for m in found[s]] for s in symbols}
        return self._read({s: [(s, p, o) for p, o in pairs[s]] for s in symbols})

    def into_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts that name each of those symbols as their object."""
        found = self._members("into:", symbols)
        pairs = {o: [tuple(m.split(_BETWEEN)) for m in found[o]] for o in symbols}
        return self._read({o: [(s, p, o) for s, p in pairs[o]] for o in symbols})

    def with_predicate(self, predicate: str, limit: int = PAGE) -> list[Triple]:
        """Up to *limit* facts with that predicate."""
        members = self._some(self._prefix + "by:" + predicate, limit)
        pairs = [tuple(member.split(_BETWEEN)) for member in members]
        return self._read({predicate: [(s, predicate, o) for s, o in pairs]})[predicate]

    def degrees(self, symbols: Sequence[str]) -> dict[str, int]:
        """How many facts each of those symbols is subject or object of."""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for symbol in symbols:
                pipe.scard(self._prefix + "out:" + symbol)
                pipe.scard(self._prefix + "into:" + symbol)
            counts = pipe.execute()
        sums = [out + into for out, into in zip(counts[::2], counts[1::2], strict=True)]
        return dict(zip(symbols, sums, strict=True))

    def symbols_with(self, words: Collection[str], limit: int = PAGE) -> dict[str, list[str]]:
        """For each of those words, as `boyd.words` has them, up to *limit* labels that hold it."""
        keys = {word: self._prefix + "word:" + word for word in words}
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for key in keys.values():
                pipe.sscan(key, 0, count=min(limit, PAGE))
            pages = pipe.execute()
        return {
            word: self._some(key, limit)
            if cursor and len(set(page)) < limit
            else _first(page, limit)
            for (word, key), (cursor, page) in zip(keys.items(), pages, strict=True)
        }

    def size(self) -> int:
        """How many facts there are."""
        with translated():
            return int(self._client.hlen(self._facts))

    def revision(self) -> int:
        """How often it was changed."""
        with translated():
            return int(self._client.hget(self._meta, "revision") or 0)

    def all(self) -> Iterator[Triple]:
        """Every fact, in no order; what changes meanwhile may be among them or not."""
        seen: set[str] = set()
        cursor: Any = None
        while cursor != 0:
            with translated():
                cursor, page = self._client.hscan(self._facts, cursor or 0, count=PAGE)
            for key, value in page.items():
                if key not in seen:
                    seen.add(key)
                    yield _triple(tuple(key.split(_BETWEEN)), value)

    def _members(self, index: str, symbols: Sequence[str]) -> dict[str, list[str]]:
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for symbol in symbols:
                pipe.smembers(self._prefix + index + symbol)
            found = pipe.execute()
        return {symbol: sorted(members) for symbol, members in zip(symbols, found, strict=True)}

    def _some(self, key: str, limit: int) -> list[str]:
        found: list[str] = []
        with translated():
            for member in self._client.sscan_iter(key, count=min(limit, PAGE)):
                found.append(member)
                if len(found) >= limit:
                    break
        return sorted(dict.fromkeys(found))

    def _read(self, places: dict[str, list[tuple[str, ...]]]) -> dict[str, list[Triple]]:
        """The facts at those places, in one round trip; one that has just gone is left out."""
        every = [place for group in places.values() for place in group]
        values: dict[tuple[str, ...], str | None] = {}
        for at in range(0, len(every), PAGE):
            some = every[at : at + PAGE]
            with translated():
                found = self._client.hmget(self._facts, [_BETWEEN.join(place) for place in some])
            values |= dict(zip(some, found, strict=True))
        return {
            name: [_triple(place, value) for place in group if (value := values[place])]
            for name, group in places.items()
        }


def _first(members: Sequence[str], limit: int) -> list[str]:
    return sorted(list(dict.fromkeys(members))[:limit])


def _parts(triple: Triple) -> tuple[str, str, str]:
    parts = (triple.subject, triple.predicate, triple.object)
    if any(_BETWEEN in part for part in parts):
        raise ValueError("a label holds the control character 0x1f")
    return parts


def _label_words(triple: Triple) -> list[str]:
    return [text for label in _parts(triple) for word in words(label) for text in (label, word)]


def _triple(place: tuple[str, ...], value: str) -> Triple:
    subject, predicate, object = place
    confidence, _, source = value.partition(" ")
    return Triple(
        subject=subject,
        predicate=predicate,
        object=object,
        confidence=float(confidence),
        source=source or None,
    )
