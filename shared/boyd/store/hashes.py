"""Records in Redis: models as hashes, and pages of those; what cannot be read is passed over."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from boyd.errors import BadCursor, StoreError, StoreUnavailable, UnreadableRecord
from boyd.models import Model, from_ms
from boyd.store.server.connection import Client, pairs, translate_errors
from boyd.store.server.scripts import KeyedScripts

log = logging.getLogger(__name__)

_M = TypeVar("_M", bound=Model)
_T = TypeVar("_T")
_S = TypeVar("_S")

_TEXT = frozenset(
    {
        *("id", "agentId", "status", "fingerprint", "actionId", "actionName", "risk"),
        *("reversibility", "situationClass"),
        *("situationSummary", "reason", "note", "actedBy", "claimedBy", "link", "queue", "undoes"),
        *("boundTo", "previews", "traceparent"),
        *("title", "description", "priority", "source", "approvalId", "callbackUrl", "kind"),
        *("action", "rationale", "state", "target", "by", "host", "worker", "approve", "progress"),
        *("question", "instructions", "profile", "key", "askedBy", "ending", "detail", "text"),
        *("cancelledBy", "doneBefore"),
    }
)
#: Ids and principals, separated by spaces.
_LISTS = frozenset({"runIds", "requestedBy", "wakes"})
_TIMES = frozenset(
    {*("createdAt", "updatedAt", "completedAt", "expiresAt", "startedAt", "endedAt", "previewAt")}
    | {"until", "stoppedAt", "resolvedAt"}
)


def flatten(model: Model) -> list[str]:
    """A model as field, value, field, value for HSET; absent fields are left out."""
    flat: list[str] = []
    for key, value in model.to_wire().items():
        flat += [key, _text(key, value)]
    return flat


def _text(key: str, value: Any) -> str:
    if key in _LISTS:
        return " ".join(value)
    return str(value) if key in _TEXT else json.dumps(value)


def restore(kind: type[_M], fields: Mapping[str, str]) -> _M:
    """A model from the fields that `flatten` and the scripts stored.

    Unknown fields are ignored, also inside of values, because a later release may add some.
    """
    names = {field.alias or name for name, field in kind.model_fields.items()}
    values = {k: _value(k, text) for k, text in fields.items() if k in names}
    return kind.model_validate(values, extra="ignore")


def _value(key: str, text: str) -> Any:
    if key in _TIMES:
        return from_ms(float(text))
    if key in _LISTS:
        return text.split()
    return text if key in _TEXT else json.loads(text)


# A person's command, another program or a later release may have written what is in Redis: a record
# that cannot be read is named in the log, and the others are read nevertheless.

#: What reading a record raises that somebody else has written.
_MISTAKES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
#: The most names that are remembered as logged, and that a list of names has.
_REMEMBERED, _LISTED = 1000, 10

_collected: ContextVar[list[str] | None] = ContextVar("boyd_unreadable", default=None)
_logged: set[str] = set()


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Name the record that the body reads, if it cannot.

    Raises:
        UnreadableRecord: it cannot.
    """
    try:
        yield
    except _MISTAKES as error:
        raise _unreadable(name, error) from error


def readable(name: str, read: Callable[[_S], _T], record: _S) -> _T | None:
    """The *record* as *read* makes it of it; None, with a note, when it cannot be read."""
    try:
        return read(record)
    except StoreUnavailable:
        raise
    except StoreError as error:
        note_unreadable(name, error)
    except _MISTAKES as error:
        note_unreadable(name, _unreadable(name, error))
    return None


def _unreadable(name: str, error: Exception) -> UnreadableRecord:
    return UnreadableRecord(f"{name} cannot be read: {_in_short(error)}")


def note_unreadable(name: str, error: object) -> None:
    """Log what was passed over, once, and add its name to those being collected."""
    names = _collected.get()
    if names is not None and name not in names and len(names) < _LISTED:
        names.append(name)
    if name in _logged:
        return
    if len(_logged) >= _REMEMBERED:
        _logged.clear()
    _logged.add(name)
    log.warning("%s is passed over: %s", name, error)


def collect_unreadable() -> list[str]:
    """The names of the records that this thread passes over from now on, at most a few."""
    names: list[str] = []
    _collected.set(names)
    return names


def _in_short(error: Any) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[:3])[:300]


#: A member of an index with its score.
Place = tuple[str, float]
#: The place that a page continues after; None for the first page.
Position = Place | None
#: The position before all others, newest first, of a page that has read nothing of its index.
FIRST: Place = ("\uffff", math.inf)


def read_page(
    scripts: KeyedScripts, key: str, position: Position, limit: int, newest_first: bool = True
) -> list[Place]:
    """Up to *limit* members with their scores, after *position* even if that member is gone."""
    member, score = position or ("", 0.0)
    flat = scripts.run(
        "read_page",
        index=key,
        member=member,
        score=repr(score),
        limit=limit,
        newest=newest_first,
    )
    return [(name, float(text)) for name, text in zip(flat[::2], flat[1::2], strict=True)]


def dump_cursor(*positions: Position) -> str:
    """Positions as an opaque text for clients."""
    text = json.dumps([list(p) if p else None for p in positions], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def load_cursor(text: str | None, count: int) -> Sequence[Position]:
    """The *count* positions in a cursor; without a cursor, those of a first page.

    Raises:
        BadCursor: the cursor is invalid.
    """
    if not text:
        return [None] * count
    try:
        padded = text + "=" * (-len(text) % 4)
        items = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        positions = [_position(item) for item in items]
        if len(positions) != count:
            raise ValueError
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError):
        raise BadCursor(
            f"invalid cursor {text[:40]!r}: pass nextCursor of an earlier response"
        ) from None
    return positions


def _position(item: Any) -> Position:
    if item is None:
        return None
    member, score = item
    if not isinstance(member, str) or not member or isinstance(score, bool):
        raise ValueError
    member.encode()  # raises for half of a surrogate pair, which cannot be sent to Redis
    if math.isnan(float(score)):
        raise ValueError
    return member, float(score)


#: Stored bytes after which a page ends; its last hash may exceed them.
BYTE_BUDGET = 8 * 1024 * 1024
#: Stored bytes after which a step ends.
STEP = 1024 * 1024


class ByteBudget:
    """The bytes that a page may still read."""

    def __init__(self, scripts: KeyedScripts) -> None:
        self._scripts = scripts
        self._left = BYTE_BUDGET

    @property
    def full(self) -> bool:
        """True if the budget is used up, so that the page ends with a next cursor."""
        return self._left <= 0

    def read(
        self, kind: str, ids: Sequence[str], fields: Sequence[str] = ()
    ) -> Iterator[dict[str, str]]:
        """The hashes of a *kind* with these *ids*, in order, until the budget is used up.

        They have only the named *fields*, or all if none are named. A missing hash is empty.
        """
        done = 0
        while done < len(ids) and not self.full:
            left = ids[done:]
            size, *rows = self._scripts.run(
                "read_hashes",
                first=self._scripts.keys.of(kind, left[0]),
                kind=kind,
                bytes=min(STEP, self._left),
                fields=fields,
                ids=left,
            )
            self._left -= size
            for row in rows:
                if row is None:
                    note_unreadable(f"{kind} {ids[done]}", "its key holds something else")
                done += 1
                yield _hash(row or [], fields)


def _hash(row: list[Any], fields: Sequence[str]) -> dict[str, str]:
    """Return a hash from its row in the reply of `read_hashes`."""
    if not fields:
        return pairs(row)
    return {name: text for name, text in zip(fields, row, strict=False) if text is not None}


#: The most hashes to scan for one page with filters.
SCANNED = 500

_Places = Sequence[Place]


@dataclass(frozen=True)
class Listing(Generic[_T]):
    """A page of an index: records of a *kind* with their places; *next* continues it, if any."""

    rows: list[tuple[Place, _T]]
    next: Position = None
    kind: str = "record"

    @property
    def records(self) -> list[_T]:
        """The records alone."""
        return [record for _, record in self.rows]

    @property
    def last(self) -> Position:
        """The place of the last record."""
        return self.rows[-1][0] if self.rows else None

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page, for clients."""
        return dump_cursor(self.next) if self.next else None

    def map(self, read: Callable[[_T], _S | None]) -> Listing[_S]:
        """Read each record, without those that *read* makes None of or that cannot be read."""
        rows = [
            (place, item)
            for place, record in self.rows
            if (item := readable(f"{self.kind} {place[0]}", read, record)) is not None
        ]
        return Listing(rows, self.next, self.kind)


class Search:
    """Searches hashes through an index, newest first."""

    def __init__(self, client: Client, scripts: KeyedScripts, index: str, kind: str, sign: str):
        """Search the hashes of a *kind* in *index*; a hash without the field *sign* is gone."""
        self._client = client
        self._scripts = scripts
        self._index = index
        self._kind = kind
        self._sign = sign

    def page(
        self,
        limit: int,
        position: Position,
        filters: Mapping[str, str],
        *,
        fields: Sequence[str] = (),
        oldest: float = -math.inf,
    ) -> Listing[dict[str, str]]:
        """Hashes after *position* that match all *filters*, with scores of at least *oldest*.

        At most `SCANNED` hashes are scanned within a `ByteBudget`, so a page may hold fewer than
        *limit*, or none, and still have a next cursor. The hashes have only the named *fields*, or
        all if none are named.
        """
        budget = ByteBudget(self._scripts)
        rows: list[tuple[Place, dict[str, str]]] = []
        looked_at = 0
        while True:
            # Each step doubles the number scanned; usually the first one suffices.
            step = min(max(limit, looked_at), SCANNED - looked_at) if filters else limit
            places = read_page(self._scripts, self._index, position, step)
            recent = [place for place in places if place[1] >= oldest]
            fitting = self._fitting(recent, filters)
            read = budget.read(self._kind, [name for name, _ in fitting], fields)
            for place, hash in zip(fitting, read, strict=False):
                # It may have been deleted or changed since its filter fields were read.
                if self._sign in hash and _fits(hash, filters):
                    rows.append((place, hash))
                if len(rows) == limit or budget.full:
                    return Listing(rows, place, self._kind)
            looked_at += len(places)
            if len(recent) < step:
                return Listing(rows, kind=self._kind)
            position = places[-1]
            if looked_at >= SCANNED or not filters:
                return Listing(rows, position, self._kind)

    def every(self, filters: Mapping[str, str]) -> list[str]:
        """The members of all hashes that match; use it rarely, because it scans all of them."""
        with translate_errors():
            names = self._client.zrevrange(self._index, 0, -1)
        return [
            name
            for first in range(0, len(names), SCANNED)
            for name, _ in self._fitting(
                [(n, 0.0) for n in names[first : first + SCANNED]], filters
            )
        ]

    def _fitting(self, places: _Places, filters: Mapping[str, str]) -> _Places:
        """The places of the hashes that match, judged by the filtered fields only."""
        if not filters or not places:
            return places
        names = [name for name, _ in places]
        hashes = ByteBudget(self._scripts).read(self._kind, names, list(filters))
        return [place for place, hash in zip(places, hashes, strict=False) if _fits(hash, filters)]


def _fits(hash: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    return all(hash.get(name) == value for name, value in filters.items())
