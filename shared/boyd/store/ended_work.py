"""Ended work of an agent, as archive and traces follow it in pages, and how far each has come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import ValidationError

from boyd import naming
from boyd.models import LoopResult, Run
from boyd.models.loop import ArchiveStatus, FollowerStatus, TraceStatus
from boyd.store.hashes import ByteBudget, Place, Search, restore
from boyd.store.iteration_record import Record
from boyd.store.keys import ARCHIVE, TRACES, Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, milliseconds

_S = TypeVar("_S", bound=FollowerStatus)

#: Seconds to remember a process that says nothing any more.
REMEMBERED = 7 * 86_400.0


def announce_archive(client: Client, status: ArchiveStatus) -> None:
    """Announce the state; a process that works is not replaced by one that does not."""
    _announce(client, ARCHIVE, status, gives_way=status.down_since is not None)


def announce_traces(client: Client, status: TraceStatus) -> None:
    """Announce the state; a process that works is not replaced by one that does not, or waits."""
    _announce(client, TRACES, status, gives_way=status.standby or status.down_since is not None)


def parse_status(kind: type[_S], text: str | None) -> _S | None:
    """An announcement; None for none, and for one of a later release that cannot be read."""
    try:
        return kind.from_json(text) if text else None
    except ValidationError:
        return None


def _announce(client: Client, key: str, status: FollowerStatus, *, gives_way: bool) -> None:
    with translate_errors():
        other = parse_status(type(status), client.get(key)) if gives_way else None
        if other is not None and other.name != status.name and other.works_at(status.at):
            return
        client.set(key, status.to_json(), px=milliseconds(REMEMBERED))


WorkKind = Literal["iteration", "run", "approval", "execution", "investigation"]
#: The kinds that have an index.
IndexedKind = Literal[WorkKind, "procedure"]

#: Members of an index to read at once, and hashes in one round trip.
PAGE = 500
STEP = 25
#: The fields whose change means that the record has changed; none: all of them.
_STAMP: Mapping[IndexedKind, Sequence[str]] = {
    "iteration": ("iteration", "timeline", "endedAt"),
    "run": (),
    "approval": (),
    "execution": (
        *("action", "state", "worker", "startedAt", "endedAt"),
        *("verdict", "verifiedAt", "compensation"),
    ),
    "investigation": ("id", "status", "version"),
    "procedure": (),
}


@dataclass(frozen=True)
class WorkMark:
    """A record in Redis: its name, and a stamp that differs when it has changed.

    `member` and `at` are its place in the index; `fields` are all of it, if they were read already.
    """

    name: str
    member: str
    at: float
    stamp: str
    fields: Mapping[str, str] = field(default_factory=dict, repr=False)


class EndedWork:
    """The ended work of one agent."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._indexes: dict[IndexedKind, str] = {
            "iteration": keys.history,
            "run": keys.runs_finished,
            "approval": keys.approvals_history,
            "execution": keys.executions,
            "investigation": keys.investigations,
            "procedure": keys.procedures,
        }

    def pages(self, kind: IndexedKind, since: float) -> Iterator[list[Place]]:
        """The index from score *since* on, in its order."""
        skip = 0
        while True:
            with translate_errors():
                rows: list[Place] = self._client.zrangebyscore(
                    self._indexes[kind], since, "+inf", start=skip, num=PAGE, withscores=True
                )
            if rows:
                yield rows
            if len(rows) < PAGE:
                return
            last = rows[-1][1]
            # Those with the last score were read; there may be more with the same.
            same = sum(score == last for _, score in rows)
            skip = skip + same if last == since else same
            since = last

    def newest(self, kind: IndexedKind, since: float, until: float, limit: int) -> list[Place]:
        """Up to *limit* members of the index between two scores, newest first."""
        with translate_errors():
            rows: list[Place] = self._client.zrange(
                *(self._indexes[kind], until, since),
                desc=True,
                byscore=True,
                offset=0,
                num=limit,
                withscores=True,
            )
        return rows

    def within_budget(self, kind: IndexedKind, members: Sequence[str]) -> Iterator[dict[str, str]]:
        """Their records with all fields, in order, as many as a `ByteBudget` allows."""
        return ByteBudget(self._scripts).read(kind, members)

    def approvals_on(self, target: str) -> list[str]:
        """The ids of all approvals for actions on *target*, pending and resolved."""
        indexes = (self._keys.approvals_pending, self._keys.approvals_history)
        searches = [
            Search(self._client, self._scripts, index, "approval", "status") for index in indexes
        ]
        return [id for search in searches for id in search.every({"target": target})]

    def places(self, kind: IndexedKind, members: Sequence[str]) -> list[Place]:
        """The places of those *members* that the index has."""
        if not members:
            return []
        with translate_errors():
            scores = self._client.zmscore(self._indexes[kind], list(members))
        pairs = zip(members, scores, strict=True)
        return [(member, score) for member, score in pairs if score is not None]

    def oldest(self, kind: IndexedKind) -> float | None:
        """The lowest score in the index."""
        with translate_errors():
            rows = self._client.zrange(self._indexes[kind], 0, 0, withscores=True)
        return rows[0][1] if rows else None

    def present(self, kind: IndexedKind, names: Sequence[str]) -> set[str]:
        """Those of *names* that Redis has."""
        if not names:
            return set()
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.exists(self._keys.of(kind, name))
            pairs = zip(names, pipe.execute(), strict=True)
        return {name for name, there in pairs if there}

    def marks(self, kind: IndexedKind, places: Sequence[Place]) -> list[WorkMark]:
        """The marks of those that have ended, or have begun if they are executions."""
        names = _STAMP[kind]
        hashes = self._hashes(kind, [member for member, _ in places], names)
        make_mark = _MARKS.get(kind, _whole_mark)
        marks = [
            make_mark(place, fields) for place, fields in zip(places, hashes, strict=True) if fields
        ]
        return [mark for mark in marks if mark is not None]

    def fields(
        self, kind: IndexedKind, marks: Sequence[WorkMark]
    ) -> Iterator[tuple[WorkMark, dict[str, str]]]:
        """Each record with all of its fields; those that are gone are left out."""
        for first in range(0, len(marks), STEP):
            some = marks[first : first + STEP]
            unread = [mark.member for mark in some if not mark.fields]
            read = iter(self._hashes(kind, unread, ()))
            for mark in some:
                fields = dict(mark.fields) or next(read)
                if fields:
                    yield mark, fields

    def times(self, kind: IndexedKind, marks: Sequence[WorkMark]) -> dict[str, float]:
        """The times by which lists order these records, by member: runs by when they came."""
        times = {mark.member: mark.at for mark in marks}
        if kind == "run" and marks:
            with translate_errors():
                scores = self._client.zmscore(self._keys.runs, list(times))
            # One that is gone meanwhile is not read either.
            times |= {m: at for m, at in zip(times, scores, strict=True) if at is not None}
        return times

    def hashes(self, kind: IndexedKind, names: Sequence[str]) -> list[dict[str, str]]:
        """The record of each, with all of its fields; empty if it is gone."""
        return self._hashes(kind, names, ())

    def _hashes(
        self, kind: IndexedKind, members: Sequence[str], names: Sequence[str]
    ) -> list[dict[str, str]]:
        hashes: list[dict[str, str]] = []
        step = STEP if not names else PAGE
        for first in range(0, len(members), step):
            with translate_errors():
                pipe = self._client.pipeline(transaction=False)
                for member in members[first : first + step]:
                    key = self._keys.of(kind, member)
                    pipe.hmget(key, names) if names else pipe.hgetall(key)
                answers = pipe.execute()
            hashes += [_present_fields(names, answer) if names else answer for answer in answers]
        return hashes


def read_iteration(agent_id: str, fields: Mapping[str, str]) -> LoopResult:
    """An ended iteration from its hash."""
    record = Record(fields)
    return record.result(agent_id, record.started_at)


def read_ended_run(fields: Mapping[str, str]) -> Run:
    """A run from its hash."""
    return restore(Run, fields)


def _present_fields(names: Sequence[str], answer: Sequence[str | None]) -> dict[str, str]:
    return {name: value for name, value in zip(names, answer, strict=True) if value is not None}


def _iteration_mark(place: Place, fields: Mapping[str, str]) -> WorkMark | None:
    if "iteration" not in fields or "endedAt" not in fields:
        return None
    name = naming.iteration(int(fields["iteration"]), fields.get("timeline", ""))
    return WorkMark(name, *place, fields["endedAt"])


def _execution_mark(place: Place, fields: Mapping[str, str]) -> WorkMark | None:
    return WorkMark(place[0], *place, _digest(fields)) if "action" in fields else None


def _investigation_mark(place: Place, fields: Mapping[str, str]) -> WorkMark | None:
    has_ended = fields.get("status") == "ended"
    return WorkMark(place[0], *place, fields.get("version", "")) if has_ended else None


def _whole_mark(place: Place, fields: Mapping[str, str]) -> WorkMark | None:
    return WorkMark(place[0], *place, _digest(fields), fields) if "status" in fields else None


_MARKS: Mapping[IndexedKind, Callable[[Place, Mapping[str, str]], WorkMark | None]] = {
    "iteration": _iteration_mark,
    "execution": _execution_mark,
    "investigation": _investigation_mark,
}


def _digest(fields: Mapping[str, str]) -> str:
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24]
