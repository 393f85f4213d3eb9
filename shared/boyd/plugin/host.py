"""Registers an agent's plugins, and finds their components and hooks."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

from boyd.errors import PluginError
from boyd.models import ActionInfo, Catalog, EndpointInfo, JsonObject
from boyd.plugin.components import (
    Action,
    Component,
    Endpoint,
    Observer,
    Orienter,
    Strategy,
    Taker,
    Tool,
    check_runs,
)
from boyd.plugin.decorators import Declared
from boyd.plugin.discovery import naming_plugin
from boyd.plugin.hooks import SPECIFICATIONS, YIELDING, is_guard
from boyd.plugin.plugin_base import Plugin

_C = TypeVar("_C", bound=Component)

_ID = re.compile(r"[\w.-]+")
#: Methods of plugins that may be generators, because all that they return is read.
_READ = frozenset({"misfits", "notification_recipients", "escalation_recipients", "playbooks"})


@dataclass(frozen=True)
class Hook:
    """A plugin's implementation of a hook."""

    plugin_id: str
    name: str
    taker: Taker
    fail_closed: bool

    def __call__(self, **values: Any) -> Any:
        """Call it with the *values* it declares."""
        return self.taker(**values)


class PluginHost:
    """The plugins of one agent, in order."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        """Register *plugins*.

        Raises:
            PluginError: two share an id, or a hook or component is invalid.
        """
        self.plugins: dict[str, Plugin] = {}
        self._components: dict[str, Component] = {}
        #: Cache of components by kind.
        self._kinds: dict[type[Component], dict[str, Any]] = {}
        self._hooks: dict[str, list[Hook]] = {name: [] for name in SPECIFICATIONS}
        for plugin in plugins:
            self._register(plugin)

    @property
    def observers(self) -> Mapping[str, Observer]:
        """All observers by id, in registration order."""
        return self._of(Observer)

    @property
    def orienters(self) -> Mapping[str, Orienter]:
        """All orienters by id, in registration order."""
        return self._of(Orienter)

    @property
    def strategies(self) -> Mapping[str, Strategy]:
        """All strategies by id, in registration order."""
        return self._of(Strategy)

    @property
    def actions(self) -> Mapping[str, Action]:
        """All actions by id, in registration order."""
        return self._of(Action)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """All tools for models by id, in registration order."""
        return self._of(Tool)

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """All endpoints by id, in registration order."""
        return self._of(Endpoint)

    @cached_property
    def catalog(self) -> Catalog:
        """All components, for processes that do not load the plugins."""
        return Catalog(
            observers=list(self.observers),
            orienters=list(self.orienters),
            strategies=list(self.strategies),
            actions=[action_info(part) for part in self.actions.values()],
            endpoints=[endpoint_info(part) for part in self.endpoints.values()],
        )

    def hooks(self, name: str) -> list[Hook]:
        """The implementations of the hook *name*, in plugin order."""
        return self._hooks[name]

    def _of(self, kind: type[_C]) -> dict[str, _C]:
        if kind not in self._kinds:
            parts = self._components.items()
            self._kinds[kind] = {key: part for key, part in parts if isinstance(part, kind)}
        return self._kinds[kind]

    def _register(self, plugin: Plugin) -> None:
        if not _ID.fullmatch(plugin.id):
            rule = "its id must be set, of letters, digits, dots, dashes and underscores"
            raise PluginError(type(plugin).__name__, f"{rule}, and is {plugin.id!r}")
        if not hasattr(plugin, "options"):
            raise PluginError(plugin.id, "its __init__ has to call super().__init__(**options)")
        if plugin.id in self.plugins:
            raise PluginError(plugin.id, "two plugins have this id; give one of them another")
        with naming_plugin(plugin.id, "cannot be loaded"):
            _check_methods(plugin)
            components = [self._bound(plugin, part) for part in _parts(plugin)]
            hooks = _hooks(plugin)
            self._check_unique(plugin, components)
        self.plugins[plugin.id] = plugin
        self._components.update({part.id: part for part in components})
        self._kinds.clear()
        for hook in hooks:
            self._hooks[hook.name].append(hook)

    def _bound(self, plugin: Plugin, component: Component) -> Component:
        if not isinstance(component, Component):
            reason = f"its `components` list {component!r}, which is no component such as Observer"
            raise PluginError(plugin.id, reason)
        queue = plugin.component_queue()
        if queue and isinstance(component, (Action, Endpoint, Observer, Tool)):
            everywhere = isinstance(component, Observer) and component.scope == "every_host"
            component.queue = component.queue or (None if everywhere else queue)
        try:
            return component.bind(plugin.id)
        except (ValueError, NameError) as error:
            raise PluginError(plugin.id, str(error)) from None

    def _check_unique(self, plugin: Plugin, components: list[Component]) -> None:
        ids: set[str] = set()
        for part in components:
            if part.id in ids:
                raise PluginError(plugin.id, f"two components are named {part.name!r}")
            ids.add(part.id)
        routes = [(part.method, part.path) for part in components if isinstance(part, Endpoint)]
        if len(routes) > len(set(routes)):
            raise PluginError(plugin.id, "two of its endpoints have the same method and path")


def action_info(action: Action) -> ActionInfo:
    """The manifest of an action."""
    return ActionInfo(
        id=action.id,
        name=action.title,
        description=action.description,
        risk=action.risk,
        autonomy=action.autonomy,
        params=_schema(action.params),
        output=_schema(action.output),
        timeout=action.timeout,
        sandbox=action.sandbox,
        idempotent=action.idempotent,
        queue=action.queue,
        dry_run=action.has("dry_run"),
        rollback=action.has("rollback"),
        reversibility=action.reversibility,
        target=action.target,
        concurrency=action.in_flight_limit,
    )


def _schema(model: type[BaseModel] | None) -> JsonObject | None:
    return model.model_json_schema(by_alias=True) if model else None


def endpoint_info(endpoint: Endpoint) -> EndpointInfo:
    """The description of an endpoint."""
    return EndpointInfo(
        id=endpoint.id,
        plugin=endpoint.plugin_id,
        method=endpoint.method,
        path=endpoint.path,
        description=endpoint.description,
        timeout=endpoint.timeout,
        queue=endpoint.queue,
    )


def declarations(kind: type[Plugin]) -> dict[str, Declared[Any]]:
    """The components that the methods of a plugin class declare, by the names of the methods.

    Raises:
        PluginError: a method without a decorator takes the place of one of a base class.
    """
    components: dict[str, Declared[Any]] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Declared):
                components[name] = value
            elif isinstance(_undecorate(value), Declared):
                raise PluginError(
                    kind.id or kind.__name__,
                    f"{name} of {base.__name__} hides a component: "
                    "put the decorator of Boyd above the others",
                )
            elif components.pop(name, None) and value is not None:
                raise PluginError(
                    kind.id or kind.__name__,
                    f"{name} of {base.__name__} takes the place of a component and is none itself; "
                    f"decorate it like that one, or leave the component out with `{name} = None`",
                )
    return components


def _undecorate(value: object) -> object:
    """The function below a decorator such as `property`, or one with `functools.wraps`."""
    return getattr(value, "__wrapped__", getattr(value, "fget", None))


def _check_methods(plugin: Plugin) -> None:
    """Check that the methods run that a plugin has from its base."""
    for name, _ in inspect.getmembers(Plugin, inspect.isfunction):
        try:
            check_runs(getattr(plugin, name), yields=name in _READ)
        except ValueError as error:
            raise PluginError(plugin.id, str(error)) from None


def _parts(plugin: Plugin) -> list[Component]:
    offered = (
        value.build(plugin)
        for name, value in declarations(type(plugin)).items()
        if value.kind is not Action or plugin.offers(name)
    )
    return [*map(copy, plugin.components), *offered]


def _hooks(plugin: Plugin) -> list[Hook]:
    return [_hook(plugin, name) for name in dir(type(plugin)) if name.startswith("on_")]


def _hook(plugin: Plugin, name: str) -> Hook:
    if name not in SPECIFICATIONS:
        near = difflib.get_close_matches(name, SPECIFICATIONS, 1, 0)[0]
        raise PluginError(plugin.id, f"unknown hook {name!r}; did you mean {near!r}?")
    function = getattr(plugin, name)
    try:
        taker = Taker(function, SPECIFICATIONS[name], name in YIELDING)
    except ValueError as error:
        raise PluginError(plugin.id, f"hook {name}: {error}") from None
    return Hook(plugin.id, name, taker, is_guard(function))
