"""Recorded iterations: of archive and Redis, or of a file with one record a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Protocol

from boyd.errors import ConfigError
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.entries import exact_ms, lowest_beside, lowest_key
from boyd.export.archive.search import SCANNED
from boyd.models.archived import HistoryFilter
from boyd.settings.text_files import read_text
from boyd.store import AgentStore
from boyd.store.ended_work import WorkMark, read_iteration

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
        self, store: AgentStore, archive: ArchiveAccess, query: HistoryFilter, wanted: Wanted
    ) -> None:
        """List the iterations that match *query* and are *wanted*.

        Raises:
            ArchiveUnavailable: the archive does not answer.
            StoreUnavailable: Redis does not answer.
        """
        self._store = store
        self._archive = archive
        archived = {one.name: one for one in self._archived(query)} if archive.exists else {}
        recent = (one for one in self._recent(query) if one.name not in archived)
        found = (one for one in (*archived.values(), *recent) if wanted(one.number))
        self._kept = sorted(found, key=lambda one: (one.order, one.number))

    @property
    def count(self) -> int:
        """Their number."""
        return len(self._kept)

    def portions(self) -> Iterator[list[str]]:
        """All of them as JSON, in portions that stay the same when others begin or end before."""
        for _, group in groupby(self._kept, key=lambda one: one.number // PORTION):
            while some := list(islice(group, PORTION)):
                yield self._texts(some)

    def _archived(self, query: HistoryFilter) -> Iterator[_Kept]:
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
        ended = self._store.ended_work
        for page in ended.pages("iteration", since):
            places = [place for place in page if place[1] < until]
            for mark in ended.marks("iteration", places):
                yield _Kept(lowest_key(mark.at), mark.name, mark)

    def _texts(self, some: Sequence[_Kept]) -> list[str]:
        keys = [one.where for one in some if isinstance(one.where, int)]
        marks = [one.where for one in some if isinstance(one.where, WorkMark)]
        archived = self._archive.ask(lambda reader: reader.bodies(keys)) if keys else {}
        recent = {
            mark.name: read_iteration(self._store.agent_id, fields).to_json()
            for mark, fields in self._store.ended_work.fields("iteration", marks)
        }
        found = (
            archived.get(one.where) if isinstance(one.where, int) else recent.get(one.name)
            for one in some
        )
        return [text for text in found if text]


class FileOfRecords:
    """Iterations in a file, as `boyd history N -o json` prints them; implements `Recordings`."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        """Read the file: one record a line, or a single record or list of any form.

        Raises:
            ConfigError: it cannot be read, or is not JSON.
        """
        self._texts = [json.dumps(one) for one in _documents(path) if wanted(_number(path, one))]

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
    text = read_text(path)
    with suppress(ValueError):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: neither JSON nor a JSON document a line: {error}") from None
    return found if isinstance(found, list) else [found]


def _number(path: Path, document: object) -> int:
    found = document.get("iteration") if isinstance(document, dict) else None
    if not isinstance(found, int):
        raise ConfigError(f"{path}: holds something that is no record of an iteration")
    return found
