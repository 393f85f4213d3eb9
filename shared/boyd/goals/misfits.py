"""What is wrong about params in an agent file, told without what they hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from boyd.models import JsonObject

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

#: What jsonschema says of these names what is missing or too much, and no value.
_NAMING = ("required", "additionalProperties")


def misfit(params: JsonObject, schema: JsonObject) -> str | None:
    """What is most wrong about *params*; None: they fit."""
    # Agents without tools of other plugins start without it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(params))
    return _told(error) if error else None


def _told(error: ValidationError) -> str:
    """Which name is wrong, and what is wanted of it: a value may be a secret that does not fit."""
    place = ".".join(map(str, error.absolute_path))
    before = f"{place}: " if place else ""
    if error.validator in _NAMING:
        return f"{before}{error.message}"
    return f"{before}wanted is {error.validator} {json.dumps(error.validator_value)}"
