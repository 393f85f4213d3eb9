"""What follows from what is known, by six rules (`infer_rules`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from boyd.models import Triple
from boyd.plugin.context import Graph
from boyd.plugins.goals.knowledge.association import Neighbours
from boyd.plugins.goals.knowledge.vocabulary import (
    CHILD_OF,
    CONTAINS,
    HAS_A,
    IS_A,
    PARENT_OF,
    PART_OF,
    SIMILAR_TO,
    SUBCLASS_OF,
)

#: The most facts that are inferred at once.
MOST_NEW = 1000
#: The most facts with one predicate that are looked at.
MOST_READ = 10_000
_DIGITS = 9

_Key: TypeAlias = tuple[str, str, str]
#: A predicate, and the one of a second fact about the first one's object.
_Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Derived:
    """A fact that follows from others.

    Attributes:
        triple: the fact; its source is `rule:<name>`.
        rule: the name of the rule.
        antecedents: what it follows from.
    """

    triple: Triple
    rule: str
    antecedents: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What may be inferred, and how sure it is.

    Attributes:
        name: of the rule.
        factor: by which the mean confidence of the antecedents is multiplied.
        chains: pairs of predicates: x P y and y Q z give x P z.
        turns: predicates: x P y gives y Q x.
    """

    name: str
    factor: float
    chains: tuple[_Pair, ...] = ()
    turns: tuple[_Pair, ...] = ()


#: `subclass-of` is what a vocabulary calls `is-a` between kinds.
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
    """What follows and is not known yet, in the order it was found; the graph stays as it is.

    It ends when nothing new follows, after *max_iterations*, or with `MOST_NEW` facts. What several
    ways lead to in the same iteration is inferred by the surest; a fact that is known already is
    left alone, however unsure it is. Nothing is inferred of a symbol and itself.
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


def consequences(graph: Graph, fact: Triple, min_confidence: float = 0.1) -> list[Derived]:
    """What follows from that fact, alone or with one about its ends, and is not known yet.

    In two calls to the graph; what is inferred of these conclusions in turn is left to `infer`.
    """
    neighbours = Neighbours(graph)
    neighbours.fetch((fact.subject, fact.object))
    known = _Known()
    known.add([fact])
    for end in dict.fromkeys((fact.subject, fact.object)):
        known.add([*neighbours.out(end), *neighbours.into(end)])
    ways = _surest(_follow(known, [fact]), known, min_confidence)
    return [way.derived() for way in ways]


@dataclass(frozen=True, slots=True)
class _Way:
    """How a fact follows; much cheaper than the fact."""

    key: _Key
    rule: Rule
    antecedents: tuple[Triple, ...]

    @property
    def confidence(self) -> float:
        mean = fmean(triple.confidence for triple in self.antecedents)
        return round(self.rule.factor * mean, _DIGITS)

    def derived(self) -> Derived:
        subject, predicate, object_ = self.key
        triple = Triple(
            subject=subject,
            predicate=predicate,
            object=object_,
            confidence=self.confidence,
            source=f"rule:{self.rule.name}",
        )
        return Derived(triple, self.rule.name, self.antecedents)


class _Known:
    """Facts, and where rules find them: by subject and predicate, by object and predicate."""

    def __init__(self) -> None:
        self.keys: set[_Key] = set()
        self._about: defaultdict[_Pair, list[Triple]] = defaultdict(list)
        self._into: defaultdict[_Pair, list[Triple]] = defaultdict(list)

    def add(self, triples: Iterable[Triple]) -> list[Triple]:
        """Take in facts; the same facts."""
        added = list(triples)
        for triple in added:
            self.keys.add((triple.subject, triple.predicate, triple.object))
            self._about[triple.subject, triple.predicate].append(triple)
            self._into[triple.object, triple.predicate].append(triple)
        return added

    def about(self, symbol: str, predicate: str) -> Iterable[Triple]:
        return self._about.get((symbol, predicate), ())

    def into(self, symbol: str, predicate: str) -> Iterable[Triple]:
        return self._into.get((symbol, predicate), ())


def _read(graph: Graph) -> Iterator[Triple]:
    pairs = {pair for rule in RULES for pair in (*rule.chains, *rule.turns)}
    for predicate in sorted({predicate for pair in pairs for predicate in pair}):
        yield from graph.with_predicate(predicate, MOST_READ)


def _follow(known: _Known, fresh: Iterable[Triple]) -> Iterator[_Way]:
    """What follows with at least one fresh fact among the antecedents."""
    for fact in fresh:
        for rule in RULES:
            for first, second in _joined(known, rule, fact):
                yield _Way((first.subject, first.predicate, second.object), rule, (first, second))
            for predicate, turned in rule.turns:
                if fact.predicate == predicate:
                    yield _Way((fact.object, turned, fact.subject), rule, (fact,))


def _joined(known: _Known, rule: Rule, fact: Triple) -> Iterator[tuple[Triple, Triple]]:
    """The pairs of facts that a rule chains, with that fact as the first or the second."""
    for first, second in rule.chains:
        if fact.predicate == first:
            yield from ((fact, other) for other in known.about(fact.object, second))
        if fact.predicate == second:
            yield from ((other, fact) for other in known.into(fact.subject, first))


def _surest(ways: Iterable[_Way], known: _Known, min_confidence: float) -> list[_Way]:
    """The best way to each new fact, the surest first; ties by label."""
    best: dict[_Key, tuple[float, _Way]] = {}
    for way in ways:
        subject, _, object_ = way.key
        if subject == object_ or way.key in known.keys:
            continue
        confidence = way.confidence
        if confidence >= min_confidence and (way.key not in best or confidence > best[way.key][0]):
            best[way.key] = (confidence, way)
    return [best[key][1] for key in sorted(best, key=lambda key: (-best[key][0], key))]
