"""Recorded iterations and regression cases, read for a replay.

Iterations come from archive and Redis, or from a file with a record or an observation a line.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import Field, ValidationError

from boyd.errors import ConfigError
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.entries import exact_ms, lowest_beside, lowest_key
from boyd.export.archive.search import SCANNED
from boyd.models import LoopResult, Observation, explain
from boyd.models.base import JsonObject, Model
from boyd.models.loop import HistoryFilter
from boyd.models.tape import Course, Fate, ReplayedIteration
from boyd.settings.validation import MAX_LINE, read_lines, read_text
from boyd.store import AgentStore
from boyd.store.ended_work import WorkMark, read_iteration

#: The most characters of a line of records, which may be a list of them.
MAX_RECORD = 64 * MAX_LINE
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
        parts = groupby(
            enumerate(_rows(path)), key=lambda item: item[1][1].get(_ITERATION, item[0])
        )
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
    lines = read_lines(path)
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(lines, strict=True)
        try:
            yield from ((reader.line_num, _cells(path, reader.line_num, row)) for row in reader)
        except csv.Error as error:
            raise ConfigError(f"{path}: line {reader.line_num}: {error}") from None
        return
    for number, line in enumerate(lines, 1):
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
    fields = {name: row[name] for name in _FIELDS if name in row}
    rest = {name: value for name, value in row.items() if name not in (*_FIELDS, _ITERATION)}
    if "timestamp" not in fields:
        raise ConfigError(f"{path}: line {line}: it has no timestamp, which replay needs as clock")
    try:
        document = {"type": "metric", **fields, "data": {**fields.get("data", {}), **rest}}
        return Observation.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise ConfigError(f"{path}: line {line}: {explain(error)}") from None
    except TypeError:
        raise ConfigError(f"{path}: line {line}: data is not an object") from None


def _record(agent_id: str, number: int, group: Iterable[Observation]) -> LoopResult:
    observations = list(group)
    at = max(observation.timestamp for observation in observations)
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


#: Records in a portion, at most.
PORTION = 64

#: Selects iterations by number.
Wanted = Callable[[int], bool]


class Recordings(Protocol):
    """Recorded iterations, oldest first."""

    @property
    def count(self) -> int:
        """Their number."""

    def portions(self) -> Iterator[list[str]]:
        """All of them as JSON, each on one line, in portions that stay the same."""


@dataclass(frozen=True)
class _Kept:
    """An iteration that archive or Redis has: its place in the order of all, and where it is."""

    order: int
    name: str
    where: int | WorkMark

    @property
    def number(self) -> int:
        return int(self.name.partition(".")[0])


class KeptIterations:
    """The iterations of an agent that archive and Redis have; implements `Recordings`."""

    def __init__(
        self, store: AgentStore, archive: ArchiveAccess, query: HistoryFilter, is_selected: Wanted
    ) -> None:
        """List the iterations that match *query* and are *is_selected*.

        Raises:
            ArchiveUnavailable: the archive does not answer.
            StoreUnavailable: Redis does not answer.
        """
        self._store = store
        self._archive = archive
        archived = (
            {iteration.name: iteration for iteration in self._from_archive(query)}
            if archive.exists
            else {}
        )
        recent = (iteration for iteration in self._recent(query) if iteration.name not in archived)
        selected = (
            iteration
            for iteration in (*archived.values(), *recent)
            if is_selected(iteration.number)
        )
        self._kept = sorted(selected, key=lambda iteration: (iteration.order, iteration.number))

    @property
    def count(self) -> int:
        """Their number."""
        return len(self._kept)

    def portions(self) -> Iterator[list[str]]:
        """All of them as JSON, in portions that stay the same when others begin or end before."""
        for _, group in groupby(self._kept, key=lambda iteration: iteration.number // PORTION):
            while some := list(islice(group, PORTION)):
                yield self._texts(some)

    def _from_archive(self, query: HistoryFilter) -> Iterator[_Kept]:
        agent = self._store.agent_id
        before = None if query.until is None else lowest_key(exact_ms(query.until))
        since = None if query.since is None else exact_ms(query.since)
        while True:
            page = self._archive.ask(
                lambda reader, before=before: reader.page(  # type: ignore[misc]
                    agent, "iteration", SCANNED, before=before, since=since
                )
            )
            yield from (_Kept(lowest_beside(hit.key), hit.name, hit.key) for hit in page.hits)
            before = page.before
            if before is None:
                return

    def _recent(self, query: HistoryFilter) -> Iterator[_Kept]:
        since = float("-inf") if query.since is None else exact_ms(query.since)
        until = float("inf") if query.until is None else exact_ms(query.until)
        work = self._store.ended_work
        for page in work.pages("iteration", since):
            places = [place for place in page if place[1] < until]
            for mark in work.marks("iteration", places):
                yield _Kept(lowest_key(mark.at), mark.name, mark)

    def _texts(self, some: Sequence[_Kept]) -> list[str]:
        keys = [iteration.where for iteration in some if isinstance(iteration.where, int)]
        marks = [iteration.where for iteration in some if isinstance(iteration.where, WorkMark)]
        archived = self._archive.ask(lambda reader: reader.bodies(keys)) if keys else {}
        recent = {
            mark.name: read_iteration(self._store.agent_id, fields).to_json()
            for mark, fields in self._store.ended_work.fields("iteration", marks)
        }
        texts = (
            archived.get(iteration.where)
            if isinstance(iteration.where, int)
            else recent.get(iteration.name)
            for iteration in some
        )
        return [text for text in texts if text]


class FileOfRecords:
    """Iterations in a file, as `boyd history N -o json` prints them; implements `Recordings`."""

    def __init__(self, path: Path, is_selected: Wanted) -> None:
        """Read the file: one record a line, or a single record or list of any form.

        Raises:
            ConfigError: it cannot be read, is not JSON, or a line is longer than `MAX_RECORD`.
        """
        self._texts = [
            json.dumps(document)
            for document in _documents(path)
            if is_selected(_number(path, document))
        ]

    @property
    def count(self) -> int:
        """Their number."""
        return len(self._texts)

    def portions(self) -> Iterator[list[str]]:
        """All of them in portions."""
        return portions_of(self._texts)


def portions_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts in portions."""
    for first in range(0, len(texts), PORTION):
        yield list(texts[first : first + PORTION])


def _documents(path: Path) -> list[object]:
    lines = list(read_lines(path, MAX_RECORD))
    with suppress(ValueError):
        return [json.loads(line) for line in lines if line.strip()]
    try:
        document = json.loads("".join(lines))
    except ValueError as error:
        raise ConfigError(f"{path}: neither JSON nor a JSON document a line: {error}") from None
    return document if isinstance(document, list) else [document]


def _number(path: Path, document: object) -> int:
    number = document.get("iteration") if isinstance(document, dict) else None
    if not isinstance(number, int):
        raise ConfigError(f"{path}: holds something that is no record of an iteration")
    return number


# Regression cases of an agent: recorded iterations with the right decision, in files.
#
# They are in the folder `cases` beside the agent file, one YAML file each, for people to read and
# edit.

FOLDER = "cases"
_HEAD = "# A case of the agent {agent!r}, which `boyd test` replays; edit what it expects.\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What a replay does not need of a record.
_LEFT_OUT = ("situation", "trace", "actionResults", "observerRuns", "phases", "runs", "retries")


class Expectation(Model):
    """The right decision; absent fields match anything."""

    action: str
    params: JsonObject | None = None
    fate: Fate | None = None

    @classmethod
    def of(cls, course: Course) -> Expectation:
        """The expectation that it stays like *course*."""
        doing = course.fate != "none"
        return cls(
            action=course.action if doing else "no-op",
            params=course.params if doing else None,
            fate=course.fate,
        )

    def mistakes(self, course: Course) -> Iterator[str]:
        """The differences to *course*, each a line."""
        action = "no-op" if course.fate == "none" else course.action
        actual = {"action": action, "params": course.params, "fate": course.fate}
        for name, value in actual.items():
            expected = getattr(self, name)
            if expected is not None and expected != value:
                yield f"{name}: expected {_format(expected)}, got {_format(value)}"


class ReplayCase(Model):
    """A recorded iteration and the right decision."""

    expect: Expectation
    record: LoopResult


class CaseResult(Model):
    """The result of a case; without mistakes it passed."""

    case: str
    mistakes: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, name: str, case: ReplayCase, judgement: ReplayedIteration) -> CaseResult:
        """Compare what the case expects with what was found."""
        if judgement.after is None:
            return cls(case=name, mistakes=[f"cannot tell: {judgement.why}"])
        mistakes = list(case.expect.mistakes(judgement.after))
        if mistakes and judgement.after.reason:
            mistakes.append(f"because: {judgement.after.reason}")
        return cls(case=name, mistakes=mistakes)


def folder_of(agent_file: str) -> Path:
    """The folder of the cases of an agent file, or of an agent in a module: here."""
    beside = Path(agent_file).parent if agent_file.endswith(".toml") else Path()
    return beside / FOLDER


def write_case(folder: Path, name: str, case: ReplayCase) -> Path:
    """Write a case to a new file; return its path.

    Raises:
        ConfigError: the name is invalid or taken, or the file cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a case: use letters, digits, `.`, `_` and `-`")
    path = folder / f"{name}.yaml"
    wire = case.to_wire()
    wire["record"] = {key: wire["record"][key] for key in wire["record"] if key not in _LEFT_OUT}
    text = yaml.safe_dump(wire, sort_keys=False, allow_unicode=True, width=100)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(_HEAD.format(agent=case.record.agent_id) + text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already: give another --name, or edit it") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    return path


def read_cases(folder: Path) -> dict[str, ReplayCase]:
    """All cases of a folder by name, in the order of their names.

    Raises:
        ConfigError: a file cannot be read, or holds no case.
    """
    # Hidden ones are of editors and systems, such as `.#case.yaml`.
    return {path.stem: _read(path) for path in sorted(folder.glob("[!.]*.yaml"))}


def _read(path: Path) -> ReplayCase:
    try:
        document = yaml.safe_load(read_text(path))
        return ReplayCase.model_validate_json(json.dumps(document, default=_plain))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None


def _plain(value: Any) -> str:
    """A time, which YAML understands by itself, as text again."""
    return str(value)


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
