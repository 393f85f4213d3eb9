"""Symbolic reasoning: reduces expressions to their simplest form (`reason`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from boyd.models.situation import Place

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
    found = stack[0][1]
    if not found:
        raise ExpressionError("nothing to read", end + 1)
    return found[0]


def triples(expression: Expression) -> list[Place]:
    """The facts in an expression, such as `(triple whale is-a mammal)`."""
    match expression:
        case ("triple", str(subject), str(predicate), str(object_)):
            return [(subject, predicate, object_)]
        case str():
            return []
    return [one for part in expression for one in triples(part)]


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


def _commute(expression: Expression) -> Expression:
    match expression:
        case (str(operator), one, other) if operator in COMMUTATIVE:
            # Atoms first, then by text.
            operands = sorted((one, other), key=lambda part: (isinstance(part, tuple), show(part)))
            return (operator, *operands)
    return expression


_RULES: tuple[tuple[str, Callable[[Expression], Expression]], ...] = (
    ("double negation", _cancel_not),
    ("unbind", _cancel_bind),
    ("commute", _commute),
)
