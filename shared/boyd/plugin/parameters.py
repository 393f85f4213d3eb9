"""Parameters of actions and tools, by their models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from boyd.models import JsonObject, explain
from boyd.plugin.components import Action, Tool

_json: TypeAdapter[Any] = TypeAdapter(JsonObject)


def validate(action: Action | Tool, params: Mapping[str, Any]) -> Any:
    """Validate parameters with the action's model, if it has one.

    Raises:
        ValueError: names each invalid field.
    """
    if action.params is None:
        return dict(params)
    try:
        return action.params.model_validate(dict(params))
    except ValidationError as error:
        raise ValueError(f"Invalid params: {explain(error)}") from None


def plain(params: Any) -> JsonObject:
    """Validated parameters as a JSON object."""
    if isinstance(params, BaseModel):
        fields: JsonObject = params.model_dump(mode="json", by_alias=True)
        return fields
    checked: JsonObject = _json.validate_python(params)
    return checked
