"""Observations in JSON: one, a list, or an object with a list."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from boyd.intake.request import (
    BadIntake,
    IntakeRequest,
    check_count,
    check_one,
    read_json,
)
from boyd.models import Observation, ObservationType

EXPECTED = (
    "expected an observation, such as "
    '{"source": "backup", "severity": "error", "data": {"job": "nightly"}}, '
    'or a list of them, or {"observations": [...]}'
)
#: Source prefix of runs, which clients may not use.
RESERVED = "run:"


class _Posted(Observation):
    type: ObservationType = "event"


def parse(request: IntakeRequest) -> list[Observation]:
    """Parse the observations of a request.

    Raises:
        BadIntake: the request is invalid.
    """
    body = read_json(request.body)
    if isinstance(body, dict) and "observations" not in body:
        return [_observation(body, request)]
    items = _items(body)
    check_count(items)
    return [_observation(item, request, f"{index}") for index, item in enumerate(items)]


def _items(body: Any) -> list[Any]:
    items = body
    if isinstance(body, dict):
        others = body.keys() - {"observations"}
        if others:
            raise BadIntake(f"{min(others)}: unknown field next to observations")
        items = body["observations"]
    if not isinstance(items, list):
        raise BadIntake(EXPECTED)
    return items


def _observation(value: Any, request: IntakeRequest, where: str = "") -> Observation:
    at = f"{where}: " if where else ""
    if not isinstance(value, dict) or "source" not in value:
        raise BadIntake(f"{at}{EXPECTED}")
    check_one(value, where)
    try:
        posted = _Posted.model_validate({"timestamp": request.now, **value})
    except ValidationError as error:
        raise BadIntake.of(error, where) from None
    if posted.source.startswith(RESERVED):
        raise BadIntake(f"{at}source: the prefix {RESERVED!r} is reserved for runs")
    if request.plausible(posted.timestamp) is None:
        raise BadIntake(f"{at}timestamp: should be between 1970 and now")
    # Whoever sends it chooses the source; rules must not take it for a plugin's own.
    metadata = {**(posted.metadata or {}), "intake": "json"}
    return Observation.model_validate({**dict(posted), "metadata": metadata})
