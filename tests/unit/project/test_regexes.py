"""Every regular expression takes time in proportion to the text, whatever the text.

A search holds the interpreter until it ends: one that takes quadratic time stops all threads of a
process. All expressions in the packages are found by themselves, so that a new one is tried too.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from boyd.llm.reply_text import answer_after_marker
from boyd_goals import scoring
from costs import MOST, growth

PACKAGES = (
    "boyd",
    "boyd_cli",
    "boyd_connectors",
    "boyd_goals",
    "boyd_proof",
    "boyd_secrets",
    "boyd_slack",
    "boyd_worker",
    "boyd_api",
)
METHODS = ("search", "match", "fullmatch", "sub", "findall", "finditer", "split")
#: Characters of the longest text.
LONGEST = 16_384
#: What is tried with every expression.
USUAL = (*" \n\"'`([{<aA0-_./:=\\#*,;@", "\n ", "a ", "a.", "a-", "a/", "a:", '\\"', "a=", "[a")
#: Characters that a set may leave out, so that one of the others can be taken.
SOME = "a0 -\n\"'<[(.:/=\u00e9"
CATEGORIES = {
    op.CATEGORY_DIGIT: "0",
    op.CATEGORY_SPACE: " ",
    op.CATEGORY_WORD: "a",
    op.CATEGORY_NOT_DIGIT: "a",
    op.CATEGORY_NOT_SPACE: "a",
    op.CATEGORY_NOT_WORD: "-",
}
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


@dataclass(frozen=True)
class Use:
    """An expression, and how it is used where."""

    where: str
    pattern: re.Pattern[str]
    method: str

    def run(self, text: str) -> None:
        """Use it on *text*."""
        arguments = ["", text] if self.method == "sub" else [text]
        is_text = isinstance(self.pattern.pattern, str)
        matches = getattr(self.pattern, self.method)(
            *(arguments if is_text else map(str.encode, arguments))
        )
        if self.method == "finditer":
            list(matches)


def modules() -> Iterator[ModuleType]:
    """All modules of the packages."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            # Alembic alone can import its environment.
            if not module.name.endswith(("__main__", ".env")):
                yield importlib.import_module(module.name)


def patterns_in(value: Any) -> Iterator[re.Pattern[str]]:
    """The expressions in a value."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from patterns_in(item)
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()))


def value_of(node: ast.expr, module: ModuleType) -> Any:
    """Evaluate an expression of a module; None when it needs more than the module."""
    try:
        return eval(ast.unparse(node), dict(vars(module)))
    except Exception:  # noqa: BLE001 - whatever it lacks
        return None


def calls(module: ModuleType) -> Iterator[tuple[ast.Call, Any, str]]:
    """The calls of methods of expressions, and of `re`, in a module: the call, of what, which."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = value_of(node.func.value, module)
            if owner is re or isinstance(owner, re.Pattern):
                yield node, owner, node.func.attr


def compile_call(node: ast.Call, module: ModuleType) -> re.Pattern[Any] | None:
    """The expression that a call of `re` is given; None when it is made of data."""
    text: Any = value_of(node.args[0], module)
    flags = [value_of(arg, module) for arg in node.args[1:] if "re." in ast.unparse(arg)]
    return re.compile(text, *flags) if isinstance(text, str | bytes) else None


@cache
def uses() -> tuple[list[Use], set[str]]:
    """All uses of expressions, and the modules that make some of data."""
    uses_found: dict[tuple[str, str], Use] = {}
    held_at: dict[str, Use] = {}
    computed: set[str] = set()
    for module in modules():
        for name, value in vars(module).items():
            for pattern in patterns_in(value):
                use = Use(f"{module.__name__}.{name}", pattern, "search")
                held_at.setdefault(pattern.pattern, use)
        for node, owner, method in calls(module):
            used = compile_call(node, module) if owner is re else owner
            if used is None:
                computed.add(module.__name__)
            elif method in METHODS:
                use = Use(f"{module.__name__}:{node.lineno}", used, method)
                uses_found[used.pattern, method] = use
    called = {pattern for pattern, _ in uses_found}
    rest = [use for pattern, use in held_at.items() if pattern not in called]
    return [*uses_found.values(), *rest], computed


def samples(tree: Any, most: int = 4) -> list[str]:
    """Some texts that a parsed expression matches, but for what it looks ahead for."""
    texts = [""]
    for kind, value in tree:
        texts = [text + more for text in texts for more in sample_matches(kind, value, most)][:most]
    return texts


def sample_matches(kind: Any, value: Any, most: int) -> list[str]:
    """Some texts that one part of an expression matches."""
    if kind is op.LITERAL:
        return [chr(value)]
    if kind is op.NOT_LITERAL:
        return [character for character in SOME if ord(character) != value][:2]
    if kind is op.ANY:
        return ["a", " "]
    if kind is op.IN:
        return of_set(value)[:most]
    if kind is op.BRANCH:
        return [text for choice in value[1] for text in samples(choice, 2)][:12]
    if kind in (op.SUBPATTERN, op.ATOMIC_GROUP):
        return samples(value[-1] if kind is op.SUBPATTERN else value, most)
    if kind in REPEATS:
        least, _, inner = value
        return [text * max(least, 1) for text in samples(inner, most)] + [""] * (least == 0)
    return [""]


def of_set(parts: Any) -> list[str]:
    """Some characters of a set."""
    chosen = []
    for kind, value in parts:
        if kind is op.LITERAL:
            chosen.append(chr(value))
        elif kind is op.RANGE:
            chosen.append(chr(value[0]))
        elif kind is op.CATEGORY:
            chosen.append(CATEGORIES[value])
    if parts[0][0] is not op.NEGATE:
        return chosen
    left = [character for character in SOME if character not in chosen]
    return [character for character in left if not (" " in chosen and character.isspace())][:4]


def repeats(tree: Any, before: tuple[str, ...] = ("",)) -> Iterator[tuple[str, str]]:
    """For each part that may repeat, what stands before it and what is repeated."""
    for kind, value in tree:
        inner: list[Any] = []
        if kind in REPEATS:
            inner = [value[2]]
            if value[1] > 50:
                yield from ((text, more) for text in before[:3] for more in samples(value[2], 6))
        elif kind is op.SUBPATTERN:
            inner = [value[-1]]
        elif kind is op.ATOMIC_GROUP:
            inner = [value]
        elif kind is op.BRANCH:
            inner = value[1]
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            inner = [value[1]]
        for part in inner:
            yield from repeats(part, before[:3])
        before = tuple(text + more for text in before for more in sample_matches(kind, value, 4))[
            :6
        ]


def attacks(pattern: re.Pattern[str]) -> set[tuple[str, str, str]]:
    """Texts that may take long: a beginning, what is repeated, and an end that does not fit."""
    attacks_found = {("", character, "") for character in USUAL}
    for before, repeated in repeats(_parser.parse(pattern.pattern, pattern.flags)):
        if repeated:
            attacks_found |= {("", before + repeated, "")}
            attacks_found |= {(before, repeated, end) for end in ("", "\0", "\n", " ", '"')}
    return attacks_found


def slow(run: Callable[[str], object], tried: set[tuple[str, str, str]]) -> list[str]:
    """The inputs that take more than their share of time."""

    def input_maker(before: str, repeated: str, end: str) -> Callable[[int], str]:
        return lambda size: before + repeated * (size // len(repeated)) + end

    return [
        repr(attack)
        for attack in sorted(tried)
        if growth(run, input_maker(*attack), LONGEST) > MOST
    ]


@pytest.mark.timeout(600)
@pytest.mark.long
def test_every_regular_expression_takes_time_in_proportion() -> None:
    uses_found, computed = uses()
    by_name = {f"{use.where} .{use.method} {use.pattern.pattern}": use for use in uses_found}
    too_slow = {name: slow(use.run, attacks(use.pattern)) for name, use in by_name.items()}

    assert len(uses_found) > 80
    assert {name: texts for name, texts in too_slow.items() if texts} == {}
    assert computed == {
        *("boyd.agent.conditions", "boyd.models.rights", "boyd.plugins.notifier.rota"),
        *("boyd_goals.scoring", "boyd.llm.reply_text"),
    }


def episode(text: str) -> Any:
    """An episode with that summary."""
    return SimpleNamespace(tools=(), summary=text)


@pytest.mark.parametrize(
    "run",
    [
        lambda text: answer_after_marker(text, "Final answer:"),
        lambda text: scoring._is_mentioned("graph-query", [episode(text)]),
    ],
    ids=["marker", "tool"],
)
def test_expressions_that_are_made_of_data_take_time_in_proportion(
    run: Callable[[str], object],
) -> None:
    tried = {
        ("", character, "") for character in (*USUAL, "graph-query", "Final answer:", "*_`#> ")
    }

    assert slow(run, tried) == []


@pytest.mark.parametrize("pattern", [r"\s*$", r"a*b", r"(a|a)*b", r"(\w+)://x", r"<(.*)>"])
@pytest.mark.long
def test_an_expression_that_takes_quadratic_time_is_noticed(pattern: str) -> None:
    use = Use("here", re.compile(pattern), "search")

    assert slow(use.run, attacks(use.pattern))
