"""The decorators that declare methods of a plugin as components."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from boyd.models import Autonomy, AutonomyMode, Budget, Level, Reversibility, Sandbox
from boyd.models.effect import MOST_IN_FLIGHT, RaisingVerdict
from boyd.models.investigation import Category
from boyd.plugin.components import (
    Action,
    Component,
    Endpoint,
    Observer,
    Orienter,
    Scope,
    Strategy,
    Tool,
)

_C = TypeVar("_C", bound=Component)


class Declared(Generic[_C]):
    """A component declared with a decorator; on an instance it is the plain method."""

    def __init__(
        self, kind: type[_C], function: Callable[..., Any], settings: dict[str, Any]
    ) -> None:
        self.kind = kind
        self.given = {next(iter(kind.functions)): function}
        self.settings = settings

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        return types.MethodType(next(iter(self.given.values())), instance)

    def build(self, plugin: object) -> _C:
        """The component with its functions bound to *plugin*."""
        main = next(iter(self.given.values()))
        settings = {"name": main.__name__, "description": _first_line(main), **self.settings}
        methods = {name: _method(plugin, function) for name, function in self.given.items()}
        return self.kind(**settings, **methods)

    def _also(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        self.given[name] = function
        return function


class DeclaredObserver(Declared[Observer]):
    """A method decorated with `@observer`."""

    def partition(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to split the work; it returns a list of shards."""
        return self._also("partition", function)

    def judge(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to compare what was observed with limits; it returns observations."""
        return self._also("judge", function)


class DeclaredStrategy(Declared[Strategy]):
    """A method decorated with `@strategy`."""

    def applicable_when(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to decide if the strategy applies to a situation."""
        return self._also("applicable_when", function)


class DeclaredAction(Declared[Action]):
    """A method decorated with `@action`."""

    def dry_run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to report what an execution would do."""
        return self._also("dry_run", function)

    def doubt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to give a reason to ask a person, although the action could run alone."""
        return self._also("doubt", function)

    def rollback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to undo a successful execution."""
        return self._also("rollback", function)

    def verify(
        self,
        *,
        within: float = 60.0,
        every: float = 5.0,
        sustained: float = 0.0,
        raises: RaisingVerdict = "cannot tell",
        before: bool | None = None,
        in_flight: int = MOST_IN_FLIGHT,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Use the method to tell whether an execution had its effect.

        It runs after the execution, every *every* seconds for at most *within*, until it gives a
        verdict: true (effective), the name of a verdict, or an `EffectVerdict`. False means no
        effect so far, None that it cannot tell so far.

        Args:
            within: seconds in which the effect has to show.
            every: seconds between two checks.
            sustained: seconds for which it has to be well before *effective* is final; that may
                end after *within*.
            raises: the verdict if the checks raised for the whole time.
            before: whether it also runs once before the execution, which is not needed if it is
                well already; by default unless it takes the `result`.
            in_flight: how many executions may run or wait for their verdict, on all targets.
        """
        # Not a model yet: a mistake is reported with the action when the plugin is registered.
        self.settings["checks"] = {
            "within": within,
            "every": every,
            "sustained": sustained,
            "raises": raises,
            "before": before,
            "in_flight": in_flight,
        }
        return lambda function: self._also("verify", function)


def observer(
    *,
    name: str | None = None,
    interval: float | None = None,
    timeout: float = 30.0,
    queue: str | None = None,
    scope: Scope = "anywhere",
    isolated: bool = False,
) -> Callable[[Callable[..., Any]], DeclaredObserver]:
    """Declare a method as an observer; see `Observer` for the settings."""
    settings = _without_none(
        name=name, interval=interval, timeout=timeout, queue=queue, scope=scope, isolated=isolated
    )
    return lambda function: DeclaredObserver(Observer, function, settings)


def orienter(
    *, name: str | None = None, timeout: float = 30.0
) -> Callable[[Callable[..., Any]], Declared[Orienter]]:
    """Declare a method as an orienter."""
    settings = _without_none(name=name, timeout=timeout)
    return lambda function: Declared(Orienter, function, settings)


def strategy(
    *,
    name: str | None = None,
    timeout: float = 30.0,
    withdraw_when_clear: bool = False,
    state: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], DeclaredStrategy]:
    """Declare a method as a decision strategy; see `Strategy` for the settings."""
    settings = _without_none(
        name=name, timeout=timeout, withdraw_when_clear=withdraw_when_clear, state=tuple(state)
    )
    return lambda function: DeclaredStrategy(Strategy, function, settings)


def action(
    *,
    name: str | None = None,
    title: str | None = None,
    risk: Level = "low",
    reversibility: Reversibility = "unknown",
    autonomy: AutonomyMode = "auto",
    min_confidence: float | None = None,
    timeout: float = 60.0,
    idempotent: bool = False,
    queue: str | None = None,
    target: str | None = None,
    budget: Budget | None = None,
    concurrency: int | None = None,
    tool: bool = False,
    category: Category = "execution",
    output: type[BaseModel] | None = None,
    sandbox: Sandbox | None = None,
) -> Callable[[Callable[..., Any]], DeclaredAction]:
    """Declare a method as an action; see `Action` for the settings."""
    settings = _without_none(
        name=name,
        title=title,
        risk=risk,
        reversibility=reversibility,
        autonomy=Autonomy(mode=autonomy, min_confidence=min_confidence),
        timeout=timeout,
        idempotent=idempotent,
        queue=queue,
        target=target,
        budget=budget,
        concurrency=concurrency,
        tool=tool,
        category=category,
        output=output,
        sandbox=sandbox,
    )
    return lambda function: DeclaredAction(Action, function, settings)


def tool(
    *,
    name: str | None = None,
    timeout: float = 60.0,
    queue: str | None = None,
    category: Category = "search",
    idempotent: bool = False,
    poll: bool = False,
) -> Callable[[Callable[..., Any]], Declared[Tool]]:
    """Declare a method as a tool; see `Tool` for the settings."""
    settings = _without_none(
        name=name,
        timeout=timeout,
        queue=queue,
        category=category,
        idempotent=idempotent,
        poll=poll,
    )
    return lambda function: Declared(Tool, function, settings)


def endpoint(
    method: str,
    path: str,
    *,
    name: str | None = None,
    timeout: float = 10.0,
    queue: str | None = None,
) -> Callable[[Callable[..., Any]], Declared[Endpoint]]:
    """Declare a method as an HTTP endpoint; see `Endpoint` for the settings."""
    settings = _without_none(method=method, path=path, name=name, timeout=timeout, queue=queue)
    return lambda function: Declared(Endpoint, function, settings)


def _without_none(**settings: Any) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _method(plugin: object, function: Callable[..., Any]) -> Any:
    """The function as a method, or what a subclass has put in its place."""
    name = function.__name__
    if any(vars(base).get(name) is function for base in type(plugin).__mro__):
        return getattr(plugin, name)
    return types.MethodType(function, plugin)


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]
