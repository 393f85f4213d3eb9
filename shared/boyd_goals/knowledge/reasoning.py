"""Inference by six rules (`infer_rules`), and reduction of expressions (`reason`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from boyd.models import Place, Triple
from boyd.plugin.context import Graph
from boyd_goals.knowledge.association import Neighbours
from boyd_goals.knowledge.turtle import (
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
class Inference:
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


def infer(graph: Graph, *, max_iterations: int = 5, min_confidence: float = 0.1) -> list[Inference]:
    """The new facts that follow from the graph, in order of discovery.

    It ends without new facts, after *max_iterations*, or with `MOST_NEW` facts. Of several ways to
    a fact in the same iteration the surest counts; known facts are left alone. No fact relates a
    symbol to itself.
    """
    index = _FactIndex()
    fresh = index.add(_read(graph))
    inferences: list[Inference] = []
    for _ in range(max_iterations):
        best = _surest(_follow(index, fresh), index, min_confidence)
        new = [way.infer_fact() for way in best[: MOST_NEW - len(inferences)]]
        fresh = index.add(inference.triple for inference in new)
        inferences += new
        if not fresh or len(inferences) >= MOST_NEW:
            break
    return inferences


def is_inferred(fact: Triple) -> bool:
    """True if a rule has added the fact."""
    return (fact.source or "").startswith(_SOURCE)


def consequences(graph: Graph, fact: Triple, min_confidence: float = 0.1) -> list[Inference]:
    """The new facts that follow from one fact, alone or with facts about its ends, in two calls."""
    neighbours = Neighbours(graph)
    neighbours.fetch((fact.subject, fact.object))
    index = _FactIndex()
    index.add([fact])
    for end in dict.fromkeys((fact.subject, fact.object)):
        index.add([*neighbours.out[end], *neighbours.into[end]])
    return [way.infer_fact() for way in _surest(_follow(index, [fact]), index, min_confidence)]


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

    def infer_fact(self) -> Inference:
        parts = dict(zip(("subject", "predicate", "object"), self.place, strict=True))
        source = f"{_SOURCE}{self.rule.name}"
        triple = Triple(**parts, confidence=self.confidence, source=source)
        return Inference(triple, self.rule.name, self.antecedents)


class _FactIndex:
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


def _follow(index: _FactIndex, fresh: Iterable[Triple]) -> Iterator[_Way]:
    """All derivations with at least one fresh antecedent."""
    for fact in fresh:
        for rule in RULES:
            for first, second in _chain_pairs(index, rule, fact):
                yield _Way((first.subject, first.predicate, second.object), rule, (first, second))
            for predicate, turned in rule.turns:
                if fact.predicate == predicate:
                    yield _Way((fact.object, turned, fact.subject), rule, (fact,))


def _chain_pairs(index: _FactIndex, rule: Rule, fact: Triple) -> Iterator[tuple[Triple, Triple]]:
    """The pairs of facts that a rule chains, with that fact as first or second."""
    for first, second in rule.chains:
        if fact.predicate == first:
            yield from ((fact, other) for other in index.about.get((fact.object, second), ()))
        if fact.predicate == second:
            yield from ((other, fact) for other in index.into.get((fact.subject, first), ()))


def _surest(ways: Iterable[_Way], index: _FactIndex, min_confidence: float) -> list[_Way]:
    """The surest derivation of each new fact, surest first; ties by label."""
    best: dict[Place, tuple[float, _Way]] = {}
    for way in ways:
        subject, _, object_ = place = way.place
        if subject == object_ or place in index.places:
            continue
        confidence = way.confidence
        if confidence >= min_confidence and (place not in best or confidence > best[place][0]):
            best[place] = (confidence, way)
    return [best[place][1] for place in sorted(best, key=lambda item: (-best[item][0], item))]


#: An atom, or an operator with its operands.
Expression: TypeAlias = "str | tuple[Expression, ...]"

#: The most characters and the greatest depth of an expression.
LONGEST, DEEPEST = 10_000, 100
#: Commutative operators.
COMMUTATIVE = frozenset({"bind", "bundle", "similar", "and", "or"})

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[()])|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<atom>[^\s()"]+))""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = re.compile(r'[^\s()"]+')


class ExpressionError(ValueError):
    """A syntax error; *position* counts characters from 1."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message}, at character {position}")
        self.position = position


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite: its rule, and the part of the expression before and after."""

    rule: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The simplest form of an expression, which equivalent ones share, and the steps to it."""

    expression: str
    steps: tuple[Step, ...]


def reason(text: str) -> Rewritten:
    """Rewrite an expression such as `(not (not (bind a (bind a b))))` until no rule applies.

    Operands of bind, bundle, similar, and, or are put in order, atoms first; (bind a (bind a b)) is
    b in any order of operands; (not (not a)) is a. Raises what `parse` does.
    """
    steps: list[Step] = []
    simplest = _simplify(parse(text), steps)
    return Rewritten(show(simplest), tuple(steps))


def parse(text: str) -> Expression:
    """Parse an s-expression; atoms with blanks or parentheses stand in double quotes.

    Raises:
        ExpressionError: the text is not an expression.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"it is longer than {LONGEST} characters", LONGEST + 1)
    end = len(text.rstrip())
    stack: list[tuple[int, list[Expression]]] = [(0, [])]
    at = 0
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            position = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            raise ExpressionError("a quote that is not closed", position)
        kind = str(token.lastgroup)
        _take(stack, kind, token[kind], token.start(kind) + 1)
        at = token.end()
    if len(stack) > 1:
        raise ExpressionError("a parenthesis that is not closed", stack[-1][0])
    expressions = stack[0][1]
    if not expressions:
        raise ExpressionError("nothing to read", end + 1)
    return expressions[0]


def triples(expression: Expression) -> list[Place]:
    """The facts in an expression, such as `(triple whale is-a mammal)`."""
    match expression:
        case ("triple", str(subject), str(predicate), str(object_)):
            return [(subject, predicate, object_)]
        case str():
            return []
    return [place for part in expression for place in triples(part)]


def show(expression: Expression) -> str:
    """An expression as text."""
    if isinstance(expression, tuple):
        return f"({' '.join(show(part) for part in expression)})"
    if _PLAIN.fullmatch(expression):
        return expression
    escaped = expression.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _take(
    stack: list[tuple[int, list[Expression]]], kind: str, written: str, position: int
) -> None:
    """Add a token to the innermost open list."""
    if len(stack) == 1 and stack[0][1]:
        raise ExpressionError("more after the end of the expression", position)
    if kind == "quoted":
        stack[-1][1].append(_ESCAPED.sub(r"\1", written[1:-1]))
    elif kind == "atom":
        stack[-1][1].append(written)
    elif written == ")":
        _close(stack, position)
    elif len(stack) > DEEPEST:
        raise ExpressionError(f"it nests deeper than {DEEPEST}", position)
    else:
        stack.append((position, []))


def _close(stack: list[tuple[int, list[Expression]]], position: int) -> None:
    if len(stack) == 1:
        raise ExpressionError("a parenthesis that was not opened", position)
    opened, parts = stack.pop()
    if not parts:
        raise ExpressionError("an empty list", opened)
    stack[-1][1].append(tuple(parts))


def _simplify(expression: Expression, steps: list[Step]) -> Expression:
    """The simplest form, rewritten from the inside out."""
    if isinstance(expression, str):
        return expression
    current: Expression = tuple(_simplify(part, steps) for part in expression)
    for rule, apply in _RULES:
        after = apply(current)
        if after != current:
            steps.append(Step(rule, show(current), show(after)))
            current = after
    return current


def _cancel_not(expression: Expression) -> Expression:
    match expression:
        case ("not", ("not", inner)):
            return inner
    return expression


def _cancel_bind(expression: Expression) -> Expression:
    match expression:
        case ("bind", outer, ("bind", first, second)) if outer in (first, second):
            return second if outer == first else first
        case ("bind", ("bind", first, second), outer) if outer in (first, second):
            return second if outer == first else first
    return expression


def _commute(expression: Expression) -> Expression:
    match expression:
        case (str(operator), first, second) if operator in COMMUTATIVE:
            # Atoms first, then by text.
            operands = sorted(
                (first, second), key=lambda part: (isinstance(part, tuple), show(part))
            )
            return (operator, *operands)
    return expression


_RULES: tuple[tuple[str, Callable[[Expression], Expression]], ...] = (
    ("double negation", _cancel_not),
    ("unbind", _cancel_bind),
    ("commute", _commute),
)
