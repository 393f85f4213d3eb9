"""What a plugin is made of: observers, orienters, strategies and actions.

Each can be written in two ways. As methods of the plugin, under a decorator:

    class Disk(Plugin):
        id = "disk"

        @observer(interval=60)
        def usage(self, ctx): ...

or as a class of its own, listed in the plugin's `components`:

    class Usage(Observer):
        interval = 60

        def observe(self, ctx): ...

    class Disk(Plugin):
        id = "disk"
        components = (Usage(),)
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from boyd.models import Autonomy, AutonomyMode, Budget, Level
from boyd.models.investigation import Category

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


Scope = Literal["anywhere", "every_host"]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ENDPOINT_PATH = re.compile(r"(/([\w.~-]+|\{[a-z_]\w*\}))+|/", re.ASCII)

_C = TypeVar("_C", bound="Component")


def check_params(name: str, params: type[BaseModel] | None) -> None:
    """Check that no parameter of the component *name* is declared as a secret.

    Raises:
        ValueError: one is; params are stored, and shown to those who approve and who read.
    """
    try:
        schema = params.model_json_schema(by_alias=True) if params else {}
    except PydanticInvalidForJsonSchema:  # whoever shows it will say so
        return
    if _has_secret(schema):
        raise ValueError(
            f"{name}: its params have a SecretStr, and params are stored in Redis and shown to "
            "readers; take the secret from the plugin's options or from a file on the worker"
        )


def _has_secret(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        secret = schema.get("writeOnly") is True and schema.get("format") == "password"
        return secret or any(_has_secret(one) for one in schema.values())
    return isinstance(schema, list) and any(_has_secret(one) for one in schema)


class Component:
    """Common to all: a name, an id `plugin:name`, and functions that take what they need.

    `title` is what people are shown; the name, unless given.
    """

    #: The functions of this kind and the arguments offered to each; the first one is required.
    functions: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    name: str = ""
    title: str = ""
    description: str = ""
    id: str = ""
    timeout: float = 30.0

    def __init__(self, **settings: Any) -> None:
        for key, value in settings.items():
            setattr(self, key, value)
        self.name = self.name or _snake(type(self).__name__)
        self.title = self.title or self.name
        self._takers: dict[str, Taker] = {}

    def bind(self, plugin_id: str) -> Self:
        """Give the component its id and check its functions.

        Raises:
            ValueError: a function is missing or takes arguments that are not offered.
        """
        self.id = f"{plugin_id}:{self.name}"
        self._takers = {}
        for position, (name, offered) in enumerate(self.functions.items()):
            function = getattr(self, name, None)
            if function is not None:
                self._takers[name] = Taker(function, offered)
            elif position == 0:
                raise ValueError(f"{self.name}: no function {name}({', '.join(offered)})")
        return self

    def has(self, function: str) -> bool:
        """Whether the optional *function* was given."""
        return function in self._takers

    def call(self, function: str, **values: Any) -> Any:
        """Call one of the component's functions with those of *values* that it takes."""
        return self._takers[function](**values)

    @property
    def plugin_id(self) -> str:
        """The id of the plugin that the component belongs to."""
        return self.id.partition(":")[0]

    def _model(self) -> type[BaseModel] | None:
        """The model of `params`, as the first function names it.

        Raises:
            ValueError: a function takes what looks like a parameter, and would never be given.
        """
        for taker in self._takers.values():
            strange = sorted(set(inspect.signature(taker.function).parameters) - set(taker.takes))
            if strange:
                raise ValueError(
                    f"{self.name}: takes {', '.join(strange)}; what it is given comes as one "
                    "argument `params`, a pydantic model or a dict"
                )
        return _params_model(next(iter(self._takers.values())).function)


class Observer(Component):
    """Looks at something and returns observations.

    Attributes:
        interval: seconds between two runs, honoured in continuous mode; None: every time.
        timeout: seconds one run may take.
        queue: the queue of workers that can see it; None: any worker.
        scope: `every_host` runs it once on each live host.
        isolated: run it in a process of its own, which is killed when its time is up.
    """

    functions: ClassVar = {"observe": ("ctx", "shard"), "partition": ("ctx",)}

    interval: float | None = None
    queue: str | None = None
    scope: Scope = "anywhere"
    isolated: bool = False


class Orienter(Component):
    """Reads all observations and returns an assessment."""

    functions: ClassVar = {"orient": ("observations", "ctx")}


class Strategy(Component):
    """Chooses what to do in a situation; `applicable_when` says whether it has a say.

    With `withdraw_when_clear` an approval that it asked for is withdrawn once it has no say any
    more, or says that nothing is to be done.
    """

    functions: ClassVar = {"decide": ("situation", "ctx"), "applicable_when": ("situation", "ctx")}

    withdraw_when_clear: bool = False


class Action(Component):
    """Does something in the world.

    Attributes:
        risk: what it may break; gates nothing by itself.
        autonomy: when it may run without a person.
        params: the pydantic model its parameters must fit.
        timeout: seconds one execution may take.
        idempotent: whether it may run again when its outcome was lost.
        queue: the queue of the workers that may perform it; None: `boyd.act`.
        target: the parameter that names what it acts on, for budgets.
        budget: how often it may run per target.
        tool: whether models may use it in investigations, gated like from anywhere else.
        category: what kind of tool it then is.
    """

    functions: ClassVar = {
        "execute": ("params", "ctx"),
        "dry_run": ("params", "ctx"),
        "rollback": ("params", "result", "ctx"),
    }

    timeout = 60.0
    risk: Level = "low"
    autonomy: Autonomy = Autonomy()
    params: type[BaseModel] | None = None
    idempotent: bool = False
    queue: str | None = None
    target: str | None = None
    budget: Budget | None = None
    tool: bool = False
    category: Category = "execution"

    def bind(self, plugin_id: str) -> Self:
        """Also find the parameters' model in the annotation of `execute`."""
        super().bind(plugin_id)
        self.params = self.params or self._model()
        check_params(self.name, self.params)
        self._check_target()
        return self

    def _check_target(self) -> None:
        if self.target is None or self.params is None:
            return
        fields = self.params.model_fields
        aliases = {field.alias: name for name, field in fields.items() if field.alias}
        if self.target not in fields and self.target not in aliases:
            known = ", ".join(field.alias or name for name, field in fields.items())
            raise ValueError(f"{self.name}: target {self.target!r} is no parameter; known: {known}")
        # Parameters are stored under their aliases.
        name = aliases.get(self.target, self.target)
        self.target = fields[name].alias or name

    def target_of(self, params: Mapping[str, Any]) -> str:
        """What an execution with *params* acts on: the value of the target parameter."""
        return str(params.get(self.target, "")) if self.target else ""


class Tool(Component):
    """Finds something out for a model that investigates; what changes something is an action.

    Attributes:
        params: the pydantic model its parameters must fit, which the model is told of.
        timeout: seconds one call may take.
        queue: the queue of the workers that can do it; None: `boyd.act`.
        category: what kind of tool it is, for how a model is brought to an end.
        idempotent: whether it may be called again when a worker was lost meanwhile.
        poll: whether calling it again and again is what it is for, as long as its results differ.
    """

    functions: ClassVar = {"run": ("params", "ctx")}

    timeout = 60.0
    params: type[BaseModel] | None = None
    queue: str | None = None
    category: Category = "search"
    idempotent: bool = False
    poll: bool = False

    def bind(self, plugin_id: str) -> Self:
        """Also find the parameters' model in the annotation of `run`."""
        super().bind(plugin_id)
        self.params = self.params or self._model()
        check_params(self.name, self.params)
        return self


class Endpoint(Component):
    """Answers HTTP requests at `/plugins/<plugin><path>`, on a worker.

    It returns what JSON can hold, an `EndpointReply`, or `Perform` to have an action taken through
    the one path that executes actions; not with GET, which takes no more than reading.

    Attributes:
        method: GET, POST, PUT, PATCH or DELETE; GET needs the scope `read`, others `actions`.
        path: begins with a slash; a part `{name}` stands for any text without one.
        timeout: seconds one answer may take.
        queue: the queue of the workers that can answer; None: `boyd.act`.
    """

    functions: ClassVar = {"handle": ("request", "ctx")}

    method: str = "GET"
    path: str = "/"
    timeout = 10.0
    queue: str | None = None

    def bind(self, plugin_id: str) -> Self:
        """Also check method and path."""
        if self.method not in METHODS:
            raise ValueError(f"{self.name}: method {self.method!r} is none of {', '.join(METHODS)}")
        if not _ENDPOINT_PATH.fullmatch(self.path):
            raise ValueError(f"{self.name}: path {self.path!r} does not look like /things/{{id}}")
        return super().bind(plugin_id)


@dataclass(frozen=True)
class Perform:
    """What an endpoint returns to have an action taken: gated, hooked, claimed like any other."""

    action: str
    params: dict[str, Any] = field(default_factory=dict)
    rationale: str = ""


class Declared(Generic[_C]):
    """A component declared by a decorator; on an instance it is the plain method."""

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
        methods = {name: types.MethodType(f, plugin) for name, f in self.given.items()}
        return self.kind(**settings, **methods)

    def _also(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        self.given[name] = function
        return function


class DeclaredObserver(Declared[Observer]):
    """What `@observer` makes of a method."""

    def partition(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to split the work: it returns a list of shards."""
        return self._also("partition", function)


class DeclaredStrategy(Declared[Strategy]):
    """What `@strategy` makes of a method."""

    def applicable_when(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to say whether the strategy has a say in a situation."""
        return self._also("applicable_when", function)


class DeclaredAction(Declared[Action]):
    """What `@action` makes of a method."""

    def dry_run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to tell what an execution would do."""
        return self._also("dry_run", function)

    def rollback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use the method to undo a successful execution."""
        return self._also("rollback", function)


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
    settings = _given(
        name=name, interval=interval, timeout=timeout, queue=queue, scope=scope, isolated=isolated
    )
    return lambda function: DeclaredObserver(Observer, function, settings)


def orienter(
    *, name: str | None = None, timeout: float = 30.0
) -> Callable[[Callable[..., Any]], Declared[Orienter]]:
    """Declare a method as an orienter."""
    settings = _given(name=name, timeout=timeout)
    return lambda function: Declared(Orienter, function, settings)


def strategy(
    *, name: str | None = None, timeout: float = 30.0, withdraw_when_clear: bool = False
) -> Callable[[Callable[..., Any]], DeclaredStrategy]:
    """Declare a method as a decision strategy; see `Strategy` for the settings."""
    settings = _given(name=name, timeout=timeout, withdraw_when_clear=withdraw_when_clear)
    return lambda function: DeclaredStrategy(Strategy, function, settings)


def action(
    *,
    name: str | None = None,
    title: str | None = None,
    risk: Level = "low",
    autonomy: AutonomyMode = "auto",
    min_confidence: float | None = None,
    timeout: float = 60.0,
    idempotent: bool = False,
    queue: str | None = None,
    target: str | None = None,
    budget: Budget | None = None,
    tool: bool = False,
    category: Category = "execution",
) -> Callable[[Callable[..., Any]], DeclaredAction]:
    """Declare a method as an action; see `Action` for the settings."""
    settings = _given(
        name=name,
        title=title,
        risk=risk,
        autonomy=Autonomy(mode=autonomy, min_confidence=min_confidence),
        timeout=timeout,
        idempotent=idempotent,
        queue=queue,
        target=target,
        budget=budget,
        tool=tool,
        category=category,
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
    settings = _given(
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
    settings = _given(method=method, path=path, name=name, timeout=timeout, queue=queue)
    return lambda function: Declared(Endpoint, function, settings)


def _given(**settings: Any) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _params_model(function: Callable[..., Any]) -> type[BaseModel] | None:
    annotation = typing.get_type_hints(function).get("params")
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
