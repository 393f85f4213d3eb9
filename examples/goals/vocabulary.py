"""Writes a public vocabulary as Turtle: what Python packages say that they are for.

The classifiers of the Python Package Index are a tree, such as `Topic :: System :: Monitoring`.
They ship with the package trove-classifiers.
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

from trove_classifiers import classifiers

_PREFIXES = """\
@prefix : <https://example.org/classifiers/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
"""


def paths() -> list[tuple[str, ...]]:
    """All topics and their ancestors, as the names on the path to them."""
    found: set[tuple[str, ...]] = set()
    for classifier in classifiers:
        parts = tuple(classifier.split(" :: "))
        if parts[0] == "Topic":
            found.update(parts[:length] for length in range(1, len(parts) + 1))
    return sorted(found)


def turtle() -> str:
    """The topics as classes; an ambiguous name also gives its parent."""
    every = paths()
    names = Counter(path[-1] for path in every)
    lines = [_PREFIXES]
    for path in every:
        name = path[-1] if names[path[-1]] == 1 else f"{path[-1]} ({path[-2]})"
        above = f" ; rdfs:subClassOf {_term(path[:-1])}" if len(path) > 1 else ""
        lines.append(f'{_term(path)} rdfs:label "{name}"{above} .')
    return "\n".join(lines)


def _term(path: tuple[str, ...]) -> str:
    return f"<https://example.org/classifiers/{quote('/'.join(path))}>"


if __name__ == "__main__":
    print(turtle())
