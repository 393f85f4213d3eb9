"""Reads a message in its format: a function of an entry point, or a mapping of expressions."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from boyd.errors import PluginError
from boyd.intake.request import (
    MAX_BYTES,
    BadIntake,
    IntakeRequest,
    IntakeUnready,
    check_count,
    check_one,
    read_json,
    severity_of,
)
from boyd.models import JsonObject, Observation, Severity
from boyd.settings.intake_settings import DeclaredIntake, IntakeMapping, shipped_intakes
from boyd.settings.validation import saying
from boyd.text.extraction import Expression, ExtractionError, StepMeter, UnusableExpression
from boyd.text.trace_context import parse_traceparent

GROUP = "boyd.intakes"
#: Why a message that was understood gives no observation.
UNOBSERVED = "it is about nothing that fires or ends, as a ping or a test (`when` is not true)"
#: Characters of a source and a title, and of a fingerprint before it is shortened.
MAX_SOURCE, MAX_TITLE, MAX_FINGERPRINT = 300, 1000, 200
#: Characters of a severity and a time; more are none.
MAX_WORD = 100
#: The numbers of units in a second, for times that are numbers.
_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)
#: Later than any time in seconds, and earlier than any of this millennium in milliseconds.
_LATEST = 100_000_000_000

_compiled = lru_cache(maxsize=2048)(Expression)

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
    return partial(parse_mapped, intake.mapping, intake.use)


def _check_result(name: str, result: object, request: IntakeRequest) -> list[Observation]:
    if not isinstance(result, list) or not all(isinstance(item, Observation) for item in result):
        raise PluginError(name, "should return a list of boyd.Observation")
    check_count(result)
    result = [_mark_sent(_with_trace(observation, request), name) for observation in result]
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


def _mark_sent(observation: Observation, name: str) -> Observation:
    """The observation with the name of its format or intake, unless it has one."""
    metadata = observation.metadata or {}
    if metadata.get("intake") is not None:
        return observation
    return observation.model_copy(update={"metadata": {**metadata, "intake": name}})


def _size(observation: Observation, index: int) -> int:
    try:
        return len(observation.to_json())
    except PydanticSerializationError as error:
        raise BadIntake(f"observation {index} cannot be stored: {error}") from None


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def parse_mapped(mapping: IntakeMapping, name: str, request: IntakeRequest) -> list[Observation]:
    """Read a message by the mapping of the format *name*.

    Raises:
        BadIntake: it is not JSON, has no items, or has other values than the mapping expects.
        IntakeUnready: the mapping cannot be used here.
    """
    return _Reader(mapping, name, request).observations()


class _Reader:
    """Reads one message; all of its expressions together are limited."""

    def __init__(self, mapping: IntakeMapping, name: str, request: IntakeRequest) -> None:
        self._mapping = mapping
        self._name = name
        self._zone = ZoneInfo(mapping.timezone)
        self._request = request
        names = map(str.lower, mapping.headers)
        headers = {name: request.headers.get(name) for name in names}
        self._scope = {"body": read_json(request.body), "headers": headers}
        self._meter = StepMeter()
        self._bytes = 0

    def observations(self) -> list[Observation]:
        condition = self._mapping.known
        if condition and not _is_true(self._value(condition, None)):
            raise BadIntake(f"this is no message of {self._name}: `{condition}` is not true of it")
        items = self._value(self._mapping.items, None)
        if not isinstance(items, list):
            raise BadIntake(f"`{self._mapping.items}` gives no list; is this from {self._name}?")
        check_count(items)
        results = [self._observation(item, index) for index, item in enumerate(items)]
        return [observation for observation in results if observation is not None]

    def _observation(self, item: Any, index: int) -> Observation | None:
        mapping = self._mapping
        if mapping.when and not _is_true(self._value(mapping.when, item)):
            return None
        resolved = bool(mapping.resolved) and _is_true(self._value(mapping.resolved, item))
        data = self._data(item, index, resolved)
        metadata: JsonObject = {"intake": self._name}
        for name, text in (("fingerprint", mapping.fingerprint), ("eventId", mapping.event)):
            # Many items may have a long one in common, which is then read for each of them.
            value = self._value(text, item, counted=True)
            check_one(value, f"item {index}")
            if identity := _identity(value):
                metadata[name] = identity
        end = _text(self._value(mapping.source, item))[:MAX_SOURCE]
        time = _time(self._value(mapping.timestamp, item), self._zone)
        try:
            return Observation(
                source=f"{self._name}/{end}" if end else self._name,
                type=mapping.type,
                severity="info" if resolved else self._severity(item),
                data=data,
                metadata=metadata,
                timestamp=self._request.plausible(time) or self._request.now,
            )
        except ValidationError as error:
            raise BadIntake.of(error, f"item {index}") from None

    def _data(self, item: Any, index: int, resolved: bool) -> JsonObject:
        mapping = self._mapping
        payload = self._value(mapping.data, item)
        check_one(payload, f"item {index}")
        # Items may share parts of the message, which then count for each of them.
        self._bytes += len(json.dumps(payload))
        if self._bytes > MAX_BYTES:
            raise BadIntake(f"more than {MAX_BYTES} bytes of observations in one request")
        data: JsonObject = {"payload": payload}
        if mapping.title:
            data["title"] = _text(self._value(mapping.title, item))[:MAX_TITLE]
        if mapping.resolved:
            data["status"] = "resolved" if resolved else "firing"
        return data

    def _severity(self, item: Any) -> Severity | None:
        word = _text(self._value(self._mapping.severity, item))[:MAX_WORD].strip().lower()
        severity = self._mapping.severities.get(word) or severity_of(word)
        return severity or self._mapping.default_severity

    def _value(self, text: str | None, item: Any, *, counted: bool = False) -> Any:
        if text is None:
            return None
        try:
            value = _compiled(text).value({**self._scope, "item": item}, self._meter)
            if counted:
                self._meter.take_size(value)
            return value
        except UnusableExpression as error:
            raise IntakeUnready(self._name, f"has a mapping that cannot be used: {error}") from None
        except ExtractionError as error:
            raise BadIntake(f"the mapping of {self._name}: {error}") from None


def _is_true(value: Any) -> bool:
    """True as in JMESPath, where 0 is true."""
    return not (value is None or value is False or value in ("", [], {}))


def _text(value: Any) -> str:
    """A text or number as text; empty for anything else."""
    if isinstance(value, str):
        return value
    return "" if isinstance(value, bool) or not isinstance(value, int | float) else str(value)


def _identity(value: Any) -> str:
    """A text that is equal for equal values; empty for none."""
    if value is None or value in ("", [], {}):
        return ""
    text = _text(value) or json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_FINGERPRINT else hashlib.sha256(text.encode()).hexdigest()


def _iso(text: str) -> str:
    """A time without the blanks and the name that some put at its end: `… 15:26:29 UTC`."""
    date, *rest = text.split()
    return "T".join([date, "".join(rest).replace("UTC", "Z")]) if rest else date


def _time(value: Any, zone: ZoneInfo) -> datetime | None:
    """A time given as ISO 8601, in *zone* if it names none, or as a number since 1970."""
    if isinstance(value, str) and len(value) > MAX_WORD:
        return None
    try:
        if isinstance(value, str) and not value.strip().isdigit():
            read = datetime.fromisoformat(_iso(value))
            return read if read.tzinfo else read.replace(tzinfo=zone)
        number = float(_text(value))
        unit = next((unit for unit in _UNITS if number / unit < _LATEST), _UNITS[-1])
        return datetime.fromtimestamp(number / unit, UTC)
    except (ValueError, OverflowError, OSError):
        return None
