"""The code of functions of plugins: digests of what observations depend on, and names.

A replay takes observations as recorded. If observers have other code or options now, it cannot tell
what they would have observed.
"""

from __future__ import annotations

import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from boyd.models import digest_of
from boyd.plugin import Observer, Plugin

#: Folders of libraries and of Boyd. A package of a user may well be named `boyd_disk_watch`.
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{Path(__file__).parents[2]}/",
)
#: Constants whose values are part of the code that names them.
_CONSTANTS = (str, bytes, int, float, bool, tuple, frozenset, type(None))
#: Likewise, where a name that is not local stands for them.
_SHOWN = (*_CONSTANTS, dict, list, set, Enum, re.Pattern)


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


@cache
def is_own_code(module: str) -> bool:
    """Report whether a module is the agent's own code, and neither Boyd's nor of a library."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return bool(file) and module != "__main__" and not str(file).startswith(_LIBRARIES)


class _ObserverCode:
    """The code of functions, and of those of the agent's own code that they name.

    Neither names of locals nor lines, comments and docstrings count.
    """

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        module = type(plugin).__module__
        self._package = module.rpartition(".")[0] or module
        self._texts: set[str] = set()
        self._codes: set[CodeType] = set()
        self._functions: set[FunctionType] = set()
        self._classes: set[type] = set()

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
        if function in self._functions:
            return
        self._functions.add(function)
        self._codes.add(code)
        name = f"{function.__module__}.{function.__qualname__}"
        defaults = (function.__defaults__, *sorted((function.__kwdefaults__ or {}).items()))
        self._texts.add(f"{name} {_text(code)} {_constant(defaults)}")
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty
                if variable != "__class__":  # of `super()`
                    self._add_value(f"{name} {variable}", cell.cell_contents)
        used_names = _names(code)
        for used in used_names:
            self._add_value(f"{name} .{used}", getattr(type(self._plugin), used, None))
            value = function.__globals__.get(used)
            self._add_value(f"{name} {used}", value)
            if isinstance(value, ModuleType) and self._is_own(value.__name__):
                for other in used_names & vars(value).keys():
                    self._add_value(f"{name} {used}.{other}", vars(value)[other])

    def _add_value(self, name: str, value: object) -> None:
        if isinstance(value, property) and value.fget:
            self.add(value.fget)
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, type) and self._is_own(value.__module__):
            self._add_class(value)
        elif isinstance(value, partial):
            self.add(value)
            self._texts.add(f"{name} {_constant(value.args)} {_constant(value.keywords)}")
        elif isinstance(value, FunctionType):
            self.add(value)
        elif value is not None and isinstance(value, _SHOWN):
            with suppress(RecursionError):  # it holds itself
                self._texts.add(f"{name} {_constant(value)}")

    def _add_class(self, kind: type) -> None:
        if kind not in self._classes:
            self._classes.add(kind)
            name = f"{kind.__module__}.{kind.__qualname__}"
            for key, member in vars(kind).items():
                if not key.startswith("__") or isinstance(member, FunctionType):
                    self._add_value(f"{name}.{key}", member)

    def _is_own(self, module: str) -> bool:
        return f"{module}.".startswith(f"{self._package}.") or is_own_code(module)


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
    if isinstance(value, frozenset | set):
        return repr(sorted(map(_constant, value)))
    if isinstance(value, tuple | list):
        return repr([*map(_constant, value)])
    if isinstance(value, dict):
        return repr(sorted(map(_constant, value.items())))
    if isinstance(value, Enum):
        return _constant(value.value)
    if isinstance(value, re.Pattern):
        return repr(value)
    if isinstance(value, FunctionType):
        return _text(value.__code__)
    return repr(value) if isinstance(value, _CONSTANTS) else type(value).__qualname__
