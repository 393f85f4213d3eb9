"""Parameters that a JSON Schema in the agent file declares."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from boyd.models import JsonObject, unstorable

#: The most mistakes that are named.
MAX_MISTAKES = 5


class DeclaredParams(BaseModel):
    """Parameters that fit a schema."""

    model_config = ConfigDict(extra="allow", frozen=True)

    declared: ClassVar[JsonObject] = {}

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, params: Any) -> Any:
        problem = unstorable(params) or _mistakes(cls.declared, params)
        if problem:
            raise ValueError(problem)
        return params

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return cls.declared


def params_model(schema: JsonObject) -> type[DeclaredParams]:
    """Make a model whose values fit *schema*; call `check_schema` first."""
    return type("DeclaredParams", (DeclaredParams,), {"declared": schema, "__module__": __name__})


def check_schema(schema: JsonObject) -> None:
    """Check that *schema* is one of an object, by itself.

    Raises:
        ValueError: it is not.
    """
    # Imported late: it takes a tenth of a second.
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"no JSON Schema: {error.json_path}: {error.message[:200]}") from None
    if schema and schema.get("type") != "object":
        raise ValueError('params are an object: write `type = "object"`')
    if schema and (reference := _foreign_reference(schema)):
        raise ValueError(f"{reference}: a schema refers to its own parts only, as #/$defs/name")


def _foreign_reference(value: Any) -> str | None:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            return reference
        value = list(value.values())
    items = value if isinstance(value, list) else []
    return next((text for text in map(_foreign_reference, items) if text), None)


def _mistakes(schema: JsonObject, params: Any) -> str:
    from jsonschema import Draft202012Validator

    errors = list(Draft202012Validator(schema).iter_errors(params))[:MAX_MISTAKES]
    return "; ".join(f"{error.json_path}: {error.message[:200]}" for error in errors)
