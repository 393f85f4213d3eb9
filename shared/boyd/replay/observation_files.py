"""Observations recorded elsewhere, in CSV or JSON lines, as iterations to replay."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from boyd.errors import ConfigError
from boyd.models import LoopResult, Observation, explain
from boyd.replay.recordings import portions_of
from boyd.settings.text_files import read_text

#: Names that are not data of an observation; those with the same `iteration` belong together.
_ITERATION = "iteration"
_FIELDS = ("source", "type", "severity", "timestamp", "data", "metadata")


class ObservationFile:
    """Observations of a file; implements `Recordings`.

    Each is an iteration, or those with the same `iteration` in a row are one.
    """

    def __init__(self, path: Path, agent_id: str) -> None:
        """Read CSV with a header, or JSON lines, by the name of the file.

        Raises:
            ConfigError: it cannot be read, or a line is no observation.
        """
        rows = list(_rows(path))
        parts = groupby(enumerate(rows), key=lambda item: item[1][1].get(_ITERATION, item[0]))
        self._texts = [
            _record(agent_id, number, [_observation(path, *row) for _, row in part]).to_json()
            for number, (_, part) in enumerate(parts, 1)
        ]

    @property
    def count(self) -> int:
        """The number of iterations."""
        return len(self._texts)

    def portions(self) -> Iterator[list[str]]:
        """All of them in portions."""
        return portions_of(self._texts)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows with their lines."""
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        try:
            yield from ((reader.line_num, _cells(path, reader.line_num, row)) for row in reader)
        except csv.Error as error:
            raise ConfigError(f"{path}: line {reader.line_num}: {error}") from None
        return
    for number, line in enumerate(text.split("\n"), 1):
        try:
            row = json.loads(line) if line.strip() else {}
        except ValueError as error:
            raise ConfigError(f"{path}: line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}: line {number}: not an observation, which is an object")
        if row:
            yield number, row


def _cells(path: Path, line: int, row: Mapping[Any, Any]) -> Mapping[str, Any]:
    """A row of CSV: empty cells are absent, numbers and JSON are what they say."""
    if None in row or None in row.values():
        raise ConfigError(f"{path}: line {line}: it has more or fewer cells than the header")
    texts = ("source", "type", "severity", "timestamp")
    return {k: v if k in texts else _cell(v) for k, v in row.items() if v != ""}


def _cell(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _observation(path: Path, line: int, row: Mapping[str, Any]) -> Observation:
    known = {name: row[name] for name in _FIELDS if name in row}
    rest = {name: value for name, value in row.items() if name not in (*_FIELDS, _ITERATION)}
    if "timestamp" not in known:
        raise ConfigError(f"{path}: line {line}: it has no timestamp, which replay needs as clock")
    try:
        given = {"type": "metric", **known, "data": {**known.get("data", {}), **rest}}
        return Observation.model_validate_json(json.dumps(given))
    except ValidationError as error:
        raise ConfigError(f"{path}: line {line}: {explain(error)}") from None
    except TypeError:
        raise ConfigError(f"{path}: line {line}: data is not an object") from None


def _record(agent_id: str, number: int, seen: Iterable[Observation]) -> LoopResult:
    observations = list(seen)
    at = max(one.timestamp for one in observations)
    return LoopResult(
        id=f"{agent_id}:{number}",
        agent_id=agent_id,
        iteration=number,
        trigger="recorded elsewhere",
        observations=observations,
        success=True,
        duration=0.0,
        started_at=at,
        ended_at=at,
    )
