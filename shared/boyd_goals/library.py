"""Documents the agent has ingested, cut into passages and searched by words."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from boyd.plugin import State
from boyd.text.tokenizer import words

#: The number of documents kept, of passages per document, and the usual length of a passage.
DOCUMENTS, PASSAGES, CHARS = 300, 200, 800
#: The number of a document's most frequent words that are indexed, and their greatest length.
ABOUT, WORD = 60, 40
#: The most bytes of all passages of a document, and of the index.
BYTES = 900_000
#: The number of documents a search reads.
SEARCHED = 8
#: Seconds that a document is kept.
KEEP = 365 * 86400.0

_INDEX = "library"
_BREAK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Passage:
    """A piece of a document, and the number of searched words in it."""

    title: str
    number: int
    text: str
    found: int


@dataclass
class Library:
    """The documents of one agent, in its plugin's state."""

    _state: State

    def add(self, title: str, text: str, source: str) -> tuple[int, list[str]]:
        """Add or replace a document; returns its number of passages and its frequent words."""
        parts = passages(text)
        found = (word for passage in parts for word in words(passage))
        counted = Counter(word for word in found if len(word) <= WORD)
        about = [word for word, _ in counted.most_common(ABOUT)]
        key = _key(title)
        self._state.set(key, {"title": title, "source": source, "passages": parts}, KEEP)
        named = sorted(word for word in words(title) if len(word) <= WORD)
        entry = {"key": key, "title": title, "about": [*named, *about]}
        gone: list[str] = []

        def add_entry(found: Any) -> list[Any]:
            rest = [one for one in found or [] if one["key"] != key]
            kept = [*rest, entry][-DOCUMENTS:]
            while len(kept) > 1 and _bytes(kept) > BYTES:
                kept = kept[len(kept) // 8 + 1 :]
            left = {one["key"] for one in kept}
            gone[:] = [one["key"] for one in rest if one["key"] not in left]
            return kept

        self._state.update(_INDEX, add_entry, KEEP)
        for forgotten in gone:
            self._state.delete(forgotten)
        return len(parts), about

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The passages with most words of the query, from the documents that match best."""
        wanted = words(query)
        index = self._state.get(_INDEX) or []
        scored = [(len(wanted & set(one["about"])), one["key"]) for one in index]
        best = sorted((pair for pair in scored if pair[0]), reverse=True)[:SEARCHED]
        documents = self._state.get_many([key for _, key in best])
        found = [
            Passage(document["title"], number, text, len(wanted & words(text)))
            for document in documents.values()
            for number, text in enumerate(document["passages"], 1)
        ]
        fitting = [passage for passage in found if passage.found]
        return sorted(fitting, key=lambda one: (-one.found, one.title, one.number))[:top_k]


def passages(text: str) -> list[str]:
    """Paragraphs, with short ones joined and long ones cut."""
    found: list[str] = []
    for paragraph in filter(None, (part.strip() for part in _BREAK.split(text))):
        if found and len(found[-1]) + len(paragraph) < CHARS:
            found[-1] = f"{found[-1]}\n\n{paragraph}"
        else:
            found += [paragraph[at : at + CHARS] for at in range(0, len(paragraph), CHARS)]
    kept, size = list[str](), 0
    for passage in found[:PASSAGES]:
        size += _bytes(passage)
        if size > BYTES:
            break
        kept.append(passage)
    return kept


def _bytes(value: Any) -> int:
    """The stored size, in which a character outside ASCII takes six."""
    return len(json.dumps(value))


def _key(title: str) -> str:
    return f"library:{hashlib.sha256(title.encode()).hexdigest()[:16]}"
