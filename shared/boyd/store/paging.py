"""Pages of hashes that fit some filters, at a cost that does not grow with what is kept."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boyd.errors import BadCursor
from boyd.store.connection import Client, pairs, translated
from boyd.store.scripts import KeyedScripts

#: Where a page begins: the member and score of the last one seen; empty at the beginning.
Position = tuple[str, float] | None


def read_page(
    scripts: KeyedScripts, key: str, position: Position, limit: int, newest_first: bool = True
) -> list[tuple[str, float]]:
    """Up to *limit* members with their scores, after *position*, wherever it is by now."""
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
    """Positions as a text for a client, who gives it back as it is."""
    text = json.dumps([list(p) if p else None for p in positions], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def load_cursor(text: str | None, count: int) -> Sequence[Position]:
    """The positions of a cursor; the beginning when there is none.

    Raises:
        BadCursor: it is none of ours.
    """
    if not text:
        return [None] * count
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        positions = [_position(item) for item in found]
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
    member.encode()  # half of a surrogate pair is nothing that Redis can be asked for
    if math.isnan(float(score)):
        raise ValueError
    return member, float(score)


#: Bytes as stored after which a page ends; somewhat more when the last hash is large.
PORTION = 8 * 1024 * 1024
#: Bytes after which a step ends.
STEP = 1024 * 1024


class ByteBudget:
    """What is left of a page's bytes."""

    def __init__(self, scripts: KeyedScripts) -> None:
        self._scripts = scripts
        self._left = PORTION

    @property
    def full(self) -> bool:
        """Whether nothing more should be read; the page then names a cursor to go on with."""
        return self._left <= 0

    def read(
        self, kind: str, ids: Sequence[str], fields: Sequence[str] = ()
    ) -> Iterator[dict[str, str]]:
        """The hashes of that *kind* with those *ids* in order, until the portion is full.

        Only *fields* of them; all when none is named. One that is not there is empty.
        """
        done = 0
        while done < len(ids) and not self.full:
            left = ids[done:]
            for flat in self._scripts.run(
                "read_hashes",
                first=self._scripts.keys.of(kind, left[0]),
                kind=kind,
                bytes=min(STEP, self._left),
                fields=fields,
                ids=left,
            ):
                self._left -= sum(len(text.encode(errors="replace")) for text in flat)
                done += 1
                yield pairs(flat)


#: The most hashes that are looked at for one page, to find those that fit.
SCANNED = 500

_Places = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Hits:
    """What was found, and where the next page goes on, if there may be more."""

    hashes: list[dict[str, str]]
    next_cursor: str | None = None


class Search:
    """Looks for hashes by an index of them, newest first."""

    def __init__(self, client: Client, scripts: KeyedScripts, index: str, kind: str, sign: str):
        """Search hashes of a *kind* that *index* lists; one without the field *sign* is gone."""
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
    ) -> Hits:
        """Hashes after *position* in which every field has the value that *filters* names.

        At most `SCANNED` are looked at and only a `Portion` is read, so a page may hold fewer than
        *limit*, or none, and still name a cursor to go on with. Of each hash only *fields* are
        read, if any are named; what has a lower score than *oldest* is left out.
        """
        portion = ByteBudget(self._scripts)
        found: list[dict[str, str]] = []
        looked_at = 0
        while True:
            # As many again as have been looked at: usually the first step has them all.
            step = min(max(limit, looked_at), SCANNED - looked_at) if filters else limit
            places = read_page(self._scripts, self._index, position, step)
            recent = [place for place in places if place[1] >= oldest]
            fitting = self._fitting(recent, filters)
            read = portion.read(self._kind, [name for name, _ in fitting], fields)
            for place, hash in zip(fitting, read, strict=False):
                # One may be given up, or not fit any more, by the time that all of it is read.
                if self._sign in hash and _fits(hash, filters):
                    found.append(hash)
                if len(found) == limit or portion.full:
                    return Hits(found, dump_cursor(place))
            looked_at += len(places)
            if len(recent) < step:
                return Hits(found)
            position = places[-1]
            if looked_at >= SCANNED or not filters:
                return Hits(found, dump_cursor(position))

    def every(self, filters: Mapping[str, str]) -> list[str]:
        """The members of all hashes that fit; reads all that are kept, so ask rarely."""
        with translated():
            names = self._client.zrevrange(self._index, 0, -1)
        return [
            name
            for first in range(0, len(names), SCANNED)
            for name, _ in self._fitting(
                [(n, 0.0) for n in names[first : first + SCANNED]], filters
            )
        ]

    def _fitting(self, places: _Places, filters: Mapping[str, str]) -> _Places:
        """The places of those that fit, by the few fields that tell."""
        if not filters or not places:
            return places
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for name, _ in places:
                pipe.hmget(self._scripts.keys.of(self._kind, name), list(filters))
            answers = pipe.execute()
        wanted = list(filters.values())
        return [place for place, found in zip(places, answers, strict=True) if found == wanted]


def _fits(hash: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    return all(hash.get(name) == value for name, value in filters.items())
