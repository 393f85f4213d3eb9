"""The description of a plugin: its options and components, without an agent that uses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

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
from boyd.plugin.connector import Connector
from boyd.plugin.hooks import SPECIFICATIONS
from boyd.plugin.host import action_info, declared, endpoint_info
from boyd.plugin.option_table import PluginOption, options_of
from boyd.plugin.plugin_base import Plugin

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
        methods = {name: one.build(plugin).bind(kind.id) for name, one in declared(kind).items()}
    except (ValueError, NameError) as error:
        raise PluginError(kind.id, str(error)) from None
    parts += methods.values()
    return PluginDescription(
        id=kind.id,
        description=(kind.__doc__ or "").strip(),
        complete=complete,
        options=options_of(kind.Options),
        observers=_told(parts, Observer),
        orienters=_told(parts, Orienter),
        strategies=_told(parts, Strategy),
        actions=[_offered(kind, part, methods) for part in _of(parts, Action)],
        tools=_told(parts, Tool),
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


def _offered(kind: type[Plugin], part: Action, methods: Mapping[str, Component]) -> OfferedAction:
    method = next((name for name, one in methods.items() if one is part), part.name)
    switch = kind.enabling_option(method) if issubclass(kind, Connector) else None
    return OfferedAction(**dict(action_info(part)), enabled_by=switch)


def _of(parts: Iterable[Component], kind: type[_C]) -> list[_C]:
    return [part for part in parts if isinstance(part, kind)]


def _told(parts: Iterable[Component], kind: type[Component]) -> list[PluginComponent]:
    return [PluginComponent(id=p.id, description=p.description) for p in _of(parts, kind)]
