"""Actions whose parameters a JSON Schema declares instead of a model in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from boyd.models import JsonObject, unstorable
from boyd.plugin import Action

#: The most mistakes that are named.
MAX_MISTAKES = 5


class SchemaParams(BaseModel):
    """Parameters that fit a schema: any keywords of JSON Schema, by default."""

    model_config = ConfigDict(extra="allow", frozen=True)

    declared: ClassVar[JsonObject] = {}

    @classmethod
    def of(cls, schema: JsonObject) -> type[Self]:
        """Make a model whose values fit *schema*."""
        return type(cls.__name__, (cls,), {"declared": schema, "__module__": cls.__module__})

    @classmethod
    def mistakes(cls, params: Any) -> str:
        """Describe the mistakes in *params*, which are JSON; return an empty text if they fit."""
        from jsonschema import Draft202012Validator

        errors = list(Draft202012Validator(cls.declared).iter_errors(params))[:MAX_MISTAKES]
        return "; ".join(f"{error.json_path}: {error.message[:200]}" for error in errors)

    @classmethod
    def public_schema(cls) -> JsonSchemaValue:
        """The schema as people and models see it."""
        return cls.declared

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, params: Any) -> Any:
        if problem := unstorable(params) or cls.mistakes(params):
            raise ValueError(problem)
        return params

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return cls.public_schema()


class SchemaAction(Action):
    """An action with `SchemaParams`, or without parameters."""

    def _check_target(self) -> None:
        properties: Any = getattr(self.params, "declared", {}).get("properties", {})
        if self.target is not None and self.target not in properties:
            raise ValueError(f"{self.name}: target {self.target!r} is not a parameter")


def check_schema(schema: JsonObject) -> None:
    """Check that *schema* is one of an object, whose references stay within it and end.

    Raises:
        ValueError: it is not.
    """
    # Imported late: it takes a tenth of a second.
    from jsonschema import Draft202012Validator, SchemaError
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"no JSON Schema: {error.json_path}: {error.message[:200]}") from None
    if schema and schema.get("type") != "object":
        raise ValueError('params are an object: write `type = "object"`')
    validator = Draft202012Validator(schema)
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ValueError(f"{reference}: a schema refers to its own parts only, as #/$defs/name")
        try:
            list(validator.descend({}, {"$ref": reference}))
        except (Unresolvable, RecursionError, AttributeError, TypeError):
            raise ValueError(f"{reference}: it leads to no schema, or back to itself") from None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        value = list(value.values())
    for item in value if isinstance(value, list) else []:
        yield from _references(item)
