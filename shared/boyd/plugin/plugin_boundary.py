"""The border to the code of plugins: what goes in and comes out, and what it may raise."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache
from itertools import islice
from os import getpid  # that of `os` takes longer in a replay, which watches it
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from boyd.errors import Overrun
from boyd.models import JsonObject, explain
from boyd.models.base import MAX_DEPTH
from boyd.text.formatting import message_of

_R = TypeVar("_R")
_json: TypeAdapter[Any] = TypeAdapter(JsonObject)
_SCALARS = frozenset((str, int, float, bool, type(None)))  # asking for models takes longer
#: How to read a text or number of a derived class without its methods.
_BASES: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}


class Exited(Exception):
    """A function raised what no `except Exception` catches: `SystemExit`, a panic of an extension.

    It ends that function only, never the phase of others. `cause` is what it raised.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def _never() -> bool:
    return False


#: Set by a program in which a signal raises `SystemExit`: true once that signal has come.
is_process_ending: Callable[[], bool] = _never


def contain(function: Callable[[], _R]) -> _R:
    """Call *function* of a plugin; a process that it forks ends with it.

    Raises:
        Exited: it raised what is no `Exception`.
    """
    process = getpid()
    try:
        return function()
    except (Exception, Overrun):
        raise
    except SystemExit as error:
        # The process dies with this function, so its outcome stays unknown.
        if is_main() and is_process_ending():
            raise
        raise Exited(error) from error
    except KeyboardInterrupt as error:
        if _is_interrupted():
            raise
        raise Exited(error) from error
    except BaseException as error:
        raise Exited(error) from error
    finally:
        if getpid() != process:  # Not by logging: threads that are not here may lock it.
            end = message_of(sys.exc_info()[1] or "it returned").encode("utf-8", "replace")
            os.write(2, b"boyd: ended a process that a plugin forked: " + end + b"\n")
            os._exit(1)


def _is_interrupted() -> bool:
    """True if a person may have pressed Ctrl-C, which ends a program in its main thread."""
    return is_main() and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def is_main() -> bool:
    """True in the main thread, the only one in which a signal raises."""
    return threading.current_thread() is threading.main_thread()


#: Most values of one answer: a generator without an end would fill the memory.
MAX_VALUES = 100_000


def read_all(values: Iterable[_R], most: int = MAX_VALUES) -> list[_R]:
    """All values of an answer.

    Raises:
        ValueError: there are more than *most*; the rest is not read.
    """
    read = list(islice(values, most + 1))
    if len(read) > most:
        raise ValueError(f"gave more than {most} values")
    return read


class HasParams(Protocol):
    """An action or a tool."""

    @property
    def params(self) -> type[BaseModel] | None:
        """The model of its parameters, if it has one."""


def validate(action: HasParams, params: Mapping[str, Any]) -> Any:
    """Validate parameters with the action's model, if it has one.

    Raises:
        ValueError: names each invalid field, or what the model's own checks raised.
    """
    if action.params is None:
        return dict(params)
    model = action.params
    try:
        return contain(lambda: model.model_validate(dict(params)))
    except ValidationError as error:
        raise ValueError(f"Invalid params: {explain(error)}") from None
    except Exception as error:  # noqa: BLE001 - of the checks that the plugin has written
        cause = error.cause if isinstance(error, Exited) else error
        reason = f"{type(cause).__name__}: {message_of(cause)}".rstrip(": ")
        raise ValueError(f"Params could not be checked: {reason}") from cause


def params_to_json(params: Any) -> JsonObject:
    """Validated parameters as a JSON object."""
    if isinstance(params, BaseModel):
        fields: JsonObject = params.model_dump(mode="json", by_alias=True)
        return fields
    checked: JsonObject = _json.validate_python(params)
    return checked


def with_defaults(action: HasParams, params: JsonObject) -> JsonObject:
    """Validate *params*; return them with the fixed scalar defaults of their model written out.

    Params that mean the same are then equal. They are returned as they are if the model validates
    them to something else then, or each time.

    Raises:
        ValueError: as `validate`.
    """
    if action.params is None:
        return params
    validated = validate(action, params)
    whole = params_to_json(validated)
    names = _plain_defaults(action.params, validated.model_fields_set)
    filled = params | {name: whole[name] for name in names if name in whole}
    with suppress(ValueError):
        if params_to_json(validate(action, filled)) == whole:
            return filled
    return params


def _plain_defaults(model: type[BaseModel], present: set[str]) -> Iterator[str]:
    """The names in JSON of the fields with a scalar as default that are not *present*."""
    for field, info in model.model_fields.items():
        name = info.alias or field
        is_fixed = info.default is not None and type(info.default) in _SCALARS
        if is_fixed and field not in present and info.validation_alias in (None, name):
            yield name


def own_copy(value: Any) -> Any:
    """A copy of models, lists and dictionaries, which shares nothing with *value* that can change.

    Other objects, such as `ctx`, are returned as they are. `copy.deepcopy` takes twice as long.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        return {k: item if type(item) in _SCALARS else own_copy(item) for k, item in value.items()}
    if isinstance(value, list):
        return [own_copy(item) for item in value]
    if isinstance(value, BaseModel):
        copied = value.model_copy()
        # Not by `update`, which takes all fields for set.
        copied.__dict__.update(own_copy(value.__dict__))
        return copied
    return value


def plain_copy(value: Any) -> Any:
    """A copy of an answer that can be read without running code of the plugin.

    It is made within the call of the plugin. Texts, numbers, lists and dictionaries become objects
    of the built-in types with the same contents, and models objects of the classes of Boyd; a model
    of the plugin becomes its dump. Any other object, and a value that contains itself, stays as it
    is: the validation of the answer refuses it.

    Raises:
        ValueError: it is a mapping without an end.
    """
    try:
        return _copy(value)
    except RecursionError:
        return value


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if issubclass(kind, dict):
        return {_copy(name): _copy(item) for name, item in dict.items(value)}
    if issubclass(kind, list):
        return list(map(_copy, list.__iter__(value)))
    if issubclass(kind, tuple):
        return tuple(map(_copy, tuple.__iter__(value)))
    if issubclass(kind, BaseModel):
        return _copy_of_model(value)
    if issubclass(kind, datetime) and type(value.tzinfo) not in (type(None), timezone):
        offset = value.utcoffset()
        return value if offset is None else value.replace(tzinfo=timezone(offset))
    for base, read in _BASES.items():
        if issubclass(kind, base):
            return read(value)
    return dict(map(_copy, read_all(value.items()))) if isinstance(value, Mapping) else value


def _copy_of_model(value: BaseModel) -> Any:
    kind = _model_of_boyd(type(value))
    if kind is None:
        return _copy(value.model_dump(mode="json"))
    copied = kind.__new__(kind)
    held, names = object.__getattribute__(value, "__dict__"), kind.model_fields
    fields = {name: _copy(item) for name, item in held.items() if name in names}
    object.__setattr__(copied, "__dict__", fields)
    object.__setattr__(copied, "__pydantic_fields_set__", value.model_fields_set & names.keys())
    object.__setattr__(copied, "__pydantic_extra__", None)
    object.__setattr__(copied, "__pydantic_private__", None)
    return copied


@lru_cache(1024)
def _model_of_boyd(kind: type[BaseModel]) -> type[BaseModel] | None:
    """The class of Boyd that a class of models is or derives from, if that has fields."""
    own = next((each for each in kind.__mro__ if each.__module__.startswith("boyd.")), BaseModel)
    return own if issubclass(own, BaseModel) and own.model_fields else None


def unchecked(value: Any) -> Any:
    """The fields of the models in *value*, to be validated again.

    A model may have been built without validation, or its data may have been changed since.

    Raises:
        ValueError: it contains itself, or nests too deeply for any check.
    """
    try:
        return _fields(value)
    except RecursionError:
        raise ValueError(f"it contains itself, or nests deeper than {MAX_DEPTH} levels") from None


def _fields(value: Any) -> Any:
    held = value.__dict__ if isinstance(value, BaseModel) else value
    if isinstance(held, dict):
        return {name: _fields(item) for name, item in held.items()}
    return [_fields(item) for item in held] if isinstance(held, list) else held
