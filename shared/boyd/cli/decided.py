"""Actions that a strategy's code decides for by name, as far as that can be read from it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

from boyd.models import NO_OP
from boyd.plugin import Strategy


def decided_for(strategy: Strategy) -> Iterator[str]:
    """The ids of actions that the function names as `Decision(action="...")`.

    What it computes cannot be known; `f"{self.id}:name"` is read with the id of the plugin.
    """
    for call in ast.walk(_source(strategy)):
        if isinstance(call, ast.Call) and _is_decision(call.func):
            for keyword in call.keywords:
                name = _text(keyword.value, strategy.plugin_id) if keyword.arg == "action" else None
                if name and name != NO_OP:
                    yield name


def _source(strategy: Strategy) -> ast.AST:
    try:
        function = inspect.unwrap(strategy.decide)  # type: ignore[attr-defined]
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])  # made by other code, or in a session


def _is_decision(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return bool(name == "Decision")


def _text(value: ast.expr, plugin_id: str) -> str | None:
    """A text that stands there; None when it is only known later."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if not isinstance(value, ast.JoinedStr):
        return None
    parts = [_part(part, plugin_id) for part in value.values]
    return "".join(part for part in parts if part) if all(parts) else None


def _part(part: ast.expr, plugin_id: str) -> str | None:
    if isinstance(part, ast.FormattedValue):
        return plugin_id if ast.unparse(part.value) == "self.id" else None
    return _text(part, plugin_id)
