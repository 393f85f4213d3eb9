"""Labels from files: CSV, and what PagerDuty and Alertmanager export."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from boyd.errors import ConfigError
from boyd.settings.validation import nearest, read_text
from boyd_proof.proof_report import Label

#: Names of the fields: our own, then those of PagerDuty and Alertmanager.
STARTS = ("start", "created_on", "created_at", "startsAt")
ENDS = ("end", "resolved_on", "resolved_at", "endsAt")
#: The keys below which JSON documents hold their list.
_LISTS = ("incidents", "alerts", "data")
#: Alertmanager writes this year for an alert that goes on.
_NEVER = 1


@dataclass(frozen=True)
class LabelFields:
    """The fields that hold targets and types, and the zone of times without one.

    A field may lie within others: `labels.instance`.
    """

    target: str = "target"
    type: str = "type"
    zone: tzinfo | None = None


def read_labels(path: Path, fields: LabelFields) -> list[Label]:
    """Read labels, in the order of the file.

    Raises:
        ConfigError: it cannot be read, holds no label, or one of them is not valid.
    """
    text = read_text(path)
    rows = list(_documents(path, text) if text.lstrip()[:1] in ("[", "{") else _rows(path, text))
    if not rows:
        raise ConfigError(f"{path}: it holds no label: write a line for each, with start and end")
    for name, default in ((fields.target, "target"), (fields.type, "type")):
        if name != default and all(_look_up(row, name) is None for _, row in rows):
            close = nearest(name, rows[0][1])
            raise ConfigError(f"{path}: no label has the field {name!r}{close}")
    return [_Row(path, where, row).label(fields) for where, row in rows]


def _rows(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a CSV file with their lines."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = reader.fieldnames or []
        if not any(name in header for name in STARTS):
            close = next(filter(None, (nearest(name, ["start"]) for name in header)), "")
            raise ConfigError(
                f"{path}: line 1: the header has no column start{close}; it needs start and end, "
                "and may have target and type"
            )
        for row in reader:
            if None in row or None in row.values():
                raise ConfigError(
                    f"{path}: line {reader.line_num}: it has more or fewer cells than the header"
                )
            yield f"line {reader.line_num}", row
    except csv.Error as error:
        raise ConfigError(f"{path}: line {reader.line_num}: {error}") from None


def _documents(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a JSON document with their places."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if isinstance(document, dict):
        document = next((document[name] for name in _LISTS if name in document), None)
    if not isinstance(document, list):
        raise ConfigError(
            f"{path}: it holds no list of labels: it needs a list, or an object with one below "
            f"{', '.join(_LISTS[:-1])} or {_LISTS[-1]}"
        )
    for number, item in enumerate(document, 1):
        if not isinstance(item, dict):
            raise ConfigError(f"{path}: label {number}: it is not an object")
        yield f"label {number}", item


@dataclass(frozen=True)
class _Row:
    """A label as a file has it."""

    path: Path
    where: str
    values: Mapping[str, Any]

    def label(self, fields: LabelFields) -> Label:
        """The label. Raises `ConfigError` if it is not valid."""
        start = self._time(STARTS, fields.zone)
        if start is None:
            raise self._error("start is empty: write when it began")
        end = self._time(ENDS, fields.zone)
        if end is None and self.values.get("status") == "resolved":
            # Incidents of PagerDuty's API say so.
            end = self._time(("last_status_change_at",), fields.zone)
        if end is not None and end < start:
            raise self._error(f"end {end.isoformat()} is before start {start.isoformat()}")
        return Label(
            start=start,
            end=end,
            target=_text(self.values, fields.target),
            type=_text(self.values, fields.type),
            source=self.where,
        )

    def _time(self, names: Sequence[str], zone: tzinfo | None) -> datetime | None:
        """The first of these fields as a time; None if it is empty."""
        name = next((name for name in names if self.values.get(name) not in (None, "")), None)
        if name is None:
            return None
        text = str(self.values[name]).strip()
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise self._error(
                f"{name} {text!r} is no time: write it as 2026-11-01T12:00:00Z"
            ) from None
        if time.year == _NEVER:
            return None
        return time if time.tzinfo else self._in_zone(name, time, zone)

    def _in_zone(self, name: str, time: datetime, zone: tzinfo | None) -> datetime:
        """A time without a zone, in *zone*."""
        if zone is None:
            raise self._error(
                f"{name} {time.isoformat()} has no time zone: write "
                f"{time.isoformat()}Z or {time.isoformat()}+01:00, or give --timezone"
            )
        local = time.replace(tzinfo=zone)
        if local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != time:
            raise self._error(f"{name} {time.isoformat()} does not exist in {zone}")
        if local.replace(fold=1).utcoffset() != local.utcoffset():
            raise self._error(
                f"{name} {time.isoformat()} occurs twice in {zone}: write it with its offset, "
                f"as in {local.isoformat()}"
            )
        return local

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.path}: {self.where}: {problem}")


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = _look_up(values, name)
    return None if value in (None, "") else str(value)


def _look_up(values: Mapping[str, Any], name: str) -> Any:
    """A field of that name, or within others."""
    if name in values:
        return values[name]
    value: Any = values
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
