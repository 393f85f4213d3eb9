"""What is wrong with settings, told to whoever wrote them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from boyd.models.base import explain, told


def mistakes(error: ValidationError, model: type[BaseModel]) -> str:
    """What *model* did not take, as one line that names each setting and the nearest known one."""
    parts = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        place = item["loc"]
        said = told(item["msg"])
        if item["type"] == "extra_forbidden":
            said = f"is not known{nearest(str(place[-1]), _names(model, place[:-1]))}"
        where = ".".join(str(step) for step in place)
        parts.append(f"{where}: {said}" if where else said)
    return "; ".join(parts)


def saying(error: object) -> str:
    """The message of an error; of a validation error the fields and reasons, without its links."""
    if isinstance(error, ValidationError):
        return f"{error.title}: {explain(error)}"
    return str(error)


def nearest(name: str, known: Iterable[str]) -> str:
    """What to add to a message about an unknown name: the nearest known one, or else all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known are {', '.join(names)}" if names else ""


def _names(model: type[BaseModel], place: Iterable[int | str]) -> set[str]:
    """The settings that there are at that place of *model*."""
    models = [model]
    for step in map(str, place):
        fields = [one.model_fields[step] for one in models if step in one.model_fields]
        # Positions in lists and keys of tables are no fields, and lead nowhere else.
        if fields:
            models = [found for field in fields for found in _models(field.annotation)]
    return {name for one in models for name in one.model_fields}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
