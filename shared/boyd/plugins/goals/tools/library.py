"""Texts that the agent has taken in, cut into passages and found by their words."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from boyd.plugin import State
from boyd.tokenizer import words

#: How many documents are kept, how many passages of one, and about how long those are.
DOCUMENTS = 300
PASSAGES = 200
CHARS = 800
#: How many words of a document tell what it is about.
ABOUT = 60
#: The most characters of such a word: what is longer is none.
WORD = 40
#: The most bytes that all passages of a document take, and the list of all documents.
BYTES = 900_000
#: How many documents a search looks into.
LOOKED_INTO = 8
#: Seconds that a document is kept.
KEEP = 365 * 86400.0

_INDEX = "library"
_BREAK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Passage:
    """A piece of a document, and how many of the words that were looked for are in it."""

    title: str
    number: int
    text: str
    found: int


class Library:
    """The documents of one agent, in its plugin's state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def add(self, title: str, text: str, source: str) -> tuple[int, list[str]]:
        """Take a document in, in place of one of the same title; passages, and what it is about."""
        passages = _passages(text)
        found = (word for passage in passages for word in words(passage))
        counted = Counter(word for word in found if len(word) <= WORD)
        about = [word for word, _ in counted.most_common(ABOUT)]
        key = _key(title)
        self._state.set(key, {"title": title, "source": source, "passages": passages}, KEEP)
        named = sorted(word for word in words(title) if len(word) <= WORD)
        entry = {"key": key, "title": title, "about": [*named, *about]}
        gone: list[str] = []

        def listed(found: Any) -> list[Any]:
            rest = [one for one in found or [] if one["key"] != key]
            kept = [*rest, entry][-DOCUMENTS:]
            while len(kept) > 1 and _bytes(kept) > BYTES:
                kept = kept[len(kept) // 8 + 1 :]
            left = {one["key"] for one in kept}
            gone[:] = [one["key"] for one in rest if one["key"] not in left]
            return kept

        self._state.update(_INDEX, listed, KEEP)
        for forgotten in gone:
            self._state.delete(forgotten)
        return len(passages), about

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The passages that have most of the query's words, of documents that are about them."""
        wanted = words(query)
        index = self._state.get(_INDEX) or []
        scored = [(len(wanted & set(one["about"])), one["key"]) for one in index]
        best = sorted((pair for pair in scored if pair[0]), reverse=True)[:LOOKED_INTO]
        documents = self._state.get_many([key for _, key in best])
        found = [
            Passage(document["title"], number, text, len(wanted & words(text)))
            for document in documents.values()
            for number, text in enumerate(document["passages"], 1)
        ]
        fitting = [passage for passage in found if passage.found]
        return sorted(fitting, key=lambda one: (-one.found, one.title, one.number))[:top_k]


def _passages(text: str) -> list[str]:
    """Paragraphs, short ones put together and long ones cut."""
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
    """How long it is as it is stored: what is no ASCII takes six characters."""
    return len(json.dumps(value))


def _key(title: str) -> str:
    return f"library:{hashlib.sha256(title.encode()).hexdigest()[:16]}"
