"""Reads bodies and queries into the models that validate them; nothing invalid gets past."""

from __future__ import annotations

import re
import typing

from flask import request
from pydantic import ValidationError

from boyd import intake
from boyd.json_limits import MAX_VALUES
from boyd.models import Model
from boyd_api.problems import FieldError, Problem, invalid

_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json")


def read_body(model: type[Model], optional: bool) -> Model | None:
    """The body of the request; None when it may be absent, and is.

    Raises:
        Problem: it is missing, not JSON, of another type, too large, or does not fit.
    """
    text = request.get_data()
    if not text:
        if optional:
            return None
        raise Problem("malformed-json", "the request has no body; a JSON object is needed")
    read_json(text)
    try:
        return model.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(error) from None


def read_json(text: bytes) -> typing.Any:
    """A body as JSON, whatever it says.

    Raises:
        Problem: it is not JSON, of another type, or what could not be read back from Redis.
    """
    if not _JSON.fullmatch(request.mimetype):
        said = request.mimetype or "nothing"
        raise Problem("unsupported-media-type", f"Content-Type says {said}; application/json is it")
    try:
        return intake.read_json(text, MAX_VALUES)
    except intake.NotJson as error:
        raise Problem("malformed-json", f"the body is {error}") from None
    except intake.BadIntake as error:
        raise Problem("invalid-request", f"the body is {error}") from None


def check_encoding() -> None:
    """Check that the body is sent as it is.

    Raises:
        Problem: it is compressed.
    """
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise Problem(
            "unsupported-media-type",
            f"Content-Encoding says {coding}; send the body uncompressed",
            headers={"Accept-Encoding": "identity"},
        )


def read_query(model: type[Model]) -> Model:
    """The query of the request.

    Raises:
        Problem: a parameter is unknown, given twice, or does not fit.
    """
    given: dict[str, str | list[str]] = {}
    lists = _lists(model)
    for name, values in request.args.to_dict(flat=False).items():
        if name in lists:
            given[name] = values
        elif len(values) == 1:
            given[name] = values[0]
        else:
            error = FieldError(parameter=name, detail="is given more than once")
            raise Problem("invalid-request", f"{name} is given more than once", errors=[error])
    try:
        # What a query says is text, so numbers and truth values have to be read from it.
        return model.model_validate(given, strict=False, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(error, query=True) from None


def _lists(model: type[Model]) -> set[str]:
    return {
        field.alias or name
        for name, field in model.model_fields.items()
        if typing.get_origin(field.annotation) is list
    }
