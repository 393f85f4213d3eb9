"""Dependencies between things, as an agent file lists them and observations report them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from boyd.models import Observation

#: The most characters of the reported dependencies, as JSON: what is larger is in no replay.
MAX_CHARS = 7_000
#: Seconds after which a dependency that nobody reports any more is forgotten.
LIFETIME = 86_400.0
#: Seconds between two notes that a dependency is still reported.
RENEWAL = 3_600.0

#: By thing, what it needs directly.
Needs = dict[str, list[str]]
#: By thing, everything it needs, directly or by way of others.
Upstream = dict[str, set[str]]


def thing_named(name: str, names: Mapping[str, Sequence[str]]) -> str:
    """The thing that a plugin calls *name*, by the patterns of the names of each thing."""
    return next(
        (thing for thing, patterns in names.items() if any(_fits(name, p) for p in patterns)),
        name,
    )


def read_reports(observations: Iterable[Observation], names: Mapping[str, Sequence[str]]) -> Needs:
    """The dependencies in `dependsOn` of what observers saw; nobody else may state any."""
    needs: Needs = {}
    for observation in observations:
        stated = observation.data.get("dependsOn")
        if isinstance(stated, dict) and not observation.is_sent:
            for thing, others in stated.items():
                if isinstance(others, list):
                    name = thing_named(thing, names)
                    objects = {thing_named(str(other), names) for other in others}
                    needs[name] = sorted({*needs.get(name, ()), *objects} - {name})
    return needs


def remember(stored: Any, needs: Needs, at: float) -> dict[str, Any] | None:
    """The stored dependencies with newly reported ones; None if nothing has to be written.

    A report replaces what the same thing needed before. Beyond `MAX_CHARS` nothing is added.
    """
    entries = {thing: entry for thing, entry in (stored or {}).items() if at - entry[1] <= LIFETIME}
    for thing, others in sorted(needs.items()):
        entry = entries.get(thing)
        if entry and entry[0] == others and at - entry[1] < RENEWAL:
            continue
        changed = {**entries, thing: [others, round(at)]}
        if len(json.dumps(changed)) <= MAX_CHARS:
            entries = changed
    return entries if entries != (stored or {}) else None


def expand(patterns: Mapping[str, Sequence[str]], stored: Any, unwell: Collection[str]) -> Needs:
    """The direct dependencies, listed and reported; patterns stand for all names that match."""
    reported: Needs = {thing: others for thing, (others, _) in (stored or {}).items()}
    listed = {name for pair in patterns.items() for name in (pair[0], *pair[1])}
    names = {*unwell, *reported, *(other for others in reported.values() for other in others)}
    names |= {name for name in listed if not is_pattern(name)}
    needs = {thing: dict.fromkeys(others) for thing, others in reported.items()}
    for pattern, others in patterns.items():
        objects = [name for other in others for name in _matches(other, names)]
        for thing in _matches(pattern, names):
            needs.setdefault(thing, {}).update(dict.fromkeys(objects))
    return {thing: [other for other in others if other != thing] for thing, others in needs.items()}


def is_pattern(name: str) -> bool:
    """True if *name* stands for all names that match it."""
    return "*" in name or "?" in name


def _matches(pattern: str, names: Collection[str]) -> list[str]:
    if not is_pattern(pattern):
        return [pattern]
    return sorted(name for name in names if _fits(name, pattern))


def _fits(name: str, pattern: str) -> bool:
    """Match a pattern, in which brackets are as in names such as `health-check[web]`."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def upstream(needs: Needs, things: Iterable[str]) -> Upstream:
    """Everything that each of the *things* needs, itself left out."""
    return {thing: _closure(needs, thing) - {thing} for thing in things}


def _closure(needs: Needs, thing: str) -> set[str]:
    reached, pending = {thing}, [thing]
    while pending:
        new = set(needs.get(pending.pop(), ())) - reached
        reached |= new
        pending.extend(new)
    return reached


def mistakes(patterns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The mistakes in a table `depends_on`."""
    for thing, others in patterns.items():
        if not thing:
            yield "a thing needs a name"
        if not others:
            yield f"{thing!r} depends on nothing: leave it out, or name what it depends on"
        if "" in others:
            yield f"{thing!r} depends on a thing without a name"
        if thing in others and not is_pattern(thing):
            yield f"{thing!r} depends on itself: remove it from its own list"
