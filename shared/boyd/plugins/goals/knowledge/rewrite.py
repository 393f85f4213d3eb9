"""Symbolic reasoning: expressions brought into their simplest form (`reason`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from boyd.models.situation import Place

#: An expression: an atom, or an operator and what it is applied to.
Expression: TypeAlias = "str | tuple[Expression, ...]"

#: The most characters of an expression, and how deep it may nest.
LONGEST, DEEPEST = 10_000, 100
#: Operators whose operands may change places.
COMMUTATIVE = frozenset({"bind", "bundle", "similar", "and", "or"})

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[()])|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<atom>[^\s()"]+))""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = re.compile(r'[^\s()"]+')


class ExpressionError(ValueError):
    """An expression that cannot be read.

    Attributes:
        position: of the character where it goes wrong, the first is 1.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message}, at character {position}")
        self.position = position


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite: the name of its rule, and the part of the expression before and after."""

    rule: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An expression in its simplest form.

    Attributes:
        expression: as text; expressions that mean the same by the rules have the same one.
        steps: what was rewritten, in order.
    """

    expression: str
    steps: tuple[Step, ...]


def reason(text: str) -> Rewritten:
    """Rewrite an expression such as `(not (not (bind a (bind a b))))` until no rule fits.

    There are seven rules: the two operands of bind, bundle, similar, and, or may change places,
    here atoms first, then by their texts; (bind a (bind a b)) is b, in any order of operands; and
    (not (not a)) is a. Anything else is left as it is.

    Raises:
        ExpressionError: the text is no expression.
    """
    steps: list[Step] = []
    simplest = _simplify(parse(text), steps)
    return Rewritten(show(simplest), tuple(steps))


def parse(text: str) -> Expression:
    """Read an s-expression; an atom with blanks or parentheses stands in double quotes.

    Raises:
        ExpressionError: the text is none.
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
    found = stack[0][1]
    if not found:
        raise ExpressionError("nothing to read", end + 1)
    return found[0]


def triples(expression: Expression) -> list[Place]:
    """The facts that an expression speaks of, as `(triple whale is-a mammal)` does."""
    match expression:
        case ("triple", str(subject), str(predicate), str(object_)):
            return [(subject, predicate, object_)]
        case str():
            return []
    return [one for part in expression for one in triples(part)]


def show(expression: Expression) -> str:
    """An expression as `parse` reads it."""
    if isinstance(expression, tuple):
        return f"({' '.join(show(part) for part in expression)})"
    if _PLAIN.fullmatch(expression):
        return expression
    escaped = expression.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _take(
    stack: list[tuple[int, list[Expression]]], kind: str, written: str, position: int
) -> None:
    """Put a token into the innermost open list."""
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
    """The simplest form, from the inside out: the rules lead to the same one in any order."""
    if isinstance(expression, str):
        return expression
    now: Expression = tuple(_simplify(part, steps) for part in expression)
    for rule, apply in _RULES:
        after = apply(now)
        if after != now:
            steps.append(Step(rule, show(now), show(after)))
            now = after
    return now


def _cancel_not(expression: Expression) -> Expression:
    match expression:
        case ("not", ("not", inner)):
            return inner
    return expression


def _cancel_bind(expression: Expression) -> Expression:
    match expression:
        case ("bind", one, ("bind", first, second)) if one in (first, second):
            return second if one == first else first
        case ("bind", ("bind", first, second), one) if one in (first, second):
            return second if one == first else first
    return expression


def _rank(expression: Expression) -> tuple[bool, str]:
    """By which operands are ordered: atoms first, then by their text."""
    return (isinstance(expression, tuple), show(expression))


def _commute(expression: Expression) -> Expression:
    match expression:
        case (str(operator), one, other) if operator in COMMUTATIVE and _rank(other) < _rank(one):
            return (operator, other, one)
    return expression


_RULES: tuple[tuple[str, Callable[[Expression], Expression]], ...] = (
    ("double negation", _cancel_not),
    ("unbind", _cancel_bind),
    ("commute", _commute),
)
