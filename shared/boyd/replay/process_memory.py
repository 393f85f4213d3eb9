"""Notices what plugins keep in their process from one iteration to the next.

Before the first iteration it lists every container that plugins can reach, with its content, and
compares that later. Caches of `functools` are left out: they give what they would compute.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import warnings
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from functools import cached_property, partial
from operator import is_
from pathlib import PurePath
from queue import SimpleQueue
from threading import local
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, Protocol

from boyd.agent.observer_digests import is_own_code
from boyd.plugin import Plugin

#: The most values that are looked at; agents have far fewer.
_MOST = 200_000
#: Values that never change.
_CONSTANT = (
    *(str, bytes, int, float, complex, bool, type(None), Enum, PurePath, BuiltinFunctionType),
)
#: Modules whose objects are not the plugins'.
_FOREIGN = ("boyd.agent", "boyd.plugin", "boyd.replay", "threading", "_thread", "logging", "re")
#: The generator of the functions of `random`, which each fork seeds anew; a shadow watches it.
_SHARED_GENERATOR = vars(random)["_inst"]
_ITERATORS: tuple[type, ...] = (itertools.cycle, type(iter([])), type(iter(())), type(iter({})))
#: Attributes that hold others.
_PARTS = ("__self__", "__func__", "func", "args", "keywords", "fget", "__defaults__")
_MORE_PARTS = ("__kwdefaults__", "__closure__")

_Function = Callable[..., Any]


class ProcessMemory:
    """All that plugins keep in themselves, their classes, modules and functions."""

    def __init__(self, plugins: Iterable[Plugin], functions: Iterable[_Function]) -> None:
        """Remember the content of all that *plugins* and their *functions* can reach."""
        walk = _Walk({module for plugin in plugins for module in _modules_of(plugin)})
        for plugin in plugins:
            walk.add(plugin, plugin.id)
        for function in functions:
            walk.add(function, getattr(function, "__qualname__", "a function"))
        walk.add_modules()
        self._contents = walk.contents

    def find_change(self) -> str | None:
        """Name something that has changed since then."""
        return next((content.name for content in self._contents if content.has_changed()), None)


def _modules_of(plugin: Plugin) -> Iterator[str]:
    """The module of a plugin, and the others in its folder."""
    name = type(plugin).__module__
    yield name
    folder = _folder_of(sys.modules[name])
    yield from (
        other for other in [*sys.modules] if folder and _folder_of(sys.modules[other]) == folder
    )


def _folder_of(module: ModuleType) -> str:
    return (getattr(module, "__file__", None) or "").rpartition(os.sep)[0]


class _Content(Protocol):
    """The content of a container, as it was at first."""

    name: str

    def has_changed(self) -> bool:
        """Report whether it holds something else now."""


class _Names:
    """Named values: the content of a dict, of an object or of a module."""

    def __init__(self, name: str, names: dict[str, Any], kind: type = object) -> None:
        self.name = name
        self._names = names
        self._kind = kind
        self._keys = [*names]
        self._values = [*names.values()]

    def has_changed(self) -> bool:
        if self._is_same():
            return False
        names = self._names
        before = dict(zip(self._keys, self._values, strict=True))
        changed = [key for key in [*before, *names] if self._differs(key, before)]
        if changed:
            self.name = f"{self.name}.{changed[0]}"
        return bool(changed)

    def _is_same(self) -> bool:
        """Compare quickly, by identity."""
        names = self._names
        return (
            len(names) == len(self._keys)
            and all(map(is_, self._keys, names))
            and all(map(is_, self._values, names.values()))
        )

    def _differs(self, key: str, before: dict[str, Any]) -> bool:
        if isinstance(getattr(self._kind, str(key), None), cached_property):
            return False
        value = self._names.get(key, _Walk)
        hidden = str(key).startswith(("__", "_abc_")) or isinstance(value, ModuleType)
        return not hidden and not _is_equal(before.get(key, _Walk), value)


class _Items:
    """The items of a list, of a set or of a variable of a closure."""

    def __init__(self, name: str, read: Callable[[], Sequence[Any]]) -> None:
        self.name = name
        self._read = read
        self._items = self._read_items()

    def _read_items(self) -> Sequence[Any]:
        """The items; none if they cannot be had, as the state of a `random.SystemRandom`."""
        with suppress(Exception):
            return self._read()
        return ()

    def has_changed(self) -> bool:
        items = self._read_items()
        if len(items) != len(self._items):
            return True
        return not (all(map(is_, self._items, items)) or all(map(_is_equal, self._items, items)))


def _is_equal(before: Any, after: Any) -> bool:
    """Compare constants by value, and all else by identity."""
    if before is after:
        return True
    is_constant = isinstance(before, (*_CONSTANT, tuple)) and type(before) is type(after)
    return is_constant and bool(before == after)


class _Walk:
    """Finds the containers that can be reached from values."""

    def __init__(self, modules: set[str]) -> None:
        self.contents: list[_Content] = []
        self._modules = modules
        self._seen: dict[int, Any] = {}

    def add_modules(self) -> None:
        """Add the variables of the modules, and of own ones that these use."""
        past: set[str] = set()
        while waiting := sorted(self._modules - past):
            past.update(waiting)
            for name in waiting:
                self._add_module(name)

    def _add_module(self, name: str) -> None:
        names = vars(sys.modules[name])
        self.contents.append(_Names(name, names))
        for key, value in [*names.items()]:
            if not key.startswith("__"):
                self.add(value, f"{name}.{key}")

    def add(self, value: Any, name: str) -> None:
        """Add a value, and all that it holds."""
        waiting = deque([(value, name)])
        while waiting and len(self._seen) < _MOST:
            value, name = waiting.popleft()
            self._note_module(value)
            if id(value) not in self._seen and not self._is_foreign(value):
                self._seen[id(value)] = value
                waiting.extend(
                    (item, f"{name}{suffix}") for suffix, item in self._open(value, name)
                )

    def _note_module(self, value: Any) -> None:
        """Note the module that a value is, or that its class or function is of."""
        kind = value if isinstance(value, type | FunctionType) else type(value)
        is_module = isinstance(value, ModuleType)
        name = _attribute(value, "__name__") if is_module else _attribute(kind, "__module__")
        if isinstance(name, str) and is_own_code(name):
            self._modules.add(name)

    def _is_foreign(self, value: Any) -> bool:
        if isinstance(value, (*_CONSTANT, ModuleType)) or value is _SHARED_GENERATOR:
            return True
        if isinstance(value, local):
            return False
        if isinstance(value, type | FunctionType):
            return value.__module__ not in self._modules
        module = f"{type(value).__module__}."
        return module.startswith(tuple(f"{foreign}." for foreign in _FOREIGN))

    def _open(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        """The values in another one, whose content is added."""
        if isinstance(value, type):
            self.contents.append(_Items(name, partial(_class_values, value)))
            yield from ((f".{key}", item) for key, item in _class_items(value))
        elif isinstance(value, dict):
            self.contents.append(_Names(name, value))
            yield from (("", item) for item in [*value.values()])
            yield "", _attribute(value, "__dict__")
        elif isinstance(value, tuple | frozenset):
            yield from (("", item) for item in value)
        elif isinstance(value, MutableSequence | set) and not isinstance(value, bytearray | array):
            self.contents.append(_Items(name, partial(list, value)))
            yield from (("", item) for item in [*value])
        elif isinstance(value, CellType):
            self.contents.append(_Items(name, partial(_cell, value)))
            yield from (("", item) for item in _cell(value))
        elif read := _progress(value):
            self.contents.append(_Items(name, lambda: [read()]))
        else:
            yield from self._open_object(value, name)

    def _open_object(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        names = _attribute(value, "__dict__")
        if isinstance(names, dict) and not isinstance(value, MethodType):
            self.contents.append(_Names(name, names, kind))
            yield from ((f".{key}", item) for key, item in [*names.items()])
        slots = _slots(kind)
        if slots:
            read = partial(_slot_values, value, slots)
            self.contents.append(_Items(name, read))
            yield from zip((f".{slot}" for slot in slots), read(), strict=True)
        for part in (*_PARTS, *_MORE_PARTS):
            yield "", _attribute(value, part)


def _class_items(kind: type) -> list[tuple[str, Any]]:
    names = vars(kind).items()
    return [(key, value) for key, value in names if not key.startswith(("__", "_abc_"))]


def _class_values(kind: type) -> list[Any]:
    return [value for _, value in _class_items(kind)]


def _slots(kind: type) -> list[str]:
    slots = (base.__dict__.get("__slots__", ()) for base in kind.__mro__)
    names = itertools.chain.from_iterable(
        [each] if isinstance(each, str) else each for each in slots
    )
    # Private values of a model are in a slot of that name.
    return [name for name in names if name == "__pydantic_private__" or not name.startswith("__")]


def _slot_values(value: Any, slots: Iterable[str]) -> list[Any]:
    return [_attribute(value, slot) for slot in slots]


def _attribute(value: Any, name: str) -> Any:
    """An attribute; None without one, or if it cannot be had, as that of a proxy for nothing."""
    with suppress(Exception):
        return getattr(value, name, None)
    return None


def _cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty
        return []


def _stage(generator: GeneratorType[Any, Any, Any]) -> Any:
    """The place in its code that a generator has reached, with its variables."""
    frame = generator.gi_frame
    return frame and (frame.f_lasti, repr(frame.f_locals))


def _position(iterator: Any) -> object:
    """The rest of an iterator. Python 3.14 hides that of a cycle, which always differs then."""
    with warnings.catch_warnings(), suppress(TypeError):
        warnings.simplefilter("ignore", DeprecationWarning)
        return repr(iterator.__reduce__())
    return object()


def _progress(value: Any) -> Callable[[], Any] | None:
    """A function that tells how far an object has come whose attributes do not."""
    if isinstance(value, random.Random):
        return value.getstate
    if isinstance(value, ContextVar):
        return partial(value.get, None)
    if isinstance(value, SimpleQueue):
        return value.qsize
    if isinstance(value, GeneratorType):
        return partial(_stage, value)
    if isinstance(value, bytearray):
        return partial(bytes, value)
    if isinstance(value, _ITERATORS):
        return partial(_position, value)
    if isinstance(value, itertools.count):
        return partial(repr, value)
    read = _attribute(value, "tobytes")
    return read if callable(read) else None
