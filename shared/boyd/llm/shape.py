"""Answers that have to fit a JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from boyd.llm.arguments import parsed
from boyd.models import JsonObject


def check_schema(schema: JsonObject) -> None:
    """Check that answers can be asked to fit *schema*.

    Raises:
        ValueError: it is no schema of an object, or points to somewhere else.
    """
    if schema.get("type") != "object":
        raise ValueError("its type must be object")
    for part in _parts(schema):
        # A pattern of a client, on a text of a model, may take a worker for ever.
        if {"pattern", "patternProperties"} & set(part):
            raise ValueError("it may not use patterns")
    try:
        Draft202012Validator.check_schema(schema)
        for part in _parts(schema):
            if isinstance(part.get("$ref"), str):
                list(_validator(schema).descend({}, {"$ref": part["$ref"]}))
        _validator(schema).is_valid({})
    except SchemaError as error:
        raise ValueError(error.message) from None
    except Unresolvable as error:
        raise ValueError(f"it points to what is not in it: {error}") from None
    except RecursionError:
        raise ValueError("it points to itself without an end") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"it points to what is no schema: {error}") from None


def misfit(value: JsonObject, schema: JsonObject) -> str | None:
    """What is most wrong about *value*; None when it fits."""
    try:
        error = best_match(_validator(schema).iter_errors(value))
    except (Unresolvable, RecursionError, AttributeError, TypeError) as wrong:
        return f"the form itself is wrong: {wrong}"
    if error is None:
        return None
    where = "/".join(str(part) for part in error.absolute_path)
    return f"{where}: {error.message}" if where else str(error.message)


def object_in(text: str) -> JsonObject | None:
    """The object of JSON that *text* holds, if it does."""
    begin, end = text.find("{"), text.rfind("}")
    return parsed(text[begin : end + 1]) if 0 <= begin < end else None


def found_in(text: str, schema: JsonObject) -> JsonObject | None:
    """The object that *text* holds and that fits, if it does."""
    value = object_in(text)
    return value if value is not None and misfit(value, schema) is None else None


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in *schema*, itself first."""
    if isinstance(schema, dict):
        yield schema
    inside = schema.values() if isinstance(schema, dict) else schema
    for part in inside if isinstance(schema, dict | list) else ():
        yield from _parts(part)


def _validator(schema: JsonObject) -> Draft202012Validator:
    # An empty registry: a schema from outside makes nobody fetch anything.
    return Draft202012Validator(schema, registry=Registry())
