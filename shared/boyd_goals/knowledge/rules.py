"""Inference by six rules (`infer_rules`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from boyd.models import Place, Triple
from boyd.plugin.context import Graph
from boyd_goals.knowledge.association import Neighbours
from boyd_goals.knowledge.vocabulary import (
    CHILD_OF,
    CONTAINS,
    HAS_A,
    IS_A,
    PARENT_OF,
    PART_OF,
    SIMILAR_TO,
    SUBCLASS_OF,
)

#: The most facts inferred at once, and read per predicate.
MOST_NEW, MOST_READ = 1000, 10_000
_DIGITS = 9
#: The source of an inferred fact begins with it.
_SOURCE = "rule:"

#: Two predicates, or a symbol and a predicate.
_Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Derived:
    """A fact that follows from others by a rule, which its source `rule:<name>` names."""

    triple: Triple
    rule: str
    antecedents: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of inference.

    Attributes:
        factor: multiplies the mean confidence of the antecedents.
        chains: pairs of predicates: x P y and y Q z imply x P z.
        turns: pairs of predicates: x P y implies y Q x.
    """

    name: str
    factor: float
    chains: tuple[_Pair, ...] = ()
    turns: tuple[_Pair, ...] = ()


#: `subclass-of` is `is-a` between classes.
RULES = (
    Rule(
        "is-a-transitive",
        0.95,
        chains=((IS_A, IS_A), (IS_A, SUBCLASS_OF), (SUBCLASS_OF, SUBCLASS_OF)),
    ),
    Rule("part-of-transitive", 0.90, chains=((PART_OF, PART_OF),)),
    Rule("has-a-transitive", 0.85, chains=((HAS_A, HAS_A),)),
    Rule("similar-to-symmetric", 1.0, turns=((SIMILAR_TO, SIMILAR_TO),)),
    Rule("parent-child-inverse", 1.0, turns=((PARENT_OF, CHILD_OF), (CHILD_OF, PARENT_OF))),
    Rule("contains-part-of", 1.0, turns=((CONTAINS, PART_OF),)),
)


def infer(graph: Graph, *, max_iterations: int = 5, min_confidence: float = 0.1) -> list[Derived]:
    """The new facts that follow from the graph, in order of discovery.

    It ends without new facts, after *max_iterations*, or with `MOST_NEW` facts. Of several ways to
    a fact in the same iteration the surest counts; known facts are left alone. No fact relates a
    symbol to itself.
    """
    known = _Known()
    fresh = known.add(_read(graph))
    found: list[Derived] = []
    for _ in range(max_iterations):
        best = _surest(_follow(known, fresh), known, min_confidence)
        new = [way.derived() for way in best[: MOST_NEW - len(found)]]
        fresh = known.add(one.triple for one in new)
        found += new
        if not fresh or len(found) >= MOST_NEW:
            break
    return found


def is_inferred(fact: Triple) -> bool:
    """True if a rule has added the fact."""
    return (fact.source or "").startswith(_SOURCE)


def consequences(graph: Graph, fact: Triple, min_confidence: float = 0.1) -> list[Derived]:
    """The new facts that follow from one fact, alone or with facts about its ends, in two calls."""
    neighbours = Neighbours(graph)
    neighbours.fetch((fact.subject, fact.object))
    known = _Known()
    known.add([fact])
    for end in dict.fromkeys((fact.subject, fact.object)):
        known.add([*neighbours.out[end], *neighbours.into[end]])
    return [way.derived() for way in _surest(_follow(known, [fact]), known, min_confidence)]


@dataclass(frozen=True, slots=True)
class _Way:
    """A derivation; much cheaper than the fact itself."""

    place: Place
    rule: Rule
    antecedents: tuple[Triple, ...]

    @property
    def confidence(self) -> float:
        mean = fmean(triple.confidence for triple in self.antecedents)
        return round(self.rule.factor * mean, _DIGITS)

    def derived(self) -> Derived:
        parts = dict(zip(("subject", "predicate", "object"), self.place, strict=True))
        source = f"{_SOURCE}{self.rule.name}"
        triple = Triple(**parts, confidence=self.confidence, source=source)
        return Derived(triple, self.rule.name, self.antecedents)


class _Known:
    """Facts, indexed by subject and predicate, and by object and predicate."""

    def __init__(self) -> None:
        self.places: set[Place] = set()
        self.about: defaultdict[_Pair, list[Triple]] = defaultdict(list)
        self.into: defaultdict[_Pair, list[Triple]] = defaultdict(list)

    def add(self, triples: Iterable[Triple]) -> list[Triple]:
        """Add facts; returns them as a list."""
        added = list(triples)
        for triple in added:
            self.places.add(triple.place)
            self.about[triple.subject, triple.predicate].append(triple)
            self.into[triple.object, triple.predicate].append(triple)
        return added


def _read(graph: Graph) -> Iterator[Triple]:
    pairs = {pair for rule in RULES for pair in (*rule.chains, *rule.turns)}
    for predicate in sorted({predicate for pair in pairs for predicate in pair}):
        yield from graph.with_predicate(predicate, MOST_READ)


def _follow(known: _Known, fresh: Iterable[Triple]) -> Iterator[_Way]:
    """All derivations with at least one fresh antecedent."""
    for fact in fresh:
        for rule in RULES:
            for first, second in _joined(known, rule, fact):
                yield _Way((first.subject, first.predicate, second.object), rule, (first, second))
            for predicate, turned in rule.turns:
                if fact.predicate == predicate:
                    yield _Way((fact.object, turned, fact.subject), rule, (fact,))


def _joined(known: _Known, rule: Rule, fact: Triple) -> Iterator[tuple[Triple, Triple]]:
    """The pairs of facts that a rule chains, with that fact as first or second."""
    for first, second in rule.chains:
        if fact.predicate == first:
            yield from ((fact, other) for other in known.about.get((fact.object, second), ()))
        if fact.predicate == second:
            yield from ((other, fact) for other in known.into.get((fact.subject, first), ()))


def _surest(ways: Iterable[_Way], known: _Known, min_confidence: float) -> list[_Way]:
    """The surest derivation of each new fact, surest first; ties by label."""
    best: dict[Place, tuple[float, _Way]] = {}
    for way in ways:
        subject, _, object_ = place = way.place
        if subject == object_ or place in known.places:
            continue
        confidence = way.confidence
        if confidence >= min_confidence and (place not in best or confidence > best[place][0]):
            best[place] = (confidence, way)
    return [best[place][1] for place in sorted(best, key=lambda one: (-best[one][0], one))]
