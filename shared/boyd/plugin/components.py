"""The components of a plugin: observers, orienters, strategies, actions, tools and endpoints.

A component is either a method of the plugin with a decorator:

    class Disk(Plugin):
        id = "disk"

        @observer(interval=60)
        def usage(self, ctx): ...

or a class, listed in the plugin's `components`:

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
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticInvalidForJsonSchema

from boyd.models import Autonomy, Budget, Level, Reversibility, Sandbox, StepAction
from boyd.models.base import strip_prefix
from boyd.models.effect import EffectChecks
from boyd.models.investigation import Category
from boyd.plugin.plugin_boundary import own_copy, params_to_json, plain_copy, read_all, validate

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Taker:
    """A function that receives only the arguments it declares, each as a copy of its own."""

    def __init__(
        self, function: Callable[..., Any], offered: Sequence[str], yields: bool = False
    ) -> None:
        """Check *function* against the names in *offered*; with *yields* it may be a generator.

        Raises:
            ValueError: it declares an argument that is not offered, or calling it runs nothing.
        """
        check_runs(function, yields)
        self.function = function
        self.takes = _names(function, offered)
        self._yields = yields

    def __call__(self, **values: Any) -> Any:
        """Call the function with the *values* it declares.

        Raises:
            TypeError: it has returned a coroutine or generator, of which nothing has run yet.
            ValueError: it has yielded too much.
        """
        answer = self.function(**{name: _private_copy(values[name]) for name in self.takes})
        if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise TypeError(f"returned a {type(answer).__name__}, which nobody awaits: {_PLAIN}")
        if inspect.isgenerator(answer) and not self._yields:
            raise TypeError(f"returned a generator, which nobody reads: {_PLAIN}")
        if self._yields and isinstance(answer, Iterator):
            answer = read_all(answer)
        return plain_copy(answer)


_PLAIN = "make it a plain function that returns its answer"


def check_runs(function: Callable[..., Any], yields: bool = False) -> None:
    """Check that calling *function* runs it; with *yields* it may be a generator.

    Raises:
        ValueError: it is a coroutine function, or a generator that nobody would read.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"{_signature(function)} is async, and nobody awaits it: {_PLAIN}")
    if inspect.isgeneratorfunction(function) and not yields:
        raise ValueError(f"{_signature(function)} has a yield, and nobody reads it: {_PLAIN}")


def _names(function: Callable[..., Any], offered: Sequence[str]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        if not inspect.ismethod(function):
            raise
        raise ValueError(f"{function.__qualname__} takes no `self`, its first parameter") from None
    for parameter in parameters:
        is_offered = parameter.kind in _NAMED and parameter.name in offered
        optional = parameter.default is not inspect.Parameter.empty
        if not is_offered and not (optional and parameter.kind in _NAMED):
            raise ValueError(
                f"{_signature(function)} takes {parameter.name!r}; "
                f"expected ({', '.join(offered)}) or fewer of them"
            )
    return tuple(p.name for p in parameters if p.name in offered)


def _signature(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return f"{name}{inspect.signature(function)}"


Scope = Literal["anywhere", "every_host"]


_COMPONENT_NAME = re.compile(r"[^\s:]+")
_QUEUE_NAME = re.compile(r"[\w.-]+")


def _component_name(name: str) -> str:
    if not _COMPONENT_NAME.fullmatch(name):
        raise ValueError("a name has no spaces and no colon")
    return name


def _queue_name(name: str) -> str:
    if not _QUEUE_NAME.fullmatch(name):
        raise ValueError("the name of a queue has letters, digits, dots, dashes and underscores")
    return name


def _execution_count(count: object) -> object:
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(
            "give the number of executions that may be in flight per target, or 0 for any number"
        )
    return count


#: A time limit or interval, of a week at most.
Seconds = Annotated[float, Field(gt=0, le=604800)]
ComponentName = Annotated[str, AfterValidator(_component_name)]
QueueName = Annotated[str, AfterValidator(_queue_name)]
Concurrency = Annotated[int | None, BeforeValidator(_execution_count)]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ENDPOINT_PATH = re.compile(r"(/([\w.~-]+|\{[a-z_]\w*\}))+|/", re.ASCII)


def check_params(name: str, params: type[BaseModel] | None) -> None:
    """Check that no parameter of the component *name* is declared as a secret.

    Raises:
        ValueError: one is, and params are stored and shown to readers and approvers.
    """
    try:
        schema = params.model_json_schema(by_alias=True) if params else {}
    except PydanticInvalidForJsonSchema:  # reported where the schema is shown
        return
    if _has_secret(schema):
        raise ValueError(
            f"{name}: its params have a SecretStr, and params are stored in Redis and shown to "
            "readers; take the secret from the plugin's options or from a file on the worker"
        )


def _has_secret(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        secret = schema.get("writeOnly") is True and schema.get("format") == "password"
        return secret or any(_has_secret(part) for part in schema.values())
    return isinstance(schema, list) and any(_has_secret(part) for part in schema)


def _private_copy(value: Any) -> Any:
    """The value as one function gets it: changes in place reach nobody else."""
    return copy(value) if isinstance(value, Component) else own_copy(value)


class Component:
    """The base of all components: a name, an id `plugin:name`, and functions.

    A function receives only the arguments it declares. `title` is shown to people; the default is
    the name.
    """

    #: The functions of this kind and the arguments offered to each; the first one is required.
    functions: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Those that may be generators, because all that they return is read.
    yielding: ClassVar[frozenset[str]] = frozenset()

    name: ComponentName = ""
    title: str = ""
    description: str = ""
    id: str = ""
    timeout: Seconds = 30.0

    def __init__(self, **settings: Any) -> None:
        for key, value in settings.items():
            setattr(self, key, value)
        self.name = self.name or _snake(type(self).__name__)
        self.title = self.title or self.name
        self._takers: dict[str, Taker] = {}

    def bind(self, plugin_id: str) -> Self:
        """Give the component its id and check its settings and functions.

        Raises:
            ValueError: a setting is invalid, or a function is missing or declares an unknown
                argument.
        """
        self._check_settings()
        self.id = f"{plugin_id}:{self.name}"
        self._takers = {}
        for position, (name, offered) in enumerate(self.functions.items()):
            function = getattr(self, name, None)
            if function is not None:
                self._takers[name] = Taker(function, offered, name in self.yielding)
            elif position == 0:
                raise ValueError(f"{self.name}: no function {name}({', '.join(offered)})")
        return self

    def _check_settings(self) -> None:
        kind = next(item for item in type(self).__mro__ if item.__module__ == __name__)
        model = _settings_model(kind)
        values = {name: getattr(self, name) for name in model.model_fields}
        try:
            self.__dict__.update(dict(model.model_validate(values)))
        except ValidationError as error:
            for item in error.errors(include_url=False, include_context=False):
                name = str(item["loc"][0])
                message = f"{self.name}: {name} is {values[name]!r}: {strip_prefix(item['msg'])}"
                raise ValueError(message) from None

    def has(self, function: str) -> bool:
        """Report whether the optional *function* is defined."""
        return function in self._takers

    def takes(self, function: str, argument: str) -> bool:
        """Report whether one of the component's functions declares an *argument*."""
        return argument in self._takers[function].takes

    def call(self, function: str, **values: Any) -> Any:
        """Call one of the component's functions with the *values* it declares."""
        return self._takers[function](**values)

    def wrap(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace each of the component's functions by what *wrapper* makes of it."""
        for taker in self._takers.values():
            taker.function = wrapper(taker.function)

    @property
    def plugin_id(self) -> str:
        """The id of the plugin that the component belongs to."""
        return self.id.partition(":")[0]

    def _model(self, declared: type[BaseModel] | None) -> type[BaseModel] | None:
        """The model of `params`: *declared*, or the one that annotations name.

        Raises:
            ValueError: a function declares an optional argument that it would never receive, or
                annotates `params` with what it will not be.
        """
        for taker in self._takers.values():
            strange = sorted(set(inspect.signature(taker.function).parameters) - set(taker.takes))
            if strange:
                raise ValueError(
                    f"{self.name}: takes {', '.join(strange)}; parameters are passed as one "
                    "argument `params`, a pydantic model or a dict"
                )
        annotated = {
            name: _annotation(taker.function)
            for name, taker in self._takers.items()
            if "params" in taker.takes
        }
        models = [candidate for candidate in annotated.values() if _is_model(candidate)]
        model = declared or next(iter(models), None)
        for name, annotation in annotated.items():
            if not _fits(annotation, model):
                raise ValueError(_annotation_error(f"{self.name}: {name}", annotation, model))
        return model


class Observer(Component):
    """Observes something and returns observations.

    Attributes:
        interval: seconds between two runs, honoured in continuous mode; by default every time.
        timeout: seconds one run may take.
        queue: the queue of workers that can see it; by default any worker.
        scope: `every_host` runs it once on each live host.
        isolated: run it in its own process, which is killed after the time limit.

    `judge` compares what was observed with limits: it returns the observations with severities, or
    adds some. A replay calls it again, also on what it returned itself under other options. One
    that takes `ctx` may count in `ctx.state`, and is called again by a closed loop only.
    """

    functions: ClassVar = {
        "observe": ("ctx", "shard"),
        "partition": ("ctx",),
        "judge": ("observations", "ctx"),
    }
    yielding: ClassVar = frozenset({"observe", "partition"})

    interval: Seconds | None = None
    queue: QueueName | None = None
    scope: Scope = "anywhere"
    isolated: bool = False

    @property
    def judges_by_state(self) -> bool:
        """True if its judge may remember something."""
        return self.has("judge") and "ctx" in self._takers["judge"].takes


class Orienter(Component):
    """Reads all observations and returns an assessment.

    One that takes `situation` runs after all others, and reads what they made of it.
    """

    functions: ClassVar = {"orient": ("observations", "ctx", "situation")}


class Strategy(Component):
    """Decides what to do in a situation, if `applicable_when` returns true.

    With `withdraw_when_clear` an approval it requested is withdrawn once it no longer applies or
    decides on no-op. `state` names the keys of the plugin's state that it reads: every iteration
    records them, so that a replay can choose the strategy where it was not chosen. `templates` are
    the actions that it takes from the agent file, with `${…}` for what differs from call to call;
    secrets that they name are used.
    """

    functions: ClassVar = {"decide": ("situation", "ctx"), "applicable_when": ("situation", "ctx")}

    withdraw_when_clear: bool = False
    state: tuple[str, ...] = ()
    templates: tuple[StepAction, ...] = ()


class Action(Component):
    """Changes something.

    Attributes:
        risk: how much damage it may do; does not restrict it by itself.
        reversibility: how far its effect can be undone; by default `reversible` with a rollback,
            `unknown` without one.
        autonomy: when it may run without a person.
        params: the pydantic model of its parameters.
        output: the pydantic model of what it returns; by default any JSON.
        sandbox: the privileges and limits of the process that executes it; by default it runs in
            the worker.
        timeout: seconds one execution may take.
        idempotent: whether it may run again after its outcome was lost.
        queue: the queue of the workers that may perform it; by default `boyd.act`.
        target: the parameter that names what it acts on, for budgets.
        budget: how often it may run per target.
        concurrency: how many executions of it may be in flight per target, from the approval to
            the verdict; 0: any number. The default is one, or any number if it is read-only. An
            action without a target counts as a whole.
        tool: whether models may use it in investigations, with the usual gate.
        category: the kind of tool.
        checks: when its effect is checked, if it can be verified.
    """

    functions: ClassVar = {
        "execute": ("params", "ctx"),
        "dry_run": ("params", "ctx"),
        "doubt": ("params", "ctx"),
        "rollback": ("params", "result", "ctx"),
        "verify": ("params", "result", "ctx"),
    }

    timeout = 60.0
    risk: Level = "low"
    reversibility: Reversibility = "unknown"
    autonomy: Autonomy = Autonomy()
    params: type[BaseModel] | None = None
    output: type[BaseModel] | None = None
    sandbox: Sandbox | None = None
    idempotent: bool = False
    queue: QueueName | None = None
    target: str | None = None
    budget: Budget | None = None
    concurrency: Concurrency = None
    tool: bool = False
    category: Category = "execution"
    checks: EffectChecks = EffectChecks()

    def bind(self, plugin_id: str) -> Self:
        """Also find the parameters' model in the annotations of `params`."""
        super().bind(plugin_id)
        self.params = self._model(self.params)
        check_params(self.name, self.params)
        self._check_target()
        self._classify()
        return self

    def _classify(self) -> None:
        """Derive the reversibility from the rollback, and check what is declared."""
        has_rollback = self.has("rollback")
        if self.reversibility == "unknown":
            self.reversibility = "reversible" if has_rollback else "unknown"
        elif has_rollback != (self.reversibility == "reversible"):
            needs = "has" if has_rollback else "lacks"
            raise ValueError(
                f"{self.name}: it is declared {self.reversibility} and {needs} a rollback; "
                "actions with a rollback are reversible, all others are not"
            )

    def _check_target(self) -> None:
        if self.target is None or self.params is None:
            return
        fields = self.params.model_fields
        aliases = {field.alias: name for name, field in fields.items() if field.alias}
        if self.target not in fields and self.target not in aliases:
            names = ", ".join(field.alias or name for name, field in fields.items())
            raise ValueError(
                f"{self.name}: target {self.target!r} is not a parameter; known: {names}"
            )
        # Parameters are stored under their aliases.
        name = aliases.get(self.target, self.target)
        self.target = fields[name].alias or name

    @property
    def in_flight_limit(self) -> int | None:
        """The limit of its executions in flight per target, if it has one."""
        if self.concurrency is None:
            return None if self.reversibility == "read-only" else 1
        return self.concurrency or None

    @property
    def is_checked_before(self) -> bool:
        """True if its effect is also checked before it is executed."""
        if self.checks.before is not None:
            return self.checks.before
        # A check that takes the result compares it with what was before.
        return self.has("verify") and "result" not in self._takers["verify"].takes

    def target_of(self, params: Mapping[str, Any]) -> str:
        """The value of the target parameter in *params*, which are validated."""
        return str(params.get(self.target, "")) if self.target else ""

    def final_target(self, params: Mapping[str, Any]) -> str:
        """Name the target in validated *params*; where they are invalid, in *params* as given."""
        if self.target:
            with suppress(Exception):
                params = params_to_json(validate(self, params))
        return self.target_of(params)


class Tool(Component):
    """Finds information for a model that investigates; use an action to change something.

    Attributes:
        params: the pydantic model of its parameters.
        timeout: seconds one call may take.
        queue: the queue of the workers that can do it; by default `boyd.act`.
        category: the kind of tool, which affects how a model is led to its conclusion.
        idempotent: whether it may be called again after its worker was lost.
        poll: whether repeated calls are expected as long as the results differ.
    """

    functions: ClassVar = {"run": ("params", "ctx")}

    timeout = 60.0
    params: type[BaseModel] | None = None
    queue: QueueName | None = None
    category: Category = "search"
    idempotent: bool = False
    poll: bool = False

    def bind(self, plugin_id: str) -> Self:
        """Also find the parameters' model in the annotation of `params`."""
        super().bind(plugin_id)
        self.params = self._model(self.params)
        check_params(self.name, self.params)
        return self


class Endpoint(Component):
    """Answers HTTP requests at `/plugins/<plugin><path>`, on a worker.

    It returns a JSON value or an `EndpointReply`; methods other than GET may return `Perform` to
    request an action.

    Attributes:
        method: GET, POST, PUT, PATCH or DELETE; GET needs the scope `read`, others `actions`.
        path: begins with a slash; a part `{name}` stands for any text without one.
        timeout: seconds one answer may take.
        queue: the queue of the workers that can answer; by default `boyd.act`.
    """

    functions: ClassVar = {"handle": ("request", "ctx")}

    method: str = "GET"
    path: str = "/"
    timeout = 10.0
    queue: QueueName | None = None

    def bind(self, plugin_id: str) -> Self:
        """Also check method and path."""
        super().bind(plugin_id)
        if self.method not in METHODS:
            raise ValueError(
                f"{self.name}: method {self.method!r} is not one of {', '.join(METHODS)}"
            )
        if not _ENDPOINT_PATH.fullmatch(self.path):
            raise ValueError(f"{self.name}: path {self.path!r} does not look like /things/{{id}}")
        return self


@dataclass(frozen=True)
class Perform:
    """Returned by an endpoint to request an action, which passes the usual hooks and gate."""

    action: str
    params: dict[str, Any] = field(default_factory=dict)
    rationale: str = ""


@cache
def _settings_model(kind: type[Component]) -> type[BaseModel]:
    """A model of the settings of a kind of component, by its annotations."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: dict[str, Any] = {
        name: (hint, ...) for name, hint in hints.items() if typing.get_origin(hint) is not ClassVar
    }
    config = ConfigDict(strict=True, allow_inf_nan=False)
    return create_model(kind.__name__, __config__=config, **fields)


def _annotation(function: Callable[..., Any]) -> Any:
    """The annotation of `params`, `Any` without one."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    hint = typing.get_type_hints(function).get("params", Any)
    return getattr(hint, "__value__", hint)  # of an alias by `type`


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _fits(annotation: Any, model: type[BaseModel] | None) -> bool:
    """Report whether `params` fit an annotation: they are of the *model*, or a JSON object."""
    if annotation in (Any, object):
        return True
    if model is not None:
        return annotation in model.__mro__
    if (typing.get_origin(annotation) or annotation) not in (dict, Mapping, MutableMapping):
        return False
    # Nobody would check the types of names and values.
    return typing.get_args(annotation) in ((), (str, Any), (str, object), (str, JsonValue))


def _annotation_error(name: str, annotation: Any, model: type[BaseModel] | None) -> str:
    text = inspect.formatannotation(annotation)
    if model is None:
        return (
            f"{name} takes params as {text}, which nobody would check; "
            "annotate it with a pydantic model, or with dict[str, Any]"
        )
    return f"{name} takes params as {text}, and gets {model.__name__}: annotate it with that"


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
