"""Values of forms, read as the models of the API."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import ValidationError

from boyd.models import Model
from boyd_api.problems import FieldError, HttpProblem, invalid

_M = TypeVar("_M", bound=Model)


def read_form(model: type[_M], /, **values: object) -> _M:
    """The model with these values; empty ones are left out. Raises `HttpProblem`."""
    given = {name: value for name, value in values.items() if value not in ("", None)}
    try:
        # Forms send text, so numbers have to be converted.
        return model.model_validate(given, strict=False, by_alias=False, by_name=True)
    except ValidationError as error:
        raise invalid(error, query=True) from None


def read_json_field(name: str, text: str) -> object:
    """The value of a field that holds JSON; None if it is empty. Raises `HttpProblem`."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        wrong = FieldError(parameter=name, detail=f"it is not JSON: {error}")
        raise HttpProblem(
            "invalid-request", f"{name}: it is not JSON: {error}", errors=[wrong]
        ) from None
