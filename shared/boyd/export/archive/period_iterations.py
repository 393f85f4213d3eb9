"""The iterations of an agent in a period, as far as they tell of one target.

A day may have ten thousand. Only the names of all of them are read, and in full an even choice: up
to `READ` of those with the target, and `BESIDE` of the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from pydantic_core import from_json

from boyd import naming
from boyd.errors import ArchiveUnavailable
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.entries import Term, exact_ms, targets_of, terms_for
from boyd.export.archive.incident_grouping import AnomalySighting, Look
from boyd.export.archive.merged_history import SLACK
from boyd.models import NO_OP, ActionResult, Observation, OpenAnomaly, Situation, from_ms
from boyd.store import AgentStore
from boyd.store.hashes import readable
from boyd.store.iteration_record import Record

#: Iterations that are read in full: those with the target, and others; and spans of a plot, each
#: of which has one of the others if iterations are regular.
READ, BESIDE, SPANS = 400, 150, 140
#: The newest of the others are read in any case: they tell whether an anomaly is over.
_NEWEST = 10
#: The most iterations that the archive and Redis are asked for.
LISTED, _RECENT = 20_000, 2000
_WORD = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_ABSENT = {"severity": None, "metadata": None}
_T = TypeVar("_T")


@dataclass(frozen=True)
class TargetQuery:
    """A target, and the period about which is asked."""

    target: str
    since: datetime
    until: datetime


@dataclass(frozen=True)
class PastIteration:
    """An iteration, as far as it tells of targets, and the plugins that could not look in it."""

    observations: Sequence[Observation]
    situation: Situation | None
    started_at: datetime
    ended_at: datetime
    blind: frozenset[str] = frozenset()
    results: Sequence[ActionResult] = ()

    @property
    def look(self) -> Look:
        """When it ended, and the plugins that it covers."""
        return Look(self.ended_at, self.situation is not None, self.blind)

    def anomalies_on(self, target: str) -> list[OpenAnomaly]:
        """Its anomalies on a target."""
        anomalies = self.situation.open_anomalies if self.situation else []
        return [anomaly for anomaly in anomalies if anomaly.resource == target]

    def executions(self, name: str) -> Iterator[str]:
        """Name the executions of the iteration *name*, and those that it proposed."""
        for result in self.results:
            if result.waits_for:
                yield naming.approval(result.waits_for)
            elif result.prevented is None and result.action != NO_OP:
                yield naming.iteration_execution(name)


@dataclass(frozen=True)
class PeriodIterations:
    """Iterations of a period, oldest first.

    Attributes:
        sightings: those with the target.
        iterations: the same in full.
        others: iterations without the target.
        count: the number of all with the target.
        missing: the reason why older ones are missing, if they are.
    """

    sightings: Sequence[AnomalySighting] = ()
    iterations: Sequence[PastIteration] = ()
    others: Sequence[PastIteration] = ()
    count: int = 0
    missing: str | None = None


@dataclass(frozen=True)
class _Entry:
    """An ended iteration by its name, with its key in the archive, its record, or its content."""

    name: str
    source: int | Mapping[str, str] | PastIteration


def read_iterations(
    query: TargetQuery, store: AgentStore, archive: ArchiveAccess, *, anyway: bool
) -> PeriodIterations:
    """The iterations of an agent in the period.

    Without any that has the target, others are only read *anyway*.
    """
    try:
        return _PeriodReader(query, store, archive if archive.exists else None).read(anyway)
    except ArchiveUnavailable as error:
        read = _PeriodReader(query, store, None).read(anyway)
        return replace(read, missing=str(error))


def choose(items: Sequence[_T], most: int) -> list[_T]:
    """An even choice of up to *most* items, with the first and the last."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(number * step)] for number in range(most)]


class _PeriodReader:
    """Reads the iterations of one agent."""

    def __init__(
        self, query: TargetQuery, store: AgentStore, archive: ArchiveAccess | None
    ) -> None:
        self._query = query
        self._store = store
        self._archive = archive
        self._with_target: list[_Entry] = []
        self._without: list[_Entry] = []
        self._missing: str | None = None

    def read(self, anyway: bool) -> PeriodIterations:
        since: float = exact_ms(self._query.since)
        if self._archive is not None:
            since = max(since, self._list_archived(self._archive))
        self._list_recent(since)
        if not self._with_target and not anyway:
            return PeriodIterations(missing=self._missing)
        chosen = choose(self._with_target, READ)
        beside = choose(self._without[:-_NEWEST], BESIDE) + self._without[-_NEWEST:]
        content = self._load([*chosen, *beside])
        others = [content[entry.name] for entry in beside if entry.name in content]
        entries = [entry for entry in chosen if entry.name in content]
        return PeriodIterations(
            self._sightings(entries, content),
            [content[entry.name] for entry in entries],
            others,
            len(self._with_target),
            self._missing,
        )

    def _sightings(
        self, entries: Sequence[_Entry], content: Mapping[str, PastIteration]
    ) -> list[AnomalySighting]:
        places = {entry.name: place for place, entry in enumerate(self._with_target)}
        return [
            AnomalySighting(
                **vars(content[entry.name].look),
                agent_id=self._store.agent_id,
                name=entry.name,
                run=int(entry.name.partition(".")[0]) - places[entry.name],
                began=content[entry.name].started_at,
                anomalies=content[entry.name].anomalies_on(self._query.target),
            )
            for entry in entries
        ]

    def _list_archived(self, archive: ArchiveAccess) -> float:
        """List what the archive has; return the time up to which it has everything."""
        query, agent = self._query, self._store.agent_id
        period = (exact_ms(query.since), exact_ms(query.until))
        terms = terms_for(target=query.target)

        def list_names(required: Sequence[Term]) -> dict[int, str]:
            return archive.ask(
                lambda reader: reader.names(agent, "iteration", period, LISTED, required)
            )

        names, keys = list_names([]), list_names(terms).keys()
        if len(names) >= LISTED:
            self._missing = f"the agent {agent} has more than {LISTED} iterations in this time"
        for key in sorted(names):
            entries = self._with_target if key in keys else self._without
            entries.append(_Entry(names[key], key))
        newest = archive.ask(lambda reader: reader.newest(agent, "iteration"))
        return (newest or 0.0) - SLACK

    def _list_recent(self, since: float) -> None:
        """List what the archive does not have yet, and what is in flight and was assessed."""
        listed = {entry.name for entry in (*self._with_target, *self._without)}
        work, until = self._store.ended_work, exact_ms(self._query.until)
        current = self._store.iterations.current()  # first, as it may end meanwhile
        places = work.newest("iteration", since, until, _RECENT)
        records = list(work.within_budget("iteration", [name for name, _ in places]))
        if len(records) < len(places) or len(places) == _RECENT:
            self._missing = "Redis has more of them than one answer may hold"
        if current and "situation" in current.fields and current.started_at < self._query.until:
            records.insert(0, {"endedAt": str(until), **current.fields})
        for fields in reversed(records):
            if "endedAt" in fields and (name := Record(fields).id) not in listed:
                listed.add(name)
                iteration = self._with_target_of(fields)
                entries = self._with_target if iteration else self._without
                entries.append(_Entry(name, iteration or fields))

    def _with_target_of(self, fields: Mapping[str, str]) -> PastIteration | None:
        """The iteration, if it has the target; most do not even contain its name."""
        target = self._query.target
        word = max(_WORD.findall(target), key=len, default="")
        iteration = _from_redis(fields) if any(word in text for text in fields.values()) else None
        if iteration and target in targets_of(iteration.situation, iteration.observations):
            return iteration
        return None

    def _load(self, entries: Sequence[_Entry]) -> dict[str, PastIteration]:
        """The content by name, without what is gone or cannot be read."""
        keys = [entry.source for entry in entries if isinstance(entry.source, int)]
        bodies: Mapping[int, str] = {}
        if self._archive is not None and keys:
            bodies = self._archive.ask(lambda reader: reader.bodies(keys))
        content = {entry.name: _content(entry, bodies) for entry in entries}
        return {name: iteration for name, iteration in content.items() if iteration}


def _content(entry: _Entry, bodies: Mapping[int, str]) -> PastIteration | None:
    if isinstance(entry.source, PastIteration):
        return entry.source
    if not isinstance(entry.source, int):
        return _from_redis(entry.source)
    body = bodies.get(entry.source)
    return readable(f"iteration {entry.name}", _from_archive, body) if body else None


def _from_archive(text: str) -> PastIteration:
    """An iteration from its JSON; its observations were validated when they were made."""
    wire = from_json(text)
    situation = wire.get("situation")
    return PastIteration(
        [Observation.model_construct(**(_ABSENT | it)) for it in wire.get("observations", [])],
        Situation.from_json(json.dumps(situation)) if situation else None,
        datetime.fromisoformat(wire["startedAt"]),
        datetime.fromisoformat(wire["endedAt"]),
        frozenset(wire.get("blind", ())),
        [ActionResult.model_validate(it, extra="ignore") for it in wire.get("actionResults", ())],
    )


def _from_redis(fields: Mapping[str, str]) -> PastIteration | None:
    def read(record: Record) -> PastIteration:
        return PastIteration(
            record.observations,
            record.situation,
            record.started_at,
            from_ms(float(fields["endedAt"])),
            frozenset(record.blind),
            record.action_results,
        )

    return readable(f"iteration {fields.get('iteration')}", read, Record(fields))
