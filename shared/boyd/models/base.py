"""The base of all data models: strict input, camelCase on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel

Severity = Literal["info", "warning", "error", "critical"]
Level = Literal["low", "medium", "high", "critical"]
Confidence = Annotated[float, Field(ge=0, le=1)]
#: Maximum nesting of JSON, which is stored within other JSON and read with a limit of 200.
MAX_DEPTH = 100
#: No reader of JSON takes a whole number of more than 4300 digits.
_TOO_LARGE = 1 << 14_000
#: Maximum number of invalid fields named in an error.
MAX_MISTAKES = 1000


def unstorable(value: Any) -> str | None:
    """Explain why a JSON value could not be read back once stored; None if it could."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in layer:
            match item:
                case dict():
                    below += item.values()
                case list():
                    below += item
                case int() | float() if not -_TOO_LARGE < item < _TOO_LARGE:
                    return "it has a number that JSON cannot hold"
        if not below:
            return None
        layer = below
    return f"it nests deeper than {MAX_DEPTH} levels"


def _storable(value: Any) -> Any:
    problem = unstorable(value)
    if problem:
        raise ValueError(problem)
    return value


def as_whole(value: object) -> object:
    """Convert a float without a fraction to an integer; return anything else unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Anything JSON can hold, as deep as it can be stored.
Json = Annotated[JsonValue, AfterValidator(_storable)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_storable)]
#: A whole number, however JSON writes it: 370.0 is one.
Whole = Annotated[int, BeforeValidator(as_whole)]
Timestamp = Annotated[AwareDatetime, Field(strict=False)]
#: Seconds, a century at most: dates cannot be just anything. Each field says what the least is: of
#: two lower limits on one field only one would hold.
Duration = Annotated[float, Field(le=36_525 * 86400.0)]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error", "critical")
LEVELS: tuple[Level, ...] = ("low", "medium", "high", "critical")


def utc_now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def from_ms(ms: float) -> datetime:
    """A time from milliseconds since the epoch, as Redis scripts give it."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def to_ms(time: datetime) -> int:
    """A time as milliseconds since the epoch."""
    return int(time.timestamp() * 1000)


def ms_from(start: datetime, end: datetime) -> float:
    """The milliseconds between two times of Redis; 0 if its clock has stepped back meanwhile."""
    return max(0.0, (end - start).total_seconds() * 1000)


class Model(BaseModel):
    """A data model: frozen and strict; rejects unknown fields, NaN and values that are not JSON."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_inf_nan="constants",
        str_min_length=0,  # any constraint refuses text that UTF-8 cannot hold
    )

    def to_wire(self) -> dict[str, Any]:
        """The JSON object of this value: camelCase, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_json(self) -> str:
        """`to_wire` as text."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` of any release wrote; ignore unknown fields.

        Raises:
            pydantic.ValidationError: the text is invalid.
        """
        return cls.model_validate_json(text, extra="ignore")

    def patched(self, changes: Mapping[str, Any]) -> Self:
        """Copy the model with changed fields, validated.

        Raises:
            pydantic.ValidationError: a field is unknown or invalid.
        """
        fields = type(self).model_fields
        if not changes.keys() <= fields.keys():
            names = {field.alias: name for name, field in fields.items()}
            changes = {names.get(key, key): value for key, value in changes.items()}
        current = {name: getattr(self, name) for name in fields}
        changed = type(self).model_validate({**current, **changes})
        return changed.model_copy(update=self.model_extra) if self.model_extra else changed


class KeptModel(Model):
    """A model that is read, changed and written back, with the unknown fields of later releases.

    Only what is read from the store may have them: everywhere else they are mistakes.
    """

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_unknown_fields(
        cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        model = handler(value)
        if model is not value and model.model_extra and info.context is not _FROM_STORE:
            raise ValueError(f"unknown fields: {', '.join(model.model_extra)}")
        return model

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` of any release wrote; keep unknown fields.

        Raises:
            pydantic.ValidationError: the text is invalid.
        """
        return cls.model_validate_json(text, extra="allow", context=_FROM_STORE)

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Read the JSON value that `to_wire` of any release gave; keep unknown fields.

        Raises:
            pydantic.ValidationError: the value is invalid.
        """
        return cls.model_validate(value, strict=False, extra="allow", context=_FROM_STORE)


#: The validation context of what was stored by this release or another one.
_FROM_STORE: Final = object()


def explain(error: ValidationError, *above: str | int) -> str:
    """A validation error as one line that names each invalid field.

    *above* is the path of the validated value.
    """
    if error.error_count() > MAX_MISTAKES:
        return f"{error.error_count()} fields are invalid"
    parts = []
    for item in error.errors(include_url=False, include_context=False):
        where = ".".join(str(step) for step in (*above, *item["loc"]))
        is_json = item["type"] != "invalid-json-value"
        message = strip_prefix(item["msg"]) if is_json else _no_json(item["input"])
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)


def _no_json(value: object) -> str:
    """The error for a value that is not JSON."""
    kind = type(value).__name__
    instead = {"set": "a list", "frozenset": "a list", "tuple": "a list", "bytes": "a string"}
    better = instead.get(kind, "strings, numbers, lists and dicts")
    return f"{kind} is not valid JSON; use {better}"


def strip_prefix(message: str) -> str:
    """Strip pydantic's prefix from a validator's message."""
    return message.removeprefix("Value error, ")
