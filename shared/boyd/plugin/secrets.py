"""Secrets in what plugins declare: in options they are at home, in params they are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.errors import PydanticInvalidForJsonSchema


def secrets_in(value: Any) -> Iterator[str]:
    """The texts of all `SecretStr` and `SecretBytes` in a value, however deep."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, SecretBytes):
        yield value.get_secret_value().decode("utf-8", "replace")
    elif isinstance(value, BaseModel):
        yield from secrets_in(dict(value))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from secrets_in(one)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from secrets_in(one)


def check_params(name: str, params: type[BaseModel] | None) -> None:
    """Check that no parameter of the component *name* is declared as a secret.

    Raises:
        ValueError: one is; params are stored, and shown to those who approve and who read.
    """
    try:
        schema = params.model_json_schema(by_alias=True) if params else {}
    except PydanticInvalidForJsonSchema:  # whoever shows it will say so
        return
    if _has_secret(schema):
        raise ValueError(
            f"{name}: its params have a SecretStr, and params are stored in Redis and shown to "
            "readers; take the secret from the plugin's options or from a file on the worker"
        )


def _has_secret(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        secret = schema.get("writeOnly") is True and schema.get("format") == "password"
        return secret or any(_has_secret(one) for one in schema.values())
    return isinstance(schema, list) and any(_has_secret(one) for one in schema)
