"""Values that pass between plugins and Boyd: validated, and copied so that nobody shares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError

from boyd.models import JsonObject, explain
from boyd.models.base import MAX_DEPTH
from boyd.plugin.containment import Exited, contain
from boyd.text.formatting import message_of

_json: TypeAdapter[Any] = TypeAdapter(JsonObject)


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


def own_copy(value: Any) -> Any:
    """A copy of models, lists and dictionaries, which shares nothing with *value* that can change.

    Other objects, such as `ctx`, are returned as they are. It takes half the time of
    `copy.deepcopy`.
    """
    if isinstance(value, dict):
        return {key: own_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [own_copy(item) for item in value]
    if isinstance(value, BaseModel):
        copied = value.model_copy()
        # Not by `update`, which takes all fields for set.
        copied.__dict__.update(own_copy(value.__dict__))
        return copied
    return value


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
    if isinstance(value, BaseModel):
        return {name: _fields(item) for name, item in value.__dict__.items()}
    if isinstance(value, dict):
        return {name: _fields(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_fields(item) for item in value]
    return value
