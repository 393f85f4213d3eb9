"""Intake formats: functions, found by the names of their entry points, and mappings."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points

from pydantic_core import PydanticSerializationError

from boyd.errors import PluginError
from boyd.intake import mapped
from boyd.intake.request import (
    MAX_BYTES,
    BadIntake,
    IntakeRequest,
    IntakeUnready,
    check_count,
)
from boyd.models import Observation
from boyd.settings.intake_settings import DeclaredIntake, shipped_intakes
from boyd.settings.validation import saying
from boyd.text.trace_context import parse_traceparent

GROUP = "boyd.intakes"

Parse = Callable[[IntakeRequest], list[Observation]]


class UnknownFormat(LookupError):
    """No such format."""


def parse(name: str, request: IntakeRequest) -> list[Observation]:
    """Parse a request in the format *name*.

    Raises:
        UnknownFormat: there is no such format.
        BadIntake: the request is invalid or too large.
        IntakeUnready: the format or its mapping cannot be used here.
        PluginError: the format's function failed, or returned something else.
    """
    return _check_result(name, _read(name, find_format(name), request), request)


def parse_declared(intake: DeclaredIntake, request: IntakeRequest) -> list[Observation]:
    """Parse a request to an intake of an agent; errors as for `parse`.

    Its agent knows the format, so one that is unknown here is `IntakeUnready`.
    """
    if intake.mapping is None:
        try:
            return parse(intake.use, request)
        except UnknownFormat as error:
            raise IntakeUnready(intake.use, f"is not installed: {error}") from None
    return _check_result(intake.use, _read(intake.use, _by_mapping(intake), request), request)


def _by_mapping(intake: DeclaredIntake) -> Parse:
    assert intake.mapping is not None, "only those with a mapping are read by one"
    return partial(mapped.parse, intake.mapping, intake.use)


def _check_result(name: str, result: object, request: IntakeRequest) -> list[Observation]:
    if not isinstance(result, list) or not all(isinstance(item, Observation) for item in result):
        raise PluginError(name, "should return a list of boyd.Observation")
    check_count(result)
    result = [_with_trace(observation, request) for observation in result]
    size = sum(_size(observation, index) for index, observation in enumerate(result))
    if size > MAX_BYTES:
        raise BadIntake(f"{size} bytes of observations in one request; the limit is {MAX_BYTES}")
    return result


def _read(name: str, format: Parse, request: IntakeRequest) -> object:
    try:
        return format(request)
    except (BadIntake, IntakeUnready):
        raise
    except ImportError as error:
        raise IntakeUnready(name, f"needs what is not installed: {saying(error)}") from error
    except Exception as error:  # of a function that is not ours
        raise PluginError(name, f"failed: {type(error).__name__}: {saying(error)}") from error


def find_format(name: str) -> Parse:
    """Load the function of a format.

    Raises:
        UnknownFormat: there is no such format.
        IntakeUnready: it cannot be imported, or is not callable.
    """
    shipped = shipped_intakes().get(name)
    if shipped is not None and name not in _entry_points():
        declared = shipped.declared(name)
        return find_format(declared.use) if declared.mapping is None else _by_mapping(declared)
    if name not in _entry_points():
        near = difflib.get_close_matches(name, format_names(), 1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"known formats: {', '.join(format_names())}"
        )
        raise UnknownFormat(f"no format {name!r}; {hint}")
    try:
        function = _entry_points()[name].load()
    except Exception as error:
        raise IntakeUnready(name, f"cannot be imported: {saying(error)}") from error
    if not callable(function):
        raise IntakeUnready(name, f"cannot be used: {function!r} is not a function")
    parse: Parse = function
    return parse


def format_names() -> list[str]:
    """The installed formats, and those that come with Boyd."""
    return sorted(_entry_points().keys() | shipped_intakes())


def _with_trace(observation: Observation, request: IntakeRequest) -> Observation:
    """The observation with the trace context of its event, or else of its request, if any."""
    own = observation.data.get("traceparent")
    for text in (own, request.headers.get("traceparent")):
        if parse_traceparent(text):
            metadata = {"traceparent": text, **(observation.metadata or {})}
            return observation.model_copy(update={"metadata": metadata})
    return observation


def _size(observation: Observation, index: int) -> int:
    try:
        return len(observation.to_json())
    except PydanticSerializationError as error:
        raise BadIntake(f"observation {index} cannot be stored: {error}") from None


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
