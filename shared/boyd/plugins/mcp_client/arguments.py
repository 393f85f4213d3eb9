"""The arguments of a remote tool, checked by its schema before anything is sent or approved.

The schema comes from a server. Only keywords that take little time count: no reference is followed,
and no pattern is searched for. The server checks the rest.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from boyd.models import JsonObject, unstorable
from boyd.plugins.mcp_client.tool_check import visible, visible_json

#: The most mistakes that are named.
MAX_MISTAKES = 5
_KEYWORDS = (
    *("type", "properties", "required", "enum", "const", "items", "prefixItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("allOf", "anyOf", "oneOf"),
)


class Arguments(BaseModel):
    """The arguments of a tool: any JSON object that fits its schema."""

    model_config = ConfigDict(extra="allow", frozen=True)

    remote: ClassVar[JsonObject] = {}

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, given: Any) -> Any:
        why = mistakes(cls.remote, given)
        if why:
            raise ValueError(why)
        return given

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        shown: JsonSchemaValue = visible_json(cls.remote)
        return shown


def arguments_model(schema: JsonObject) -> type[Arguments]:
    """The model of the parameters of a tool with that *schema*."""
    return type("Arguments", (Arguments,), {"remote": schema, "__module__": __name__})


def mistakes(schema: JsonObject, given: Any) -> str:
    """The mistakes in the arguments *given*; empty: the server may judge them."""
    # Imported late: it takes a tenth of a second, and `boyd` must start quickly.
    from jsonschema import Draft202012Validator, validators

    if why := unstorable(given):
        return why
    known = {name: Draft202012Validator.VALIDATORS[name] for name in _KEYWORDS}
    judge = validators.create({}, validators=known)(schema)
    try:
        found = [f"{error.json_path}: {error.message}" for error in judge.iter_errors(given)]
    except Exception as error:  # noqa: BLE001 - a schema may be nonsense in any way
        return f"the tool's schema cannot be used: {type(error).__name__}"
    properties: Any = schema.get("properties", {})
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        strange = sorted(set(given) - set(properties)) if isinstance(given, dict) else []
        found += [f"{name}: it is not a parameter" for name in strange]
    return visible("; ".join(one[:200] for one in found[:MAX_MISTAKES]))
