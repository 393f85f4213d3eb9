"""The code of functions of plugins: digests of what observations depend on, and names.

A replay takes observations as recorded. If observers have other code or options now, it cannot tell
what they would have observed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from boyd.models import digest_of
from boyd.plugin import Observer, Plugin

#: Constants whose values are part of the code that names them.
_CONSTANTS = (str, bytes, int, float, bool, tuple, frozenset, type(None))


def observer_digest(plugin: Plugin, observers: Sequence[Observer]) -> str | None:
    """A digest that differs if *plugin* may observe something else; None without *observers*."""
    if not observers:
        return None
    names = [name for name in Observer.functions if name != "judge"]
    return _digest(plugin, plugin.observer_options(), observers, names)


def judge_digest(plugin: Plugin, observers: Sequence[Observer]) -> str | None:
    """A digest of the judges of *plugin* that remember something, if it has any.

    A replay calls the others again.
    """
    judging = [observer for observer in observers if observer.judges_by_state]
    options = Plugin.observer_options(plugin)
    return _digest(plugin, options, judging, ["judge"]) if judging else None


def _digest(
    plugin: Plugin, options: str, observers: Sequence[Observer], names: Sequence[str]
) -> str:
    code = _ObserverCode(plugin)
    for observer in observers:
        for function in (getattr(observer, name, None) for name in names):
            if function is not None:
                code.add(function)
    return digest_of("\n".join([options, *code]))


def names_in(plugin: Plugin, function: Callable[..., Any] | None) -> frozenset[str]:
    """The names that a function of *plugin* uses, with those that it calls in its package."""
    code = _ObserverCode(plugin)
    if function is not None:
        code.add(function)
    return code.names


class _ObserverCode:
    """The code of functions, and of those of the same package that they name.

    Neither names of locals nor lines, comments and docstrings count.
    """

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        module = type(plugin).__module__
        self._package = module.rpartition(".")[0] or module
        self._texts: set[str] = set()
        self._codes: set[CodeType] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._texts))

    @property
    def names(self) -> frozenset[str]:
        """All names that the code uses."""
        return frozenset().union(*map(_names, self._codes))

    def add(self, function: Callable[..., Any]) -> None:
        """Add a function, and what it names."""
        while isinstance(function, partial):
            function = function.func
        function = inspect.unwrap(getattr(function, "__func__", function))
        if not isinstance(function, FunctionType) or not self._is_own(function.__module__):
            return
        code = function.__code__
        if code in self._codes:
            return
        self._codes.add(code)
        name = f"{function.__module__}.{function.__qualname__}"
        self._texts.add(f"{name} {_text(code)} {_constant(function.__defaults__)}")
        for used in _names(code):
            self._add_value(f"{name} {used}", function.__globals__.get(used))
            self._add_value(f"{name} .{used}", getattr(type(self._plugin), used, None))

    def _add_value(self, name: str, value: object) -> None:
        if isinstance(value, property) and value.fget:
            self.add(value.fget)
        elif isinstance(value, type) and self._is_own(value.__module__):
            for member in vars(value).values():
                if isinstance(member, FunctionType):
                    self.add(member)
        elif isinstance(value, FunctionType):
            self.add(value)
        elif value is not None and isinstance(value, _CONSTANTS):
            self._texts.add(f"{name} {_constant(value)}")

    def _is_own(self, module: str) -> bool:
        return f"{module}.".startswith(f"{self._package}.")


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _text(code: CodeType) -> str:
    """The instructions of *code* with what they name; only a docstring is left out."""
    constants = code.co_consts
    has_docstring = not code.co_name.startswith("<") and isinstance(constants[0], str)
    if has_docstring:
        constants = (None, *constants[1:])
    values = [_constant(value) for value in constants]
    return f"{code.co_code.hex()} {code.co_names} {values}"


def _constant(value: object) -> str:
    """A constant as a text that is equal in every process."""
    if isinstance(value, CodeType):
        return _text(value)
    if isinstance(value, frozenset):
        return repr(sorted(map(_constant, value)))
    if isinstance(value, tuple):
        return repr([*map(_constant, value)])
    return repr(value) if isinstance(value, _CONSTANTS) else type(value).__qualname__
