"""The state of a plugin: JSON values with a time to live, and a graph of facts."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from boyd.errors import PayloadTooLarge, PluginError, StoreError
from boyd.models import Place, Triple
from boyd.plugin import News
from boyd.plugin.context import DEFAULT_TTL
from boyd.store.keys import GraphKeys, Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts
from boyd.text.tokenizer import words

#: The largest value in bytes.
MAX_BYTES = 1_000_000
_UPDATE_ATTEMPTS = 200


class PluginState:
    """Implements `boyd.plugin.State`."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, plugin_id: str) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._plugin_id = plugin_id

    def get(self, key: str, default: Any = None) -> Any:
        """The value of *key*, or *default*."""
        text = self._read(key)
        return default if text is None else json.loads(text)

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        """The values of the *keys* that are set, in one round trip."""
        if not keys:
            return {}
        with translate_errors():
            texts = self._client.mget([self._key(key) for key in keys])
        return {k: json.loads(text) for k, text in zip(keys, texts, strict=True) if text}

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Set *key* unconditionally.

        Raises:
            PluginError: the value is not JSON, or too large.
        """
        text = self._dump(key, value)
        with translate_errors():
            self._client.set(self._key(key), text, px=_ms(ttl))

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        """Set *key* only if its value is *expected* (None: absent); return whether it was set."""
        before = "" if expected is None else self._dump(key, expected)
        return self._swap(key, before, self._dump(key, value), ttl)

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        """Set *key* to `change(current)`, retrying on conflicts; return the new value.

        *news* is called after *change*; each item becomes an event in the same step.
        """
        for attempt in range(_UPDATE_ATTEMPTS):
            text = self._read(key)
            value = change(None if text is None else json.loads(text))
            events = news() if news else ()
            if self._swap(key, text or "", self._dump(key, value), ttl, events):
                return value
            # Random delays keep competing workers from colliding again.
            time.sleep(random.uniform(0, 0.001) * min(attempt, 20))
        raise StoreError(f"state {key!r} of {self._plugin_id!r} has too many concurrent changes")

    def delete(self, key: str) -> None:
        """Remove *key*."""
        with translate_errors():
            self._client.delete(self._key(key))

    def _read(self, key: str) -> str | None:
        with translate_errors():
            text: str | None = self._client.get(self._key(key))
            return text

    def _swap(
        self, key: str, before: str, text: str, ttl: float | None, news: Sequence[News] = ()
    ) -> bool:
        swapped = self._scripts.run(
            "set_state",
            state=self._key(key),
            expected=before,
            value=text,
            ttl=_ms(ttl),
            plugin=self._plugin_id,
            news=[*news],
        )
        return bool(swapped)

    def _key(self, key: str) -> str:
        return self._keys.state(self._plugin_id, key)

    def _dump(self, key: str, value: Any) -> str:
        try:
            text = json.dumps(value, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise PluginError(self._plugin_id, f"state {key!r} is not JSON: {error}") from None
        if len(text) > MAX_BYTES:
            size = f"{len(text)} bytes; the limit is {MAX_BYTES}"
            raise PayloadTooLarge(f"state {key!r} of {self._plugin_id!r} has {size}")
        return text


def _ms(ttl: float | None) -> int:
    return max(1, int((DEFAULT_TTL if ttl is None else ttl) * 1000))


# A fact graph is a hash of all facts, with indexes by subject, object, predicate and word.
# All facts are indexed by label, and knowledge also by the words of its labels; the agent's notes
# about its own work (`agent:…`) are not. Results with a limit come from sorted sets, so the same
# facts give the same answer on every server.

#: The most facts in a graph.
MOST = 1_000_000
#: Facts to add in one step, and to read in one.
BATCH = 200
PAGE = 1000
#: Subjects whose facts a page reads in one step.
_SUBJECTS = 200

#: Separates the parts of a fact in keys and members; no label contains it.
_BETWEEN = "\x1f"


class FactGraph:
    """A graph of one agent; implements `boyd.plugin.Graph`."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: GraphKeys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts, `BATCH` of them per step; return how many were new or gained confidence.

        Raises:
            PayloadTooLarge: the graph would hold more than `MOST`; the batch was not added.
            ValueError: a label cannot be stored.
        """
        facts = list(triples)
        added = 0
        for at in range(0, len(facts), BATCH):
            batch = [_fact(triple) for triple in facts[at : at + BATCH]]
            count = self._scripts.run("add_facts", graph=self._keys.graph, most=MOST, given=batch)
            if count < 0:
                raise PayloadTooLarge(f"a graph holds at most {MOST} facts")
            added += count
        return added

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; False when it did not exist."""
        triple = Triple(subject=subject, predicate=predicate, object=object)
        s, p, o = _parts(triple)
        removed = self._scripts.run(
            "remove_fact",
            graph=self._keys.graph,
            s=s,
            p=p,
            o=o,
            knowledge=not triple.is_metadata,
            words=[] if triple.is_metadata else _label_words(triple),
        )
        return bool(removed)

    def out(self, symbol: str) -> list[Triple]:
        """The facts about a symbol."""
        return self.out_many([symbol])[symbol]

    def into(self, symbol: str) -> list[Triple]:
        """The facts that name a symbol as their object."""
        return self.into_many([symbol])[symbol]

    def out_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts about each symbol."""
        members = self._members("out", symbols)
        pairs = {s: [tuple(m.split(_BETWEEN)) for m in members[s]] for s in symbols}
        return self._read({s: [(s, p, o) for p, o in pairs[s]] for s in symbols})

    def into_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts that name each symbol as their object."""
        members = self._members("into", symbols)
        pairs = {o: [tuple(m.split(_BETWEEN)) for m in members[o]] for o in symbols}
        return self._read({o: [(s, p, o) for s, p in pairs[o]] for o in symbols})

    def with_predicate(self, predicate: str, limit: int = PAGE) -> list[Triple]:
        """Up to *limit* facts with a predicate, in the order of their labels."""
        with translate_errors():
            members = self._client.zrange(self._keys.index("by", predicate), 0, limit - 1)
        pairs = [tuple(member.split(_BETWEEN)) for member in members]
        return self._read({predicate: [(s, predicate, o) for s, o in pairs]})[predicate]

    def degrees(self, symbols: Sequence[str]) -> dict[str, int]:
        """The number of facts with each symbol as subject or object."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for symbol in symbols:
                pipe.scard(self._keys.index("out", symbol))
                pipe.scard(self._keys.index("into", symbol))
            counts = pipe.execute()
        sums = [out + into for out, into in zip(counts[::2], counts[1::2], strict=True)]
        return dict(zip(symbols, sums, strict=True))

    def symbols_with(self, words: Collection[str], limit: int = PAGE) -> dict[str, list[str]]:
        """Up to *limit* labels with each word, as split by `boyd.text.tokenizer`."""
        distinct = list(words)
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for word in distinct:
                pipe.zrange(self._keys.index("word", word), 0, limit - 1)
            return dict(zip(distinct, pipe.execute(), strict=True))

    def size(self) -> int:
        """The number of facts."""
        with translate_errors():
            return int(self._client.hlen(self._keys.facts))

    def revision(self) -> int:
        """The number of changes so far."""
        with translate_errors():
            return int(self._client.hget(self._keys.meta, "revision") or 0)

    def page(self, after: Place | None = None, limit: int = PAGE) -> list[Triple]:
        """Up to *limit* facts in the order of their labels, from *after* on."""
        facts: list[Triple] = []
        first = "-" if after is None else "[" + after[0]
        while len(facts) < limit:
            with translate_errors():
                names = self._client.zrange(
                    self._keys.subjects, first, "+", bylex=True, offset=0, num=_SUBJECTS
                )
            if not names:
                break
            about = self.out_many(names)
            facts += [fact for name in names for fact in about[name] if _is_after(fact, after)]
            first = "(" + names[-1]
        return facts[:limit]

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels.

        Facts added or removed during the iteration may be missing or included.
        """
        last: Place | None = None
        while facts := self.page(last):
            yield from facts
            last = facts[-1].place

    def _members(self, index: str, symbols: Sequence[str]) -> dict[str, list[str]]:
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for symbol in symbols:
                pipe.smembers(self._keys.index(index, symbol))
            replies = pipe.execute()
        return {symbol: sorted(members) for symbol, members in zip(symbols, replies, strict=True)}

    def _read(self, places: dict[str, list[tuple[str, ...]]]) -> dict[str, list[Triple]]:
        """The facts at these places; those just removed are left out."""
        every = [place for group in places.values() for place in group]
        values: dict[tuple[str, ...], str | None] = {}
        for at in range(0, len(every), PAGE):
            some = every[at : at + PAGE]
            with translate_errors():
                texts = self._client.hmget(
                    self._keys.facts, [_BETWEEN.join(place) for place in some]
                )
            values |= dict(zip(some, texts, strict=True))
        return {
            name: [_triple(place, value) for place in group if (value := values[place])]
            for name, group in places.items()
        }


def _is_after(triple: Triple, place: Place | None) -> bool:
    # In the order of an index's members; tuples order differently when a label contains a control
    # character.
    return place is None or _BETWEEN.join(triple.place) > _BETWEEN.join(place)


def _parts(triple: Triple) -> tuple[str, str, str]:
    parts = triple.place
    if any(_BETWEEN in part for part in parts):
        raise ValueError("a label contains the control character 0x1f")
    return parts


def _fact(triple: Triple) -> list[Any]:
    """A fact as an argument of the script `add_facts`."""
    own = [] if triple.is_metadata else _label_words(triple)
    knowledge = not triple.is_metadata
    return [*_parts(triple), str(triple.confidence), triple.source or "", knowledge, own]


def _label_words(triple: Triple) -> list[Any]:
    """Triples of label, word, and the number of other words in the label."""
    rows: list[Any] = []
    for label in _parts(triple):
        own = words(label)
        for word in own:
            rows += [label, word, len(own) - 1]
    return rows


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


class DelegatedGraph(FactGraph):
    """A graph of another agent, which lets this one read it."""

    def __init__(
        self,
        client: Client,
        scripts: KeyedScripts,
        keys: GraphKeys,
        check_write: Callable[[], None],
    ) -> None:
        """*check_write* raises `NotDelegated` if it may not be changed."""
        super().__init__(client, scripts, keys)
        self._check_write = check_write

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts, if that is delegated."""
        self._check_write()
        return super().add(triples)

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact, if that is delegated."""
        self._check_write()
        return super().remove(subject, predicate, object)
