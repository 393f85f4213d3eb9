"""Values of forms, read as the models of the API."""

from __future__ import annotations

import json
import re
from typing import TypeVar

from flask import request
from pydantic import ValidationError

from boyd.models import Model
from boyd_api.http.problems import FieldError, HttpProblem, invalid
from boyd_api.routes.approval_routes import ApprovalAnswer

_M = TypeVar("_M", bound=Model)

_VERSION = re.compile(r"[0-9]{1,15}", re.ASCII)


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


def read_note() -> str:
    """The note to an answer, no longer than the API takes it. Raises `HttpProblem`."""
    # Forms send a line break as two characters, and text fields count it as one.
    text = request.form.get("note", "").replace("\r\n", "\n").strip()
    return read_form(ApprovalAnswer, note=text).note or ""


def read_version(text: str) -> int | None:
    """The version of an approval; None if it cannot be one."""
    return int(text) if _VERSION.fullmatch(text) else None
