"""Expressions in JMESPath, which extract values from JSON, such as `body.alerts[].name`.

Their evaluation is bounded: JMESPath has no loops but those over data, and what an expression may
visit and make is limited, as one that doubles lists or texts could take any time and memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

#: Maximum characters of an expression.
MAX_TEXT = 1000
#: Maximum steps, and seconds, of all expressions that one `StepMeter` counts.
MAX_STEPS, MAX_SECONDS = 5_000_000, 20.0
#: Characters of text that count as one step.
_CHARACTERS = 10
#: Steps that a function counts as, besides its result.
_FUNCTION = 1000


class ExtractionError(ValueError):
    """An expression cannot be compiled or evaluated."""


class UnusableExpression(ExtractionError):
    """An expression cannot be compiled, or the library is not installed, whatever its input."""


class StepMeter:
    """Counts the steps of expressions."""

    def __init__(self) -> None:
        self._left = MAX_STEPS
        self._until = time.monotonic() + MAX_SECONDS

    def take(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            ExtractionError: there were too many, or they took too long.
        """
        self._left -= steps
        late = self._left % 1000 < steps and time.monotonic() > self._until
        if self._left < 0 or late:
            raise ExtractionError("the expressions take too long")

    def take_size(self, value: Any) -> None:
        """Count all that is in a value, as often as it is in there.

        Raises:
            ExtractionError: it is too much.
        """
        layer = [value]
        while layer:
            inside = [item for item in layer if isinstance(item, dict | list)]
            texts = sum(len(item) for item in layer if isinstance(item, str))
            # Before they are looked at: a list may be in there any number of times.
            self.take(sum(map(len, inside)) + texts // _CHARACTERS)
            layer = [
                child
                for item in inside
                for child in (item.values() if isinstance(item, dict) else item)
            ]


class Expression:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        """Compile it.

        Raises:
            UnusableExpression: it is invalid, or the library is not installed.
        """
        if len(text) > MAX_TEXT:
            raise UnusableExpression(f"it is longer than {MAX_TEXT} characters")
        jmespath = _library()
        try:
            self._tree = jmespath.compile(text).parsed
            unknown = _function_names(self._tree) - _functions().FUNCTION_TABLE.keys()
        except jmespath.exceptions.JMESPathError as error:
            raise UnusableExpression(_first_line(error)) from None
        except RecursionError:
            raise UnusableExpression("it nests too deeply") from None
        if unknown:
            raise UnusableExpression(f"there is no function {min(unknown)}()")
        self.text = text

    def value(self, scope: Mapping[str, Any], meter: StepMeter) -> Any:
        """Evaluate it on *scope*; None where something is missing.

        Raises:
            ExtractionError: a function got something that it does not take, or there are too many
                steps.
        """
        try:
            return _interpreter()(meter).visit(self._tree, scope)
        except ExtractionError:
            raise
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ExtractionError(f"`{self.text}`: {_first_line(error)}") from None


def check_expressions(texts: Sequence[str]) -> None:
    """Compile expressions.

    Raises:
        ExtractionError: one is invalid; the message repeats it.
    """
    for text in texts:
        try:
            Expression(text)
        except ExtractionError as error:
            raise ExtractionError(f"`{text}`: {error}") from None


def _function_names(tree: Mapping[str, Any]) -> set[str]:
    """The names of the functions in a compiled expression."""
    own = {tree["value"]} if tree["type"] == "function_expression" else set()
    children = (child for child in tree["children"] if isinstance(child, dict))
    return own.union(*map(_function_names, children))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(":")


@cache
def _interpreter() -> Any:
    """The interpreter of the library, with limits."""
    jmespath = _library()

    class Interpreter(jmespath.visitor.TreeInterpreter):  # type: ignore[misc, name-defined]
        def __init__(self, meter: StepMeter) -> None:
            super().__init__(jmespath.Options(custom_functions=_functions()))
            self._meter = meter

        def visit(self, node: Any, *values: Any, **more: Any) -> Any:
            self._meter.take()
            return super().visit(node, *values, **more)

        def visit_flatten(self, node: Any, value: Any) -> Any:
            result = super().visit_flatten(node, value)
            self._meter.take(len(result or ()))
            return result

        def visit_multi_select_list(self, node: Any, value: Any) -> Any:
            return self._meter_size(super().visit_multi_select_list(node, value))

        def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
            return self._meter_size(super().visit_multi_select_dict(node, value))

        def visit_function_expression(self, node: Any, value: Any) -> Any:
            self._meter.take(_FUNCTION)
            return self._meter_size(super().visit_function_expression(node, value))

        def _meter_size(self, result: Any) -> Any:
            self._meter.take_size(result)
            return result

    return Interpreter


@cache
def _functions() -> Any:
    """The functions of JMESPath, and `parse_json`, for JSON within a text."""
    jmespath = _library()
    import jiter

    from boyd.text.json_limits import check_values

    class Functions(jmespath.functions.Functions):  # type: ignore[misc, name-defined]
        @jmespath.functions.signature(  # type: ignore[untyped-decorator]
            {"types": ["string"]}, {"types": ["array-string"]}
        )
        def _func_join(self, between: str, texts: list[str]) -> str:
            if len(between) * len(texts) > MAX_STEPS:
                raise ExtractionError("the expressions take too long")
            return between.join(texts)

        @jmespath.functions.signature({"types": ["string"]})  # type: ignore[untyped-decorator]
        def _func_parse_json(self, text: str) -> Any:
            try:
                check_values(text)
                return jiter.from_json(text.encode(), allow_inf_nan=False)
            except ValueError:
                return None

    return Functions()


def _library() -> ModuleType:
    """JMESPath, imported by the first expression."""
    try:
        import jmespath
        import jmespath.visitor
    except ImportError as error:
        raise UnusableExpression(
            f"needs {error.name}, which is not installed: run `pip install 'boyd[intakes]'`"
        ) from None
    module: ModuleType = jmespath
    return module
