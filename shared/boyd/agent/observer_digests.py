"""The code of functions of plugins: digests of what observations depend on, and names.

A replay takes observations as recorded. If observers have other code or options now, it cannot tell
what they would have observed.
"""

from __future__ import annotations

import dis
import re
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, cached_property, lru_cache, partial, partialmethod
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic.fields import FieldInfo, ModelPrivateAttr

from boyd.models import digest_of
from boyd.plugin import Observer, Plugin

#: Folders of libraries and of Boyd. A package of a user may well be named `boyd_disk_watch`.
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{Path(__file__).parents[2]}/",
)
#: Values that are written as Python writes them.
_PLAIN = (
    *(str, bytes, bytearray, int, float, complex, type(None), range, Decimal, Fraction),
    *(date, time, timedelta, tzinfo, PurePath, UUID),
)
#: Things that call others, with the attributes that hold these.
_CALLERS: Mapping[type, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"),
    partialmethod: ("func", "args", "keywords"),
    MethodType: ("__func__", "__self__"),
    property: ("fget",),
    cached_property: ("func",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    FieldInfo: ("default", "default_factory", "metadata"),
    ModelPrivateAttr: ("default", "default_factory"),
}
#: Where classes of pydantic keep their fields.
_FIELDS = ("__pydantic_fields__", "__private_attributes__")
#: What runs before a plugin observes, and may set what its observers read.
_CONSTRUCTORS = ("__new__", "__init__", "__init_subclass__", "use_folder", "init")


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
    code.add_setters()
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
    """Collects the code of functions with the own code, constants and objects that they use.

    Neither names of locals nor lines, comments and docstrings count.
    """

    def __init__(self, plugin: Plugin) -> None:
        self._kind = type(plugin)
        module = self._kind.__module__
        self._package = module.rpartition(".")[0] or module
        self._texts: set[str] = set()
        self._codes: set[CodeType] = set()
        #: The values that were shown, which keeps them in memory, and their texts.
        self._shown: dict[int, tuple[object, str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._texts))

    @property
    def names(self) -> frozenset[str]:
        """All names that the code uses."""
        return frozenset().union(*map(_names, self._codes))

    def add(self, function: Callable[..., Any]) -> None:
        """Add a function, and what it names."""
        self._add_value("", function)

    def add_setters(self) -> None:
        """Add the functions of the plugin that set attributes which the code names.

        They are read, and not the attributes: these may change while the plugin works.
        """
        methods = {
            name: member
            for kind in reversed(self._own_bases(self._kind))
            for name, member in vars(kind).items()
            if isinstance(member, FunctionType)
        }
        before = -1
        while before < len(self._codes):
            before, used = len(self._codes), self.names
            setters = {
                name for name in methods if not used.isdisjoint(_set_by(methods[name].__code__))
            }
            for name in sorted(methods):
                calls = _callees(methods, name) if name in _CONSTRUCTORS else {name}
                if not calls.isdisjoint(setters):
                    self.add(methods[name])

    def _add_value(self, name: str, value: object) -> None:
        text = type(value).__qualname__
        with suppress(Exception):  # it is nested too deeply, or stands for what is not there
            text = self._show(value)
        self._texts.add(f"{name} {text}")

    def _show(self, value: object) -> str:
        """A value as a text that is equal in every process; the code that it holds is added."""
        if isinstance(value, _PLAIN) and not isinstance(value, Enum | datetime):
            return repr(value)
        if isinstance(value, type):
            return self._open_class(value)
        if id(value) not in self._shown:
            self._shown[id(value)] = value, "itself"
            self._shown[id(value)] = value, self._open(value)
        return self._shown[id(value)][1]

    def _open(self, value: Any) -> str:
        kind = type(value)
        text = self._open_class(kind)
        if isinstance(value, FunctionType):
            text = self._open_function(value)
        elif isinstance(value, re.Pattern):
            text += f" {value.pattern!r} {value.flags}"
        elif isinstance(value, list | tuple | deque):
            text += f" {[*map(self._show, value)]}"
        elif isinstance(value, set | frozenset):
            text += f" {sorted(map(self._show, value))}"
        elif isinstance(value, dict | MappingProxyType):
            text += f" {sorted(map(self._show, value.items()))}"
        elif holder := next((base for base in _CALLERS if isinstance(value, base)), None):
            text += f" {[self._show(getattr(value, name, None)) for name in _CALLERS[holder]]}"
        elif _has_dict(value) and "__wrapped__" in vars(value):
            text += f" {self._show(value.__wrapped__)}"  # a cache of `functools`
        return text + self._open_object(value, kind)

    def _open_object(self, value: Any, kind: type) -> str:
        """The attributes of an object of own code, or of a kind that only holds values."""
        is_plain = is_dataclass(kind) or issubclass(kind, BaseModel | SimpleNamespace)
        if isinstance(value, Plugin | FunctionType) or not (is_plain or self._is_own(kind)):
            return ""
        slots = [name for base in kind.__mro__ for name in _slots(base)]
        values = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        values |= vars(value) if _has_dict(value) else {}
        attributes = sorted(
            (name, self._show(item))
            for name, item in values.items()
            if name == "__pydantic_private__" or not name.startswith("__")
            if not isinstance(_member(kind, name), cached_property)
        )
        return f" {attributes}"

    def _open_class(self, kind: type) -> str:
        """The name of a class; what it and its bases define is added if they are own code."""
        if issubclass(kind, Plugin) or id(kind) in self._shown:
            return kind.__qualname__
        self._shown[id(kind)] = kind, kind.__qualname__
        for base in (*self._own_bases(kind), *self._own_bases(type(kind))):
            name = f"{base.__module__}.{base.__qualname__}"
            for key, member in sorted(vars(base).items()):
                if not key.startswith("__") or isinstance(member, FunctionType):
                    self._add_value(f"{name}.{key}", member)
            for fields in _FIELDS:
                for key, field in vars(base).get(fields, {}).items():
                    self._add_value(f"{name}.{key}", field)
        return kind.__qualname__

    def _open_function(self, function: FunctionType) -> str:
        """The code of a function; what it names is added."""
        wrapped = vars(function).get("__wrapped__")
        module = str(function.__globals__.get("__name__"))
        if module.partition(".")[0] == "boyd" and not self._is_own_module(module):
            return self._show(wrapped) if wrapped is not None else function.__qualname__
        code = function.__code__
        name = f"{module}.{function.__qualname__}"
        attributes = sorted((key, self._show(item)) for key, item in vars(function).items())
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty
                if variable != "__class__":  # of `super()`
                    self._add_value(f"{name} {variable}", cell.cell_contents)
        if not self._is_own_module(module):
            return f"{name} {attributes}"
        self._codes.add(code)
        defaults = self._show((function.__defaults__, function.__kwdefaults__ or {}))
        self._texts.add(f"{name} {_text(code)} {defaults} {attributes}")
        self._add_names(name, function)
        return f"{name} {_text(code)}"

    def _add_names(self, name: str, function: FunctionType) -> None:
        """Add what the names stand for that a function uses, also as texts for `getattr`."""
        names = sorted(_names(function.__code__))
        bases = self._own_bases(self._kind) if "super" in names else []
        for used in sorted({*names, *_identifiers(function.__code__)}):
            for kind in bases or [self._kind]:
                member = _member(kind, used)
                if member is not None:
                    self._add_value(f"{name} {kind.__qualname__}.{used}", member)
            value = function.__globals__.get(used)
            if isinstance(value, ModuleType):
                self._add_module(f"{name} {used}", value, names)
            elif value is not None:
                self._add_value(f"{name} {used}", value)

    def _add_module(self, name: str, module: ModuleType, names: Sequence[str]) -> None:
        if self._is_own_module(module.__name__):
            for other in names:
                if other in vars(module):
                    self._add_value(f"{name}.{other}", vars(module)[other])

    def _own_bases(self, kind: type) -> list[type]:
        return [base for base in kind.__mro__ if self._is_own(base)]

    def _is_own(self, kind: type) -> bool:
        return self._is_own_module(kind.__module__)

    def _is_own_module(self, module: str) -> bool:
        return f"{module}.".startswith(f"{self._package}.") or is_own_code(module)


def _has_dict(value: object) -> bool:
    return isinstance(getattr(value, "__dict__", None), dict)


def _member(kind: type, name: str) -> object:
    """Look up a member of a class without binding it; None if the class has no such member."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _slots(kind: type) -> Sequence[str]:
    slots = vars(kind).get("__slots__", ())
    return [slots] if isinstance(slots, str) else [*slots]


def _callees(methods: Mapping[str, FunctionType], name: str) -> set[str]:
    """Collect the methods that *name* reaches by calls, itself among them."""
    reached, pending = {name}, [name]
    while pending:
        new = _names(methods[pending.pop()].__code__) & methods.keys() - reached
        reached |= new
        pending.extend(new)
    return reached


@lru_cache(4096)
def _set_by(code: CodeType) -> frozenset[str]:
    """List the attributes that *code* assigns; by `setattr` or `__dict__`, those it may assign."""
    steps = dis.get_instructions(code)
    names = frozenset(str(step.argval) for step in steps if step.opname == "STORE_ATTR")
    is_by_name = not {"setattr", "__setattr__", "__dict__", "vars"}.isdisjoint(code.co_names)
    return names | _identifiers(code) if is_by_name else names


@lru_cache(4096)
def _identifiers(code: CodeType) -> frozenset[str]:
    """List the constant texts of *code* that `getattr` or `setattr` could take as names."""
    constants = deque(code.co_consts[_has_docstring(code) :])
    texts = set[str]()
    while constants:
        constant = constants.popleft()
        if isinstance(constant, str) and constant.isidentifier():
            texts.add(constant)
        elif isinstance(constant, tuple):
            constants.extend(constant)
    return frozenset(texts)


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _has_docstring(code: CodeType) -> bool:
    is_text = bool(code.co_consts) and isinstance(code.co_consts[0], str)
    return is_text and not code.co_name.startswith("<")


def _text(code: CodeType) -> str:
    """The instructions of *code* with what they name; only a docstring is left out."""
    constants = code.co_consts[_has_docstring(code) :]
    return f"{code.co_code.hex()} {code.co_names} {[*map(_constant, constants)]}"


def _constant(value: object) -> str:
    """A constant of code as a text that is equal in every process."""
    if isinstance(value, CodeType):
        return _text(value)
    if isinstance(value, frozenset):
        return repr(sorted(map(_constant, value)))
    if isinstance(value, tuple):
        return repr([*map(_constant, value)])
    return repr(value)
