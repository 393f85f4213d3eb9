"""Functions take what they need: parameters are matched by name, and checked when registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Taker:
    """A function and the names it takes out of what is offered to it."""

    def __init__(self, function: Callable[..., Any], offered: Sequence[str]) -> None:
        """Check *function* against the names in *offered*.

        Raises:
            ValueError: it takes something else; the message says what it may take.
        """
        self.function = function
        self.takes = _names(function, offered)

    def __call__(self, **values: Any) -> Any:
        """Call the function with those of *values* that it takes."""
        return self.function(**{name: values[name] for name in self.takes})


def _names(function: Callable[..., Any], offered: Sequence[str]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        named = parameter.kind in _NAMED and parameter.name in offered
        optional = parameter.default is not inspect.Parameter.empty
        if not named and not (optional and parameter.kind in _NAMED):
            raise ValueError(
                f"{_shown(function)} takes {parameter.name!r}; "
                f"expected ({', '.join(offered)}) or fewer of them"
            )
    return tuple(p.name for p in parameters if p.name in offered)


def _shown(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return f"{name}{inspect.signature(function)}"
