"""Conditions in CEL, the Common Expression Language, such as `params.count > 3`.

A condition is compiled against names with types, so mistakes are found before it is needed. Its
evaluation is bounded: there are no loops but those over data, of limited size and number, and
regular expressions take linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from boyd.errors import ConfigError
from boyd.models import JsonObject
from boyd.settings.validation import nearest

#: Limits of a condition's text, of strings in data, and of the items of one list or object.
MAX_TEXT, MAX_STRING, MAX_ITEMS = 1000, 10_000, 256
#: The type of an object or value of which no more is known.
OBJECT, ANY = "map", "dyn"

# `map` would let lists grow from step to step; `exists`, `all` and `filter` cannot.
_CONFIG = "stdlib:\n  exclude_macros:\n    - map\n"
_MISTAKE = re.compile(r"ERROR: <input>:(\d+):(\d+): (.+)")
_UNKNOWN = re.compile(r"undeclared reference to '([^']+)' \(in container")
_MISFIT = re.compile(r"found no matching overload for '([^']+)' applied to '\(([^']+)\)'")
_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NAME = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_TYPES = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}


class ConditionError(ValueError):
    """A condition cannot be compiled or evaluated."""


class ConditionFunction(NamedTuple):
    """A function that conditions may call; each signature lists the types of its parameters.

    A `ValueError` that it raises is the reason why the condition cannot be evaluated.
    """

    signatures: Sequence[Sequence[str]]
    returns: str
    call: Callable[..., Any]


class Condition:
    """A compiled condition."""

    def __init__(self, text: str, program: Any, names: Mapping[str, str]) -> None:
        self.text = text
        self._program = program
        # Only these are checked and converted; a name in a string does no harm.
        self._names = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)]

    def is_true(self, values: Mapping[str, Any]) -> bool:
        """Evaluate the condition with *values*, by name.

        Raises:
            ConditionError: it cannot be evaluated.
        """
        used = {name: values[name] for name in self._names if name in values}
        for name, value in used.items():
            _check_size(name, value)
        try:
            answer = self._program.eval(data=used).value()
        except RuntimeError as error:
            raise ConditionError(_STATUS.sub("", str(error))) from None
        if not isinstance(answer, bool):
            raise ConditionError(_STATUS.sub("", str(answer)))
        return answer


class Language:
    """The language of conditions about certain names, each with its CEL type, and functions."""

    def __init__(
        self, names: Mapping[str, str], functions: Mapping[str, ConditionFunction] | None = None
    ) -> None:
        """Declare the names and the functions.

        Raises:
            ConfigError: the library is not installed.
        """
        self._names, self._functions = dict(names), functions or {}
        self._cel = cel = _library()
        self._environment = cel.NewEnv(
            config=cel.NewEnvConfigFromYaml(_CONFIG),
            variables={name: _type(cel, kind) for name, kind in names.items()},
            functions=[_declare(cel, name, part) for name, part in self._functions.items()],
        )

    def compile(self, text: str) -> Condition:
        """Compile a condition.

        Raises:
            ConditionError: it is invalid; the message names the position.
        """
        if len(text) > MAX_TEXT:
            raise ConditionError(f"it is longer than {MAX_TEXT} characters")
        try:
            program = self._environment.compile(text)
        except RuntimeError as error:
            raise ConditionError(self._explain(str(error))) from None
        kind = program.return_type()
        if kind not in (self._cel.Type.BOOL, self._cel.Type.DYN):
            raise ConditionError(f"it gives {kind.name().lower()}, not true or false")
        return Condition(text, program, self._names)

    def _explain(self, error: str) -> str:
        match = _MISTAKE.search(error)
        if match is None:
            return _STATUS.sub("", error)
        line, column, message = int(match[1]), int(match[2]), match[3]
        where = f"line {line}, column {column}" if line > 1 else f"column {column}"
        return f"{where}: {self._plainly(message)}"

    def _plainly(self, message: str) -> str:
        if unknown := _UNKNOWN.match(message):
            name = unknown[1]
            if name in self._functions:
                takes = (", ".join(kinds) for kinds in self._functions[name].signatures)
                return f"{name} takes ({') or ('.join(takes)})"
            # The part in front of the last dot is a value; its function or field is what lacks.
            return f"{name} is not known{nearest(name, [*self._names, *self._functions])}"
        if misfit := _MISFIT.match(message):
            kinds = misfit[2].split(", ")
            hint = "; write whole numbers with a point, as 1.0" if _mixes_numbers(kinds) else ""
            operator = misfit[1].strip("_@").replace("_", " ")
            return f"`{operator}` does not work on {' and '.join(kinds)}{hint}"
        return message.partition(" expecting {")[0].replace("'<EOF>'", "the end")


def names_of(schema: JsonObject | None) -> dict[str, str]:
    """Return the names and types of an action's params; without a schema any are allowed."""
    if schema is None or schema.get("additionalProperties"):
        return {"params": OBJECT}
    fields: Any = schema.get("properties", {})
    usable = {name: field for name, field in fields.items() if _NAME.fullmatch(name)}
    return {f"params.{name}": _kind(field, schema) for name, field in usable.items()}


def _kind(field: Any, schema: JsonObject) -> str:
    if "$ref" in field:
        parts: Any = schema.get("$defs", {})
        field = parts.get(field["$ref"].rpartition("/")[2], {})
    kind = field.get("type")
    if kind == "array":
        return f"list({_kind(field.get('items', {}), schema)})"
    return OBJECT if kind == "object" else _TYPES.get(str(kind), ANY)


def _type(cel: ModuleType, kind: str) -> Any:
    types = cel.Type
    if kind.startswith("list("):
        return types.List(_type(cel, kind.removeprefix("list(").removesuffix(")")))
    return types.Map(types.STRING, types.DYN) if kind == OBJECT else types(kind)


def _declare(cel: ModuleType, name: str, function: ConditionFunction) -> Any:
    overloads = [
        cel.Overload(
            f"{name}_{len(kinds)}",
            _type(cel, function.returns),
            [_type(cel, kind) for kind in kinds],
            impl=function.call,
        )
        for kinds in function.signatures
    ]
    return cel.FunctionDecl(name, overloads)


def _mixes_numbers(kinds: list[str]) -> bool:
    return {"int", "double"} <= set(kinds)


def _check_size(name: str, value: Any) -> None:
    """Raise unless an evaluation over *value* ends soon."""
    layer = [value]
    while layer:
        if any(isinstance(item, str) and len(item) > MAX_STRING for item in layer):
            raise ConditionError(f"{name} has a text of more than {MAX_STRING} characters")
        inner = [
            list(item.values()) if isinstance(item, Mapping) else item
            for item in layer
            if isinstance(item, Mapping | list)
        ]
        if any(len(item) > MAX_ITEMS for item in inner):
            raise ConditionError(f"{name} has more than {MAX_ITEMS} items")
        layer = [child for item in inner for child in item]


def _library() -> ModuleType:
    """Google's CEL, imported by the first condition."""
    try:
        from cel_expr_python import cel
    except ImportError as error:
        raise ConfigError(
            f"conditions need {error.name}, which is not installed: "
            "run `pip install 'boyd[conditions]'`"
        ) from None
    module: ModuleType = cel
    return module
