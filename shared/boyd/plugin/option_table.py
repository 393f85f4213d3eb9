"""The options of a plugin, one by one, as people write them into an agent file."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from boyd.models import Model

#: Types by their names in TOML.
_NAMES = {
    "list": "array",
    "secretstr": "secret",
    "str": "string",
    "int": "integer",
    "bool": "boolean",
    "dict": "table",
}
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n     +.+)*)", re.MULTILINE)


class PluginOption(Model):
    """An option; `name` is its path below `[plugins.options]`, `default` its text."""

    name: str
    type: str
    required: bool
    default: str
    meaning: str


def options_of(model: type[BaseModel]) -> list[PluginOption]:
    """All options of *model*; the first table of each kind is followed by what it holds."""
    return list(_options(model, "", {}, None))


def attributes(model: type[BaseModel]) -> dict[str, str]:
    """The meaning of each field, by the section `Attributes` of the docstring."""
    section = (inspect.getdoc(model) or "").partition("Attributes:\n")[2]
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}


def _options(
    model: type[BaseModel],
    prefix: str,
    told: dict[type[BaseModel], str],
    given: BaseModel | None,
) -> Iterator[PluginOption]:
    """The options of *model*; *told* has the name of the first table of each kind."""
    meanings = {name: text for base in reversed(model.__mro__) for name, text in _own(base).items()}
    for attribute, field in model.model_fields.items():
        name = f"{prefix}{field.alias or attribute}"
        inner, place = _inner(field.annotation)
        missing = field.is_required() and given is None
        default = getattr(given, attribute, field.get_default(call_default_factory=True))
        meaning = field.description or meanings.get(attribute, "")
        if inner in told:
            meaning = f"{meaning} Options as of `{told[inner]}`.".strip()
        if inner is None or place or not missing:
            yield PluginOption(
                name=name,
                type=type_text(field.annotation),
                required=missing,
                default=_text(default),
                meaning=meaning,
            )
        if inner is not None and inner not in told:
            told[inner] = f"{name}{place}"
            values = default if isinstance(default, BaseModel) else None
            yield from _options(inner, f"{name}{place}.", told, values)


def _own(base: type) -> dict[str, str]:
    return attributes(base) if issubclass(base, BaseModel) and base.__doc__ else {}


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model that an option holds, and how a path goes on to the model's fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _inner(arguments[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [one for one in arguments if one is not types.NoneType]
        return _inner(kinds[0]) if len(kinds) == 1 else (None, "")
    if origin in (list, tuple, Sequence):
        return _inner(arguments[0])[0], "[]"
    if origin in (dict, Mapping):
        return _inner(arguments[1])[0], ".NAME"
    return None, ""


def _text(default: object) -> str:
    if default is PydanticUndefined or isinstance(default, BaseModel):
        return ""
    if default is None:
        return "none"
    if isinstance(default, tuple | set | frozenset):
        default = sorted(default) if isinstance(default, set | frozenset) else list(default)
    return json.dumps(default, default=str, ensure_ascii=False)


def type_text(annotation: Any) -> str:
    """The type of an option in a few words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return " | ".join(json.dumps(one) for one in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [type_text(one) for one in arguments if one is not types.NoneType]
        return " | ".join(dict.fromkeys(kinds))
    if annotation is ...:
        return "..."
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not arguments:
        return "table"
    name = getattr(origin or annotation, "__name__", str(annotation))
    name = _NAMES.get(name.lower(), name.lower())
    return f"{name} of {type_text(arguments[-1])}" if arguments else name
