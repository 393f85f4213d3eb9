"""Descriptions of plugins without an agent that uses them, and which ones are installed."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from packaging.requirements import Requirement
from pydantic import BaseModel, Field
from pydantic_core import PydanticUndefined

from boyd.errors import PluginError
from boyd.models import ActionInfo, EndpointInfo, Model
from boyd.plugin.components import (
    Action,
    Component,
    Endpoint,
    Observer,
    Orienter,
    Strategy,
    Tool,
)
from boyd.plugin.discovery import GROUP, explain_error, find_entry_point
from boyd.plugin.hooks import SPECIFICATIONS
from boyd.plugin.host import action_info, declarations, endpoint_info
from boyd.plugin.plugin_base import Connector, Plugin

#: Types by their names in TOML.
_NAMES = {
    "list": "array",
    "secretstr": "secret",
    "str": "string",
    "int": "integer",
    "bool": "boolean",
    "dict": "table",
}
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n     +.+)*)", re.MULTILINE)


class PluginOption(Model):
    """An option; `name` is its path below `[plugins.options]`, `default` its text."""

    name: str
    type: str
    required: bool
    default: str
    meaning: str


def options_of(model: type[BaseModel]) -> list[PluginOption]:
    """All options of *model*; the first table of each kind is followed by what it holds."""
    return list(_options(model, "", {}, None))


def attributes(model: type[BaseModel]) -> dict[str, str]:
    """The meaning of each field, by the section `Attributes` of the docstring."""
    section = (inspect.getdoc(model) or "").partition("Attributes:\n")[2]
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}


def _options(
    model: type[BaseModel],
    prefix: str,
    tables: dict[type[BaseModel], str],
    instance: BaseModel | None,
) -> Iterator[PluginOption]:
    """The options of *model*; *tables* has the name of the first table of each kind."""
    meanings = {name: text for base in reversed(model.__mro__) for name, text in _own(base).items()}
    for attribute, field in model.model_fields.items():
        name = f"{prefix}{field.alias or attribute}"
        inner, place = _inner(field.annotation)
        missing = field.is_required() and instance is None
        default = getattr(instance, attribute, field.get_default(call_default_factory=True))
        meaning = field.description or meanings.get(attribute, "")
        if inner in tables:
            meaning = f"{meaning} Options as of `{tables[inner]}`.".strip()
        if inner is None or place or not missing:
            yield PluginOption(
                name=name,
                type=type_text(field.annotation),
                required=missing,
                default=_text(default),
                meaning=meaning,
            )
        if inner is not None and inner not in tables:
            tables[inner] = f"{name}{place}"
            values = default if isinstance(default, BaseModel) else None
            yield from _options(inner, f"{name}{place}.", tables, values)


def _own(base: type) -> dict[str, str]:
    return attributes(base) if issubclass(base, BaseModel) and base.__doc__ else {}


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model that an option holds, and how a path goes on to the model's fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _inner(arguments[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [argument for argument in arguments if argument is not types.NoneType]
        return _inner(kinds[0]) if len(kinds) == 1 else (None, "")
    if origin in (list, tuple, Sequence):
        return _inner(arguments[0])[0], "[]"
    if origin in (dict, Mapping):
        return _inner(arguments[1])[0], ".NAME"
    return None, ""


def _text(default: object) -> str:
    if default is PydanticUndefined or isinstance(default, BaseModel):
        return ""
    if default is None:
        return "none"
    if isinstance(default, tuple | set | frozenset):
        default = sorted(default) if isinstance(default, set | frozenset) else list(default)
    return json.dumps(default, default=str, ensure_ascii=False)


def type_text(annotation: Any) -> str:
    """The type of an option in a few words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return " | ".join(json.dumps(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [type_text(argument) for argument in arguments if argument is not types.NoneType]
        return " | ".join(dict.fromkeys(kinds))
    if annotation is ...:
        return "..."
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not arguments:
        return "table"
    name = getattr(origin or annotation, "__name__", str(annotation))
    name = _NAMES.get(name.lower(), name.lower())
    return f"{name} of {type_text(arguments[-1])}" if arguments else name


_C = TypeVar("_C", bound=Component)


class PluginComponent(Model):
    """An observer, orienter, strategy or tool."""

    id: str
    description: str


class OfferedAction(ActionInfo):
    """An action; `enabled_by` is the option that it needs, None if it always exists."""

    enabled_by: str | None = None


class PluginDescription(Model):
    """A plugin in full.

    Attributes:
        complete: false if it makes components of options that it requires; they are not listed.
    """

    id: str
    description: str
    complete: bool
    options: list[PluginOption]
    observers: list[PluginComponent]
    orienters: list[PluginComponent]
    strategies: list[PluginComponent]
    actions: list[OfferedAction]
    tools: list[PluginComponent]
    endpoints: list[EndpointInfo]
    hooks: list[str]


def describe_plugin(kind: type[Plugin]) -> PluginDescription:
    """Describe a plugin class.

    Raises:
        PluginError: a component of it is invalid.
    """
    plugin, complete = _instance(kind)
    try:
        parts = [part.bind(kind.id) for part in plugin.components]
        # Also what the options do not enable.
        methods = {
            name: component.build(plugin).bind(kind.id)
            for name, component in declarations(kind).items()
        }
    except (ValueError, NameError) as error:
        raise PluginError(kind.id, str(error)) from None
    parts += methods.values()
    return PluginDescription(
        id=kind.id,
        description=(kind.__doc__ or "").strip(),
        complete=complete,
        options=options_of(kind.Options),
        observers=_summaries(parts, Observer),
        orienters=_summaries(parts, Orienter),
        strategies=_summaries(parts, Strategy),
        actions=[_offer(kind, part, methods) for part in _of(parts, Action)],
        tools=_summaries(parts, Tool),
        endpoints=[endpoint_info(part) for part in _of(parts, Endpoint)],
        hooks=[name for name in SPECIFICATIONS if hasattr(kind, name)],
    )


def _instance(kind: type[Plugin]) -> tuple[Plugin, bool]:
    """A plugin with default options and all actions; without any, if it requires some."""
    field = kind.Options.model_fields.get("actions") if issubclass(kind, Connector) else None
    actions = getattr(field and field.annotation, "model_fields", {})
    try:
        return kind(**({"actions": {name: {} for name in actions}} if actions else {})), True
    except PluginError:
        return kind.__new__(kind), kind.__init__ is Plugin.__init__


def _offer(kind: type[Plugin], part: Action, methods: Mapping[str, Component]) -> OfferedAction:
    method = next((name for name, component in methods.items() if component is part), part.name)
    switch = kind.enabling_option(method) if issubclass(kind, Connector) else None
    return OfferedAction(**dict(action_info(part)), enabled_by=switch)


def _of(parts: Iterable[Component], kind: type[_C]) -> list[_C]:
    return [part for part in parts if isinstance(part, kind)]


def _summaries(parts: Iterable[Component], kind: type[Component]) -> list[PluginComponent]:
    return [PluginComponent(id=p.id, description=p.description) for p in _of(parts, kind)]


#: How many modules pass a class on before it is given up.
_DEPTH = 8


class InstalledPlugin(Model):
    """A plugin that a package offers.

    Attributes:
        name: the name for `use` in an agent file.
        summary: the first line of the docstring of its class.
        extra: the extra of the package that it needs.
        missing: what that extra would install, and is not there.
        error: why the plugin cannot be used.
    """

    name: str
    package: str
    version: str
    summary: str = ""
    extra: str | None = None
    missing: list[str] = Field(default_factory=list)
    error: str | None = None


def installed_plugins() -> list[InstalledPlugin]:
    """All plugins, those of Boyd first, then by name; a broken one has an error."""
    plugins = [_read(point) for point in entry_points(group=GROUP)]
    return sorted(
        plugins, key=lambda plugin: (plugin.package != "boyd", plugin.package, plugin.name)
    )


def _read(point: EntryPoint) -> InstalledPlugin:
    name, extra, summary = point.name.replace("_", "-"), None, ""
    missing: list[str] = []
    used = find_entry_point(name)
    error = f"{name!r} means the one of {_package(used)}" if used and used != point else None
    try:
        extra = next(iter(point.extras), None)
        missing = list(_missing(point.dist, extra)) if point.dist and extra else []
        summary = _summary(point.module, point.attr)
    except Exception as problem:  # noqa: BLE001 - whatever other packages hold
        error = explain_error(problem)
    return InstalledPlugin(
        name=name,
        package=_package(point),
        version=point.dist.version if point.dist else "",
        summary=summary,
        extra=extra,
        missing=missing,
        error=error,
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""


def _missing(package: Distribution, extra: str) -> Iterator[str]:
    """Yield what *extra* of *package* needs and is not installed, or in another version."""
    for text in package.requires or ():
        needed = Requirement(text)
        marker = needed.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            try:
                if version(needed.name) in needed.specifier:
                    continue
            except PackageNotFoundError:
                pass
            yield f"{needed.name}{needed.specifier}"


def _summary(module: str, name: str, depth: int = _DEPTH) -> str:
    """The first line of a class's docstring; empty if its source does not show it.

    Raises:
        ImportError: there is no such module.
        SyntaxError: it is not Python.
    """
    spec = _find(module)
    if not spec.origin or not spec.origin.endswith(".py") or not depth:
        return ""
    for node in _parse(Path(spec.origin)).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _summary(_origin(node, spec), alias.name, depth - 1)
    return ""


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


def _find(module: str) -> ModuleSpec:
    """Find a module without importing the packages that it is in."""
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    for name in rest:
        first = f"{first}.{name}"
        places = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(first, places) if places else None
    if spec is None:
        raise ModuleNotFoundError(f"no module named {first!r}", name=first)
    return spec


def _origin(node: ast.ImportFrom, spec: ModuleSpec) -> str:
    """The absolute name of the module that *node* imports from."""
    if not node.level:
        return node.module or ""
    package = spec.name if spec.submodule_search_locations else spec.parent
    base = (package or "").split(".")
    parents = base[: len(base) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])
